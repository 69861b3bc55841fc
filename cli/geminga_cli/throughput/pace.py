"""Spreads events evenly over time. Pure."""

from __future__ import annotations

from math import inf


class Pace:
    """``rate`` events a second from ``start_s`` on; with a rate of 0 there is no limit.

    Events that came too late are made up for, so that the average is kept.
    """

    def __init__(self, rate: float, start_s: float) -> None:
        self._rate = rate
        self._start_s = start_s
        self._done = 0

    def due(self, now_s: float) -> float:
        """How many more events there should have been by now; infinitely many without a limit."""
        if not self._rate:
            return inf
        # The first one is due at once. The half hides what floats make of whole numbers.
        return int((now_s - self._start_s) * self._rate + 1e-6) + 1 - self._done

    def wait_s(self, now_s: float) -> float:
        """How long until the next event."""
        if not self._rate:
            return 0.0
        return max(0.0, self._start_s + self._done / self._rate - now_s)

    def add(self, events: int = 1) -> None:
        """So many events have happened."""
        self._done += events
