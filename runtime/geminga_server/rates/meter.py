"""Rates from counters: growth per second over a period.

Stats show averages over a period (upstream: a minute). A timer calls ``tick``; hot paths only add
to plain integers.
"""

from __future__ import annotations

from functools import cache


@cache
def _zeros(count: int) -> tuple[float, ...]:
    """One tuple that all meters share: most of them never see their counters move."""
    return (0.0,) * count


class Meter:
    """Turns some growing counters into rates per second.

    ``now_s`` is None for a meter that begins in the middle of its topic's period: its first rates
    are averages over the whole period.
    """

    __slots__ = ("_at_s", "_counters", "rates")

    def __init__(self, now_s: float | None, *counters: int) -> None:
        # The last tick, and the counters then.
        self._at_s = now_s
        # A meter that is made when its counters are not 0 counts what comes after that.
        self._counters: tuple[float, ...] = counters if any(counters) else _zeros(len(counters))
        # Per second, in the order of the counters.
        self.rates = _zeros(len(counters))

    def tick(self, now_s: float, *counters: int, period_s: float = 0.0) -> None:
        """Take the counters' values now. The rates become those since the last tick; before the
        first one, those of the ``period_s`` that ends now."""
        elapsed_s = period_s if self._at_s is None else now_s - self._at_s
        # Two ticks in one instant: no rate can be told, and the last ones stay.
        if elapsed_s <= 0:
            return
        self._at_s = now_s
        # Idle, as most topics are: no tuple of its own for this meter.
        if counters == self._counters:
            self.rates = _zeros(len(counters))
            return
        self.rates = tuple(
            # A counter that fell began anew: no rate is negative.
            max(0.0, (now - before) / elapsed_s)
            for now, before in zip(counters, self._counters, strict=True)
        )
        self._counters = counters

    def elapsed_s(self, now_s: float) -> float:
        """Seconds since the last tick."""
        return 0.0 if self._at_s is None else now_s - self._at_s
