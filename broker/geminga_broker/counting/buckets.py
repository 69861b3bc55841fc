"""How many values fell into which range: a histogram as plain numbers."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

# The last bucket counts what is above them all.
WRITE_LATENCY_BOUNDS_MS = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)


@dataclass(slots=True)
class Buckets:
    """Counts per bucket (one more than there are bounds), their number and the sum of values.

    Not cumulative: a value is counted in the first bucket whose bound it does not exceed.
    """

    counts: list[int]
    count: int = 0
    sum: float = 0.0


def write_latency_buckets() -> Buckets:
    """Empty buckets for milliseconds."""
    return Buckets([0] * (len(WRITE_LATENCY_BOUNDS_MS) + 1))


def count_write(buckets: Buckets, duration_ms: float, times: int) -> None:
    """So many writes took ``duration_ms``."""
    buckets.counts[bisect_left(WRITE_LATENCY_BOUNDS_MS, duration_ms)] += times
    buckets.count += times
    buckets.sum += duration_ms * times
