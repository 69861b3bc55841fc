"""Proves that percentiles are within one percent of those of the sorted values."""

from __future__ import annotations

from math import ceil, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_cli.throughput.histogram import VALUE_MAX_US, Histogram

SHARES = (0.0, 50.0, 95.0, 99.0, 99.9, 100.0)


@given(st.lists(st.integers(0, VALUE_MAX_US), min_size=1, max_size=200))
def test_percentiles_are_those_of_the_sorted_values(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    ranked = sorted(values)
    for share, told in zip(SHARES, histogram.percentiles_us(*SHARES), strict=True):
        true = ranked[max(1, ceil(share / 100 * len(ranked))) - 1]
        assert true <= told <= true * 1.01
    assert (histogram.count, histogram.max_us) == (len(values), ranked[-1])
    assert histogram.mean_us() == pytest.approx(sum(values) / len(values))


def test_what_is_outside_of_its_range_counts_as_its_ends() -> None:
    histogram = Histogram()
    histogram.add(-5)
    histogram.add(VALUE_MAX_US + 5)
    assert list(histogram.percentiles_us(50, 100)) == [0, VALUE_MAX_US]


def test_nothing_has_no_percentiles() -> None:
    assert all(map(isnan, Histogram().percentiles_us(50, 99)))
    assert isnan(Histogram().mean_us())
