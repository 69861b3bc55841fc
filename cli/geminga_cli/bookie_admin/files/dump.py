"""Prints the findings in some files, and how many of them are wrong."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator

from geminga_bookie.errors import UnknownFormat
from geminga_cli.bookie_admin.files.offline_file import Content, opened
from geminga_cli.bookie_admin.verdicts.finding import Finding
from geminga_cli.display.text import count_words

# Yields the findings in a file: its path, and its content.
Examine = Callable[[str, Content], Iterator[Finding]]


def dump_files(options: argparse.Namespace, examine: Examine) -> int:
    """Print the findings of each file; returns 1 if something is wrong.

    Raises ``UnreadableFile``.
    """
    wrong = 0
    for path in options.files:
        with opened(path) as file:
            if not options.json:
                print(f"{path}  {count_words(file.size, 'byte')}")
            try:
                # Printed one by one: a file may have many thousands.
                for finding in examine(str(path), file):
                    record = finding.record(str(path))
                    print(json.dumps(record) if options.json else finding.line())
                    wrong += finding.is_wrong
            # The other files are still read: one may be a stray in a directory of good ones.
            except UnknownFormat as error:
                print(error, file=sys.stderr)
                wrong += 1
    if wrong and not options.json:
        print(f"{count_words(wrong, 'thing')} in {count_words(len(options.files), 'file')} wrong")
    return int(bool(wrong))
