"""Output that a reader may stop reading: ``geminga ... | head`` ends without a word."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable


def print_lines(lines: Iterable[str]) -> None:
    """Print them, as far as they are read."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def print_now(line: str) -> None:
    """Print a line that a reader gets at once. Raises ``BrokenPipeError`` if there is no reader."""
    print(line, flush=True)


def drop_output() -> None:
    """Whoever read standard output has seen enough: write the rest nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
