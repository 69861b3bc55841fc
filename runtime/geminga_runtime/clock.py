"""The time: the only module that asks the operating system for it.

Code that needs the time takes a ``Clock`` in its constructor. Waiting needs none: ``asyncio.sleep``
and ``asyncio.timeout`` follow the event loop, whose time is virtual under simulation.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two times that must not be confused: one for durations, one for timestamps."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back. For durations and deadlines."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump. For timestamps that leave the process."""
        ...


class SystemClock:
    """The operating system's clocks."""

    def monotonic(self) -> float:
        """Seconds since the machine started, or some such point."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        # Whole numbers all the way: a float would round some milliseconds.
        return time.time_ns() // 1_000_000
