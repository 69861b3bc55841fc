"""Proves that token buckets let through what they say, and no more than what was owed at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.subscriptions.dispatch_rate import (
    ANY_NUMBER,
    DispatchLimit,
    DispatchRate,
    TokenBucket,
)


def test_a_bucket_is_full_at_first_and_fills_up_continuously() -> None:
    bucket = TokenBucket(10, 2, now_s=100)
    assert bucket.available(100) == 10
    bucket.take(10, 100)
    assert [bucket.available(at) for at in (100, 100.5, 101, 102, 1000)] == [0, 2, 5, 10, 10]


def test_what_is_owed_is_paid_back_first() -> None:
    bucket = TokenBucket(10, 1, now_s=0)
    bucket.take(35, 0)
    assert (bucket.available(0), bucket.wait_s(0)) == (-25, 2.6)
    assert bucket.wait_s(2) == pytest.approx(0.6)
    assert bucket.wait_s(3) == 0


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
            assert bucket.wait_s(now_s) <= 81 * period_s / count
    for index, (begin_s, _) in enumerate(passed):
        for end in range(index, len(passed)):
            sizes = [size for _, size in passed[index : end + 1]]
            bound = count + (passed[end][0] - begin_s) * count / period_s
            assert sum(sizes[:-1]) <= bound + 1e-6


def test_messages_and_bytes_are_counted_each_for_itself() -> None:
    rate = DispatchRate(DispatchLimit(messages=10, size_bytes=100), 0)
    assert rate.available(0) == (10, 100)
    rate.take(5, 300, 0)
    assert rate.available(0) == (5, -200)
    assert rate.wait_s(0) == pytest.approx(2.01)
    rate.take(40, 0, 0)
    assert rate.wait_s(0) == pytest.approx(3.6)


def test_what_is_not_limited_is_any_number() -> None:
    assert DispatchRate(DispatchLimit(messages=10), 0).available(0) == (10, ANY_NUMBER)
    assert DispatchRate(DispatchLimit(size_bytes=10), 0).available(0) == (ANY_NUMBER, 10)
    assert DispatchLimit(0, -1).is_unlimited
    assert not DispatchLimit(0, 1).is_unlimited


def test_a_relative_limit_lies_above_what_is_published() -> None:
    limit = DispatchLimit(messages=10, size_bytes=20, period_s=2, is_relative=True)
    rate = DispatchRate(limit, 0)
    rate.take(10, 20, 0)
    rate.published(100, 1000, 0)
    assert rate.available(1) == (105, 1010)
    absolute = DispatchRate(DispatchLimit(messages=10, size_bytes=20), 0)
    absolute.published(100, 1000, 0)
    assert absolute.available(9) == (10, 20)
