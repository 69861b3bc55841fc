"""Proves that quantiles of durations are right to within a tenth, and values counted once."""

from __future__ import annotations

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_server.rates.durations import BOUNDS_MS, GROWTH, Durations, Histogram

SHARES = (0.0, 0.5, 0.95, 1.0)


def quantile(durations: Durations, share: float, *, with_present: bool = False) -> float:
    return durations.summary((share,), with_present=with_present).quantiles[share]


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50))
def test_a_quantile_is_at_most_a_tenth_too_long_and_never_too_short(values: list[float]) -> None:
    durations = Durations()
    for value in values:
        durations.add(value)
    durations.renew()
    values.sort()
    for share, found in durations.summary(SHARES).quantiles.items():
        rank = max(1, -int(-share * len(values) // 1))
        exact = max(BOUNDS_MS[0], values[rank - 1])
        assert exact * 0.999 <= found <= exact * GROWTH * 1.001


def test_quantiles_are_of_the_last_period_and_sums_of_all() -> None:
    durations = Durations()
    durations.add(100.0, times=3)
    durations.renew()
    durations.add(1.0)
    assert quantile(durations, 0.5) == pytest.approx(100, rel=0.1)
    durations.renew()
    assert quantile(durations, 0.5) == pytest.approx(1, rel=0.1)
    durations.renew()
    assert isnan(quantile(durations, 0.5))
    summary = durations.summary(())
    assert (summary.count, summary.sum_ms) == (4, 301.0)


def test_the_present_period_counts_where_that_is_asked_for() -> None:
    durations = Durations()
    durations.add(100.0, times=3)
    assert quantile(durations, 1.0, with_present=True) == pytest.approx(100, rel=0.1)
    durations.renew()
    durations.add(1.0, times=4)
    assert quantile(durations, 0.5, with_present=True) == pytest.approx(1, rel=0.1)
    assert quantile(durations, 1.0, with_present=True) == pytest.approx(100, rel=0.1)
    durations.renew()
    assert quantile(durations, 1.0, with_present=True) == pytest.approx(1, rel=0.1)


def test_what_takes_longer_than_anything_is_in_the_last_bucket() -> None:
    durations = Durations()
    durations.add(1e12)
    durations.renew()
    assert quantile(durations, 1.0) > 3_600_000


@pytest.mark.parametrize(("value", "bucket"), [(0.0, 0), (0.5, 0), (0.6, 1), (10, 1), (10.1, 2)])
def test_a_bound_belongs_to_its_own_bucket(value: float, bucket: int) -> None:
    histogram = Histogram((0.5, 10))
    histogram.add(value, 3)
    assert histogram.counts == [3 * (number == bucket) for number in range(3)]
    assert (histogram.count, histogram.sum) == (3, 3 * value)
