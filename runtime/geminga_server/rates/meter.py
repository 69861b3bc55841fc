"""Rates from counters: what grew since the last look, per second.

Stats show averages over a period (upstream: a minute). A ``Meter`` is looked at by a timer, never
on the hot path: whoever counts only adds to plain integers.
"""

from __future__ import annotations

from functools import cache


def _kept(counters: tuple[int, ...]) -> tuple[float, ...]:
    return counters if any(counters) else _zeros(len(counters))


@cache
def _zeros(count: int) -> tuple[float, ...]:
    """The same tuple for all: most of what is metered stands still."""
    return (0.0,) * count


class Meter:
    """Turns some growing counters into rates per second.

    ``now_s`` is None for one that begins in the middle of its topic's period: its first rates are
    averages over the whole of it.
    """

    __slots__ = ("_at_s", "_counters", "rates")

    def __init__(self, now_s: float | None, *counters: int) -> None:
        self._at_s = now_s
        self._counters: tuple[float, ...] = _kept(counters)
        self.rates = _zeros(len(counters))

    def tick(self, now_s: float, *counters: int, period_s: float = 0.0) -> None:
        """The counters' values now: the rates become those since the last tick, or those of the
        ``period_s`` that ends now where there was none yet."""
        elapsed_s = period_s if self._at_s is None else now_s - self._at_s
        if elapsed_s <= 0:
            return
        self._at_s = now_s
        if counters == self._counters:
            self.rates = _zeros(len(counters))
            return
        self.rates = tuple(
            max(0.0, (now - before) / elapsed_s)
            for now, before in zip(counters, self._counters, strict=True)
        )
        self._counters = counters

    def elapsed_s(self, now_s: float) -> float:
        """Seconds since the last tick."""
        return 0.0 if self._at_s is None else now_s - self._at_s
