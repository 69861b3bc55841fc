"""When a bookie stops taking adds for want of space, what it still takes, and when it goes on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_bookie.config import SpaceConfig
from geminga_bookie.decisions.disk_space import DiskState, judge, usage_of

LIMITS = SpaceConfig(
    disk_usage_threshold=0.95,
    disk_usage_warn_threshold=0.90,
    disk_usage_lwm_threshold=0.85,
    recovery_free_bytes_min=20,
)


def disk(used: int, *, was_full: bool = False, total: int = 1000) -> DiskState:
    return DiskState(total, total - used, was_full)


def test_the_defaults_are_those_of_pulsar() -> None:
    limits = SpaceConfig()
    assert (limits.disk_usage_threshold, limits.disk_usage_warn_threshold) == (0.95, 0.90)
    assert limits.low_water_mark == 0.95
    assert limits.disk_check_interval_s == 10
    assert not limits.compacts_when_full


def test_the_low_water_mark_is_at_most_the_mark_of_a_full_disk() -> None:
    assert SpaceConfig(disk_usage_threshold=0.8).low_water_mark == 0.8
    lower = SpaceConfig(disk_usage_threshold=0.8, disk_usage_lwm_threshold=0.7)
    assert lower.low_water_mark == 0.7


def test_room_enough_is_room_for_everything() -> None:
    verdict = judge(LIMITS, [disk(900)])
    assert verdict.is_full == (False,)
    assert verdict.takes_adds
    assert verdict.may_minor
    assert verdict.may_major


def test_a_nearly_full_disk_puts_major_compaction_off() -> None:
    verdict = judge(LIMITS, [disk(901)])
    assert (verdict.takes_adds, verdict.may_minor, verdict.may_major) == (True, True, False)


def test_exactly_at_the_threshold_it_is_not_full() -> None:
    assert judge(LIMITS, [disk(950)]).takes_adds
    assert not judge(LIMITS, [disk(951)]).takes_adds


def test_a_full_disk_takes_only_what_recovery_must_store_while_there_is_room_for_that() -> None:
    verdict = judge(LIMITS, [disk(951)])
    assert (verdict.takes_adds, verdict.takes_recovery_adds) == (False, True)
    assert (verdict.may_minor, verdict.may_major) == (False, False)
    assert not judge(LIMITS, [disk(981)]).takes_recovery_adds


def test_one_of_several_full_disks_only_gets_no_more() -> None:
    verdict = judge(LIMITS, [disk(960), disk(100)])
    assert verdict.is_full == (True, False)
    assert verdict.takes_adds
    assert not verdict.may_minor


def test_it_goes_on_below_the_low_water_mark_not_before() -> None:
    assert not judge(LIMITS, [disk(940, was_full=True)]).takes_adds
    assert not judge(LIMITS, [disk(850, was_full=True)]).takes_adds
    assert judge(LIMITS, [disk(849, was_full=True)]).takes_adds


def test_the_low_water_mark_is_of_all_disks_together() -> None:
    verdict = judge(LIMITS, [disk(960, was_full=True), disk(700, was_full=True)])
    assert verdict.is_full == (True, False)
    verdict = judge(LIMITS, [disk(960, was_full=True), disk(760, was_full=True)])
    assert verdict.is_full == (True, True)


def test_while_another_takes_adds_a_freed_disk_counts_at_once() -> None:
    verdict = judge(LIMITS, [disk(940, was_full=True), disk(100)])
    assert verdict.is_full == (False, False)


def test_compaction_on_full_disks_can_be_allowed() -> None:
    limits = SpaceConfig(compacts_when_full=True)
    verdict = judge(limits, [disk(999)])
    assert (verdict.takes_adds, verdict.may_minor, verdict.may_major) == (False, True, True)


def test_a_disk_that_holds_nothing_is_full() -> None:
    assert usage_of(0, 0) == 1
    assert not judge(LIMITS, [DiskState(0, 0, was_full=False)]).takes_adds


@given(st.lists(st.tuples(st.integers(0, 1000), st.booleans()), min_size=1, max_size=4))
def test_adds_are_taken_exactly_where_a_disk_is_not_full(states: list[tuple[int, bool]]) -> None:
    verdict = judge(LIMITS, [disk(used, was_full=was) for used, was in states])
    assert verdict.takes_adds == (not all(verdict.is_full))
    for (used, _), is_full in zip(states, verdict.is_full, strict=True):
        assert is_full or used <= 950
