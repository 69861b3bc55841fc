"""Conditions refuse numbers that cannot be meant."""

from __future__ import annotations

import pytest

from geminga_simulation.conditions import (
    CoordinationConditions,
    DiskConditions,
    NetworkConditions,
)


def test_the_defaults_are_fine() -> None:
    assert NetworkConditions().cut_probability == 0
    assert DiskConditions().sync_error_probability == 0
    assert CoordinationConditions().loss_probability == 0


def test_a_probability_lies_between_0_and_1() -> None:
    with pytest.raises(ValueError, match="cut_probability"):
        NetworkConditions(cut_probability=1.1)
    with pytest.raises(ValueError, match="torn_probability"):
        DiskConditions(torn_probability=-0.1)


def test_times_and_sizes_are_not_negative() -> None:
    with pytest.raises(ValueError, match="delay_s_max"):
        CoordinationConditions(delay_s_max=-1)
