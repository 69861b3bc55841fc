"""Prints what was found in some files, and says what it comes to."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator

from geminga_bookie.errors import UnknownFormat
from geminga_cli.bookie_admin.files.offline_file import Content, opened
from geminga_cli.bookie_admin.verdicts.finding import Finding
from geminga_cli.display.text import count_words

Look = Callable[[str, Content], Iterator[Finding]]


def dump_files(options: argparse.Namespace, look: Look) -> int:
    """Print the findings of each file; 1 where something is wrong. Raises ``UnreadableFile``."""
    wrong = 0
    for path in options.files:
        with opened(path) as file:
            if not options.json:
                print(f"{path}  {count_words(file.size, 'byte')}")
            try:
                for finding in look(str(path), file):
                    print(_shown(finding, str(path), is_json=options.json))
                    wrong += finding.is_wrong
            except UnknownFormat as error:
                print(error, file=sys.stderr)
                wrong += 1
    if wrong and not options.json:
        print(f"{count_words(wrong, 'thing')} in {count_words(len(options.files), 'file')} wrong")
    return int(bool(wrong))


def _shown(finding: Finding, path: str, *, is_json: bool) -> str:
    return json.dumps(finding.record(path)) if is_json else finding.line()
