"""Commands of `geminga` that serve: each a process that tests start, wait for, and end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import IO


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "geminga_cli", *words]


@contextmanager
def running(*words: str) -> Generator[subprocess.Popen[str], None, None]:
    """A command that serves; at the end it is told to end, and waited for."""
    with subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for_words(process: subprocess.Popen[str], words: str) -> None:
    """Read its log up to the line with ``words``.

    What follows is read, too, and dropped: a process whose pipe is full would stop working.
    """
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            Thread(target=_read_on, args=(process.stderr,), daemon=True).start()
            return
    raise AssertionError("".join(lines))


def _read_on(log: IO[str]) -> None:
    with suppress(ValueError):  # the pipe is closed
        for _ in log:
            pass
