"""How tests are started, as far as it matters: a process ignores the signals its parent ignores."""

from __future__ import annotations

import signal
from collections.abc import Generator

import pytest


@pytest.fixture
def heeded() -> Generator[None]:
    """As in a terminal, however these tests were started: under nohup SIGHUP is ignored, and SIGINT
    in the background of a script."""
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, hangup)


@pytest.fixture
def ignored() -> Generator[None]:
    """As whoever uses nohup, or starts it in the background of a script, wants it."""
    numbers = (signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
