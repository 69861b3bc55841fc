"""How often something took how long: histograms, and the quantiles of a summary. Pure.

Adding a value is a search among the bounds and three additions, whatever the number of equal ones,
so that hot paths add a whole run at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

# The bounds by which quantiles are told: from a microsecond to two hours in milliseconds, each a
# tenth above the one before, so that a quantile is known to within a tenth whatever it is.
GROWTH = 1.1
BOUNDS_MS = tuple(0.001 * GROWTH**number for number in range(240))


class Histogram:
    """How many values lie between which ``bounds`` (rising), their number and their sum.

    A value counts in the first bucket whose bound it does not exceed: ``counts`` are not
    cumulative. The last bucket has what is above all bounds.
    """

    __slots__ = ("bounds", "count", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count ``value``, which came ``times`` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.sum += value * times


@dataclass(frozen=True, slots=True)
class Summary:
    """``quantiles``, in milliseconds, by the share of all that took no longer; NaN where there was
    none. ``count`` and ``sum_ms`` are since the start."""

    quantiles: Mapping[float, float]
    count: int
    sum_ms: float


class Durations:
    """Durations in milliseconds: their number and sum since the start, and the quantiles of the
    period that ended with the last ``renew``."""

    __slots__ = ("_present", "_shown", "count", "sum_ms")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        # Before the first period is over, it is shown as far as it has come.
        self._shown = self._present = Histogram(BOUNDS_MS)

    def add(self, duration_ms: float, times: int = 1) -> None:
        """Something took so long, ``times`` times."""
        self.count += times
        self.sum_ms += duration_ms * times
        self._present.add(duration_ms, times)

    def renew(self) -> None:
        """A period is over: its quantiles are shown from now on."""
        self._shown, self._present = self._present, Histogram(BOUNDS_MS)

    def summary(self, shares: Sequence[float], *, with_present: bool = False) -> Summary:
        """The quantiles for ``shares`` (rising, 0 to 1), of the last period, and of the present one
        too where that is asked for."""
        counts = self._shown.counts
        if with_present and self._present is not self._shown:
            counts = [old + new for old, new in zip(counts, self._present.counts, strict=True)]
        return Summary(_quantiles(counts, shares), self.count, self.sum_ms)


def _quantiles(counts: Sequence[int], shares: Sequence[float]) -> dict[float, float]:
    """The bound of the bucket that has the value at each of ``shares``."""
    total = sum(counts)
    if not total:
        return dict.fromkeys(shares, nan)
    found: dict[float, float] = {}
    bucket, seen = 0, counts[0]
    for share in shares:
        while seen < max(1, share * total):
            bucket += 1
            seen += counts[bucket]
        found[share] = BOUNDS_MS[min(bucket, len(BOUNDS_MS) - 1)]
    return found
