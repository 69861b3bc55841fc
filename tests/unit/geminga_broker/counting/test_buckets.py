"""Proves that a value is counted once, in the first bucket that holds it."""

from __future__ import annotations

import pytest

from geminga_broker.counting.buckets import (
    WRITE_LATENCY_BOUNDS_MS,
    count_write,
    write_latency_buckets,
)


@pytest.mark.parametrize(
    ("duration_ms", "bucket"),
    [(0.0, 0), (0.5, 0), (0.6, 1), (1000.0, 8), (1000.1, len(WRITE_LATENCY_BOUNDS_MS))],
)
def test_a_bound_belongs_to_its_own_bucket(duration_ms: float, bucket: int) -> None:
    buckets = write_latency_buckets()
    count_write(buckets, duration_ms, 3)
    assert buckets.counts == [3 * (number == bucket) for number in range(len(buckets.counts))]
    assert (buckets.count, buckets.sum) == (3, 3 * duration_ms)
