"""Counts durations, so that percentiles are known to within one percent. Pure.

The buckets are those of an HDR histogram: below 256 microseconds, each microsecond has one; above,
each power of two is divided into 128. A value is counted with a shift and an addition, and the
memory does not grow with the number of values::

    value, microseconds     0 ... 255   256 ... 511   512 ... 1023   ...
    width of a bucket           1             2             4
    shift                       0             1             2
    buckets                 0 ... 255   256 ... 383   384 ... 511
"""

from __future__ import annotations

from collections.abc import Iterator
from math import nan

# A value keeps so many of its leading bits, hence the precision of one in 128.
_BITS = 8
# The buckets of a power of two: the first of these bits is always 1.
_HALF = 1 << (_BITS - 1)
# 2 ** 40 microseconds are twelve days; longer durations count as that.
_SHIFTS_MAX = 40 - _BITS
# Two halves for the values without a shift, and one for each shift.
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
        """Count one duration; a negative one, of clocks that disagree, counts as 0."""
        # Clamped first: the index below is then always within ``_counts``.
        value_us = min(max(value_us, 0), VALUE_MAX_US)
        shift = max(value_us.bit_length() - _BITS, 0)
        # 300 us have nine bits: shift 1, and 300 >> 1 = 150 is in bucket 128 + 150, together with
        # 301 us. ``value_us >> shift`` is 128 to 255 wherever there is a shift, so the buckets of a
        # power of two follow those of the power before.
        self._counts[shift * _HALF + (value_us >> shift)] += 1
        self.count += 1
        self.sum_us += value_us
        self.max_us = max(self.max_us, value_us)

    def mean_us(self) -> float:
        """The mean of all durations; NaN if there are none."""
        return self.sum_us / self.count if self.count else nan

    def percentiles_us(self, *shares: float) -> Iterator[float]:
        """For each share in percent, the duration that so many did not exceed; NaN without any.

        The shares must rise: one pass over the buckets finds all of them.
        """
        # ``seen``: how many durations are in the buckets up to and with ``bucket``. Both only grow
        # from one share to the next.
        bucket, seen = 0, self._counts[0]
        for share in shares:
            if not self.count:
                yield nan
                continue
            # At least one: the 0th percentile is the smallest duration.
            while seen < max(1.0, share / 100 * self.count):
                bucket += 1
                seen += self._counts[bucket]
            # The highest value of the bucket, unless no value was that high.
            shift = max(bucket // _HALF - 1, 0)
            highest_us = ((bucket - shift * _HALF + 1) << shift) - 1
            yield min(highest_us, self.max_us)
