"""Commands of `geminga` that serve, each its own process: started, waited for, ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "geminga_cli", *words]


@contextmanager
def running(*words: str) -> Generator[subprocess.Popen[str], None, None]:
    """A command that serves; ended and waited for at the end."""
    with subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for_words(process: subprocess.Popen[str], words: str) -> None:
    """Read its log up to the line with ``words``."""
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return
    raise AssertionError("".join(lines))
