"""Waiting for what another process does: tests ask again and again, for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
# Long, because a test is to see that something happens, not how fast a busy machine is.
TIMEOUT_S = 60.0
POLL_S = 0.02


def eventually(
    ask: Callable[[], Value], is_wanted: Callable[[Value], bool], timeout_s: float = TIMEOUT_S
) -> Value:
    """The first answer that ``is_wanted`` accepts; fails with the last one after ``timeout_s``
    seconds."""
    deadline = time.monotonic() + timeout_s
    while not is_wanted(answer := ask()):
        assert time.monotonic() < deadline, f"still {answer!r} after {timeout_s} s"
        time.sleep(POLL_S)
    return answer
