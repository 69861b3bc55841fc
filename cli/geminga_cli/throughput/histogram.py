"""Counts durations so that percentiles are known to within one percent. Pure.

The buckets are those of an HDR histogram: below 256 microseconds each has one, above them 128
buckets share each power of two. A value is counted with a shift and an addition, and the memory
does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import nan

_BITS = 8
_HALF = 1 << (_BITS - 1)
# 2 ** 40 microseconds are twelve days; what takes longer counts as that.
_SHIFTS_MAX = 40 - _BITS
_BUCKETS = (_SHIFTS_MAX + 2) * _HALF
VALUE_MAX_US = (1 << 40) - 1


class Histogram:
    """Durations in whole microseconds."""

    __slots__ = ("_counts", "count", "max_us", "sum_us")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.sum_us = 0
        self.max_us = 0

    def add(self, value_us: int) -> None:
        """Count one; a negative one, of clocks that disagree, counts as 0."""
        value_us = min(max(value_us, 0), VALUE_MAX_US)
        shift = max(value_us.bit_length() - _BITS, 0)
        self._counts[shift * _HALF + (value_us >> shift)] += 1
        self.count += 1
        self.sum_us += value_us
        self.max_us = max(self.max_us, value_us)

    def mean_us(self) -> float:
        """Their mean; NaN where there is none."""
        return self.sum_us / self.count if self.count else nan

    def percentiles_us(self, *shares: float) -> Iterator[float]:
        """For each share in percent, rising: what so many of them did not exceed; NaN where there
        is none."""
        bucket, seen = 0, self._counts[0]
        for share in shares:
            if not self.count:
                yield nan
                continue
            while seen < max(1.0, share / 100 * self.count):
                bucket += 1
                seen += self._counts[bucket]
            yield min(_highest(bucket), self.max_us)


def _highest(bucket: int) -> int:
    """The highest value that counts in that bucket."""
    shift = max(bucket // _HALF - 1, 0)
    return ((bucket - shift * _HALF + 1) << shift) - 1
