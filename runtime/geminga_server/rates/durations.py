"""Histograms of durations, and the quantiles of a summary.

Adding a value is a search among the bounds and three additions, however many equal values there
are, so that hot paths add a whole run at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

# The bounds of the buckets from which quantiles are read: from a microsecond to two hours, in
# milliseconds. Each is a tenth above the one before, so that every quantile is known to within a
# tenth.
GROWTH = 1.1
BOUNDS_MS = tuple(0.001 * GROWTH**number for number in range(240))


class Histogram:
    """Counts of values between ``bounds`` (rising), with their number and their sum.

    A value counts in the first bucket whose bound it does not exceed: ``counts`` are not
    cumulative. The last bucket has the values above all bounds.
    """

    __slots__ = ("bounds", "count", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count ``value``, ``times`` times."""
        # A value that equals a bound belongs to the bucket below it, as Prometheus's ``le`` says.
        self.counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.sum += value * times


@dataclass(frozen=True, slots=True)
class Summary:
    """The quantiles of a period, and totals since the start."""

    # In milliseconds, by the share of durations that are not longer; NaN where there were none.
    quantiles: Mapping[float, float]
    # Since the start.
    count: int
    sum_ms: float


class Durations:
    """Durations in milliseconds: their number and sum since the start, and the quantiles of the
    period that ended with the last ``renew``."""

    __slots__ = ("_present", "_shown", "count", "sum_ms")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        # The period whose quantiles are shown, and the present one. They are the same until the
        # first period is over, so that it is shown from its beginning.
        self._shown = self._present = Histogram(BOUNDS_MS)

    def add(self, duration_ms: float, times: int = 1) -> None:
        """Count a duration, ``times`` times."""
        self.count += times
        self.sum_ms += duration_ms * times
        self._present.add(duration_ms, times)

    def renew(self) -> None:
        """End a period: its quantiles are shown from now on."""
        # The histogram that ended is only read from here on.
        self._shown, self._present = self._present, Histogram(BOUNDS_MS)

    def summary(self, shares: Sequence[float], *, with_present: bool = False) -> Summary:
        """The quantiles for ``shares`` (rising, 0 to 1) of the last period, or of the last and the
        present one together."""
        counts = self._shown.counts
        if with_present and self._present is not self._shown:
            counts = [old + new for old, new in zip(counts, self._present.counts, strict=True)]
        total = sum(counts)
        quantiles = dict.fromkeys(shares, nan)
        if total:
            # One walk through the buckets: a quantile is the bound of the bucket in which the count
            # of values reaches its share.
            bucket, seen = 0, counts[0]
            for share in shares:
                # Ends: ``seen`` reaches ``total`` in the last bucket, and no share is above 1. At
                # least one value, so that a share of 0 is the smallest one.
                while seen < max(1, share * total):
                    bucket += 1
                    seen += counts[bucket]
                # Values above all bounds are shown as the highest bound: their size is not kept.
                quantiles[share] = BOUNDS_MS[min(bucket, len(BOUNDS_MS) - 1)]
        return Summary(quantiles, self.count, self.sum_ms)
