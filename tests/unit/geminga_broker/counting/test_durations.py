"""Proves that quantiles of durations are right to within a tenth, of one period at a time."""

from __future__ import annotations

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.counting.durations import FIRST_MS, GROWTH, Durations

SHARES = (0.0, 0.5, 0.95, 1.0)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50))
def test_a_quantile_is_at_most_a_tenth_too_long_and_never_too_short(values: list[float]) -> None:
    durations = Durations()
    for value in values:
        durations.add(value)
    durations.renew()
    values.sort()
    for share, quantile in zip(SHARES, durations.quantiles(SHARES), strict=True):
        rank = max(1, -int(-share * len(values) // 1))
        exact = max(FIRST_MS, values[rank - 1])
        assert exact * 0.999 <= quantile <= exact * GROWTH * 1.001


def test_quantiles_are_of_the_last_period_and_sums_of_all() -> None:
    durations = Durations()
    durations.add(100.0, times=3)
    durations.renew()
    durations.add(1.0)
    assert durations.quantiles((0.5,))[0] == pytest.approx(100, rel=0.1)
    durations.renew()
    assert durations.quantiles((0.5,))[0] == pytest.approx(1, rel=0.1)
    durations.renew()
    assert isnan(durations.quantiles((0.5,))[0])
    assert (durations.count, durations.sum_ms) == (4, 301.0)


def test_what_takes_longer_than_anything_is_in_the_last_bucket() -> None:
    durations = Durations()
    durations.add(1e12)
    durations.renew()
    assert durations.quantiles((1.0,))[0] > 3_600_000
