"""How long things take, kept in a few numbers: for the quantiles of a summary. Pure.

Durations fall into buckets of which each is a tenth wider than the one before, so that a quantile
is known to within a tenth of itself, whatever the durations are. Adding one is a logarithm and two
additions; many equal ones are added at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, nan

# From ten microseconds to an hour and a half.
FIRST_MS = 0.01
GROWTH = 1.1
BUCKETS = 210
_PER_LOG = 1 / log(GROWTH)


class Durations:
    """Durations in milliseconds. ``count`` and ``sum_ms`` are since the beginning, quantiles of
    the period that ended with the last ``renew``."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self._present = [0] * BUCKETS
        self._shown = self._present

    def add(self, duration_ms: float, times: int = 1) -> None:
        """Something took so long, ``times`` times."""
        self.count += times
        self.sum_ms += duration_ms * times
        bucket = int(log(duration_ms / FIRST_MS) * _PER_LOG) + 1 if duration_ms > FIRST_MS else 0
        self._present[min(bucket, BUCKETS - 1)] += times

    def renew(self) -> None:
        """A period is over: its quantiles are shown from now on."""
        self._shown, self._present = self._present, [0] * BUCKETS

    def quantiles(self, shares: Sequence[float]) -> tuple[float, ...]:
        """The durations that ``shares`` (rising, 0 to 1) of all did not exceed; NaN for none."""
        total = sum(self._shown)
        if not total:
            return (nan,) * len(shares)
        found: list[float] = []
        bucket, seen = 0, self._shown[0]
        for share in shares:
            while seen < max(1, share * total):
                bucket += 1
                seen += self._shown[bucket]
            found.append(FIRST_MS * GROWTH**bucket)
        return tuple(found)
