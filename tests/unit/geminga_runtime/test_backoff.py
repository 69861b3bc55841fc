"""Delays double up to their limit, with jitter in the upper half, and repeat with their seed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_runtime.backoff import Backoff


@given(st.integers(), st.floats(0.001, 1.0), st.floats(1.0, 100.0))
def test_each_delay_lies_in_the_upper_half_of_a_ceiling_that_doubles(
    seed: int, first_s: float, limit_s: float
) -> None:
    backoff = Backoff(first_s, limit_s, Random(seed))
    ceiling_s = first_s
    for _ in range(20):
        assert ceiling_s / 2 <= backoff.next_s() <= ceiling_s
        ceiling_s = min(limit_s, ceiling_s * 2)


def test_after_a_reset_it_begins_again() -> None:
    backoff = Backoff(1.0, 64.0, Random(1))
    for _ in range(5):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= 1.0


def test_the_same_seed_gives_the_same_delays() -> None:
    one, other = (Backoff(0.1, 5.0, Random(7)) for _ in range(2))
    assert [one.next_s() for _ in range(9)] == [other.next_s() for _ in range(9)]


@pytest.mark.parametrize(("first_s", "limit_s"), [(0.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
def test_delays_that_make_no_sense_are_our_own_mistake(first_s: float, limit_s: float) -> None:
    with pytest.raises(AssertionError):
        Backoff(first_s, limit_s, Random(1))
