"""Standard input as a lifeline: we stop when the program that holds its other end has ended.

The kernel closes the other end of a pipe however its holder ends, so this works without a signal,
even where the holder was killed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

STANDARD_INPUT = 0
# Input is read only to be dropped; so many bytes are read at once.
INPUT_BYTES_MAX = 4096


def is_stream() -> bool:
    """Whether standard input has another end that can be closed: it is a pipe or a socket.

    Files and ``/dev/null``, which shells give to programs in the background, are at their end from
    the start and would stop us at once. A terminal that goes away sends a signal instead.
    """
    try:
        mode = os.fstat(STANDARD_INPUT).st_mode
    except OSError:  # we were started without one
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def drop_some() -> bool:
    """Wait for input and drop it; False at the end of input."""
    try:
        return os.read(STANDARD_INPUT, INPUT_BYTES_MAX) != b""
    except ConnectionError:  # the holder of a socket's other end was killed
        return False


def stop_at_end_of_input(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call ``stop`` once, at the end of standard input, which must be a stream (``is_stream``)."""

    def read() -> None:
        if not drop_some():
            # The end of a stream is readable for ever: without this, the loop would spin.
            loop.remove_reader(STANDARD_INPUT)
            stop()

    loop.add_reader(STANDARD_INPUT, read)
