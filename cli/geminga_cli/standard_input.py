"""Standard input as a lifeline: when the program that holds its other end has ended, so do we.

The kernel closes the other end of a pipe however its holder ends: no signal has to be sent.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

STANDARD_INPUT = 0
# What is written to it is read and dropped, so much at once.
INPUT_BYTES_MAX = 4096


def is_stream() -> bool:
    """Whether standard input has another end, which can be closed: it is a pipe or a socket.

    A file and ``/dev/null``, which shells give to what they run in the background, are at their end
    from the start; a terminal that goes away sends a signal.
    """
    try:
        mode = os.fstat(STANDARD_INPUT).st_mode
    except OSError:  # we were started without one
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def drop_some() -> bool:
    """Wait for input and drop it; False when there is no more to come."""
    try:
        return os.read(STANDARD_INPUT, INPUT_BYTES_MAX) != b""
    except ConnectionError:  # the holder of a socket's other end was killed
        return False


def stop_at_end_of_input(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call ``stop`` once, when standard input, which is a stream, has ended."""

    def read() -> None:
        if not drop_some():
            loop.remove_reader(STANDARD_INPUT)
            stop()

    loop.add_reader(STANDARD_INPUT, read)
