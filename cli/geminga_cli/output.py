"""Output whose reader may stop reading: ``geminga ... | head`` ends without an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable


def print_lines(lines: Iterable[str]) -> None:
    """Print the lines until the reader has closed its end."""
    try:
        for line in lines:
            print(line)
        # A reader that has gone is often noticed only here, when buffered lines are written.
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def print_now(line: str) -> None:
    """Print a line without delay. Raises ``BrokenPipeError`` if the reader has gone."""
    print(line, flush=True)


def drop_output() -> None:
    """Discard the rest of the output after a ``BrokenPipeError``.

    Python flushes standard output once more when it exits; without this, that would fail again.
    """
    # The descriptor itself is replaced: what C code and child processes write is dropped too.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
