"""Proves that token buckets let through what they say, and no more than what was owed at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_server.rates.token_bucket import ANY_NUMBER, TokenBucket, TokenBuckets


def test_a_bucket_is_full_at_first_and_fills_up_continuously() -> None:
    bucket = TokenBucket(10, 2, now_s=100)
    assert bucket.available(100) == 10
    bucket.take(10, 100)
    assert [bucket.available(at) for at in (100, 100.5, 101, 102, 1000)] == [0, 2, 5, 10, 10]


def test_what_is_owed_is_paid_back_first() -> None:
    bucket = TokenBucket(10, 1, now_s=0)
    bucket.take(35, 0)
    assert (bucket.available(0), bucket.wait_s(0, until=1)) == (-25, 2.6)
    assert bucket.wait_s(2, until=1) == pytest.approx(0.6)
    assert bucket.wait_s(3, until=1) == 0


def test_who_needs_no_token_waits_until_none_is_owed() -> None:
    bucket = TokenBucket(10, 1, now_s=0)
    bucket.take(10, 0)
    assert bucket.wait_s(0, until=0) == 0
    bucket.take(5, 0)
    assert (bucket.wait_s(0, until=0), bucket.wait_s(0, until=1)) == (0.5, 0.6)


def test_what_is_0_or_below_is_no_limit_and_has_no_bucket() -> None:
    assert TokenBucket.limiting(0, 1, now_s=0) is None
    assert TokenBucket.limiting(-1, 1, now_s=0) is None
    bucket = TokenBucket.limiting(3, 1, now_s=0)
    assert bucket is not None
    assert bucket.available(0) == 3


def test_a_part_of_a_token_is_none() -> None:
    bucket = TokenBucket(1, 1000, now_s=0)
    bucket.take(1, 0)
    assert (bucket.available(999), bucket.available(1000)) == (0, 1)


def test_a_clock_that_goes_back_changes_nothing() -> None:
    bucket = TokenBucket(10, 1, now_s=100)
    bucket.take(10, 100)
    assert bucket.available(50) == 0


def test_another_rate_leaves_what_there_is() -> None:
    bucket = TokenBucket(10, 1, now_s=0)
    bucket.take(10, 0)
    bucket.change(100, 1, 0.5)
    assert bucket.available(0.5) == 5
    assert bucket.available(0.6) == pytest.approx(15)
    bucket.change(1, 1, 9)
    assert bucket.available(9) == 1


@given(
    count=st.integers(1, 50),
    period_s=st.integers(1, 10),
    wanted=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 80)), max_size=50),
)
def test_in_any_time_no_more_passes_than_the_rate_and_one_debt(
    count: int, period_s: int, wanted: list[tuple[float, int]]
) -> None:
    bucket = TokenBucket(count, period_s, now_s=0)
    now_s = 0.0
    passed: list[tuple[float, int]] = []
    for pause_s, size in wanted:
        now_s += pause_s
        if bucket.available(now_s) > 0:
            bucket.take(size, now_s)
            passed.append((now_s, size))
        else:
            assert bucket.wait_s(now_s, until=1) <= 81 * period_s / count
    for index, (begin_s, _) in enumerate(passed):
        for end in range(index, len(passed)):
            sizes = [size for _, size in passed[index : end + 1]]
            bound = count + (passed[end][0] - begin_s) * count / period_s
            assert sum(sizes[:-1]) <= bound + 1e-6


def test_of_two_buckets_the_one_that_is_limited_counts() -> None:
    buckets = TokenBuckets(0, 10, 1, now_s=0)
    buckets.take(1000, 15, 0)
    assert buckets.available(0) == (ANY_NUMBER, -5)
    assert buckets.wait_s(0, until=0) == 0.5


def test_of_two_buckets_the_emptier_one_decides() -> None:
    buckets = TokenBuckets(10, 100, 1, now_s=0)
    buckets.take(15, 110, 0)
    assert (buckets.wait_s(0, until=0), buckets.wait_s(0, until=1)) == (0.5, 0.6)
    buckets.change(5, 1000, 1, 0)
    assert buckets.wait_s(0, until=0) == 1
