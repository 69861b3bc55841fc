"""What counts as garbage, and when it is looked for: upstream's rules, on facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga_bookie.config import GarbageConfig
from geminga_bookie.decisions.garbage import (
    CompactionKind,
    PlannedRound,
    RoundPlanner,
    dead_logs,
    has_room,
    is_over_replicated,
    is_worth_leaving,
    logs_to_compact,
    parents_of,
    unlisted,
)
from geminga_bookie.formats.index_v2 import LogUsage
from geminga_protocol.records.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState

LIMITS = GarbageConfig(
    gc_interval_s=1,
    gc_over_replicated_interval_s=1000,
    minor_compaction_interval_s=10,
    minor_compaction_threshold=0.2,
    major_compaction_interval_s=100,
    major_compaction_threshold=0.5,
)


def next_round(rounds: RoundPlanner, now_s: float, **what: bool) -> PlannedRound:
    told = {"is_forced": False, "may_minor": True, "may_major": True} | what
    return rounds.next(now_s, **told)


def metadata(
    *ensembles: tuple[str, ...], state: LedgerState = LedgerState.CLOSED
) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=1,
        fragments=tuple(
            Fragment(number * 10, ensemble) for number, ensemble in enumerate(ensembles)
        ),
        state=state,
    )


def test_the_defaults_are_those_of_pulsar() -> None:
    limits = GarbageConfig()
    assert limits.gc_interval_s == 900
    assert (limits.minor_compaction_interval_s, limits.minor_compaction_threshold) == (3600, 0.2)
    assert (limits.major_compaction_interval_s, limits.major_compaction_threshold) == (86_400, 0.5)
    assert limits.gc_over_replicated_interval_s == 86_400


def test_nothing_is_due_at_once() -> None:
    rounds = RoundPlanner(LIMITS, 50.0)
    assert next_round(rounds, 51.0) == PlannedRound(
        CompactionKind.NONE, is_over_replication_due=False
    )


def test_each_thing_is_due_after_its_interval_and_then_not_again() -> None:
    rounds = RoundPlanner(LIMITS, 0.0)
    assert next_round(rounds, 10.0).compaction is CompactionKind.MINOR
    assert next_round(rounds, 19.9).compaction is CompactionKind.NONE
    assert next_round(rounds, 20.0).compaction is CompactionKind.MINOR
    assert next_round(rounds, 1000.0) == PlannedRound(
        CompactionKind.MAJOR, is_over_replication_due=True
    )
    assert next_round(rounds, 1001.0) == PlannedRound(
        CompactionKind.NONE, is_over_replication_due=False
    )


def test_a_major_compaction_counts_as_a_minor_one() -> None:
    rounds = RoundPlanner(LIMITS, 0.0)
    assert next_round(rounds, 100.0).compaction is CompactionKind.MAJOR
    assert next_round(rounds, 109.0).compaction is CompactionKind.NONE
    assert next_round(rounds, 110.0).compaction is CompactionKind.MINOR


def test_a_forced_round_does_all_that_is_configured() -> None:
    rounds = RoundPlanner(LIMITS, 0.0)
    forced = next_round(rounds, 1.0, is_forced=True)
    assert forced == PlannedRound(CompactionKind.MAJOR, is_over_replication_due=True)
    off = RoundPlanner(
        GarbageConfig(
            gc_interval_s=1,
            gc_over_replicated_interval_s=0,
            minor_compaction_interval_s=0,
            major_compaction_interval_s=0,
        ),
        0.0,
    )
    forced = next_round(off, 1.0, is_forced=True)
    assert forced == PlannedRound(CompactionKind.NONE, is_over_replication_due=False)


def test_a_full_disk_puts_compaction_off() -> None:
    rounds = RoundPlanner(LIMITS, 0.0)
    assert next_round(rounds, 100.0, may_major=False).compaction is CompactionKind.MINOR
    assert (
        next_round(rounds, 200.0, may_major=False, may_minor=False).compaction
        is CompactionKind.NONE
    )
    assert next_round(rounds, 201.0).compaction is CompactionKind.MAJOR


@pytest.mark.parametrize(
    ("compaction", "threshold"),
    [(CompactionKind.NONE, 0.0), (CompactionKind.MINOR, 0.2), (CompactionKind.MAJOR, 0.5)],
)
def test_each_compaction_has_its_threshold(compaction: CompactionKind, threshold: float) -> None:
    assert RoundPlanner(LIMITS, 0.0).threshold(compaction) == threshold


def test_ledgers_are_listed_by_their_parents() -> None:
    assert parents_of([3, 10_004, 7, 1 << 40]) == {
        "/ledgers/00/0000": [3, 7],
        "/ledgers/00/0001": [10_004],
        "/ledgers/000/0001/0995/1162": [1 << 40],
    }


def test_what_is_not_among_the_children_is_unlisted() -> None:
    assert unlisted([3, 7, 8], ["L0003", "L0008", "L0009"]) == [7]
    assert unlisted([3, 7], []) == [3, 7]


def test_a_closed_ledger_with_all_copies_elsewhere_is_over_replicated() -> None:
    live = {"a", "b", "c", "d", "e"}
    assert is_over_replicated(metadata(("a", "b"), ("b", "c")), "d", live)
    assert not is_over_replicated(metadata(("a", "b"), ("b", "d")), "d", live)


@pytest.mark.parametrize("lost", ["a", "b", "c"])
def test_copies_on_a_bookie_that_is_not_there_are_no_copies(lost: str) -> None:
    live = {"a", "b", "c", "d"} - {lost}
    assert not is_over_replicated(metadata(("a", "b"), ("b", "c")), "d", live)


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_a_ledger_that_is_not_closed_is_never_over_replicated(state: LedgerState) -> None:
    assert not is_over_replicated(metadata(("a", "b"), state=state), "d", {"a", "b", "d"})


def test_logs_of_no_use_are_dead_but_not_the_one_that_is_written() -> None:
    logs = {1: LogUsage(0, 100), 2: LogUsage(10, 100), 4: LogUsage(0, 100)}
    assert dead_logs([1, 2, 3, 4], logs, 4) == [1, 3]


def test_the_emptiest_logs_are_compacted_first() -> None:
    logs = {
        1: LogUsage(40, 100),
        2: LogUsage(10, 100),
        3: LogUsage(50, 100),
        4: LogUsage(0, 100),
        5: LogUsage(1, 100),
    }
    assert logs_to_compact(logs, 5, 0.5) == [2, 1]
    assert logs_to_compact(logs, 6, 0.2) == [5, 2]
    assert logs_to_compact(logs, 6, 0.0) == []


def test_copies_take_at_most_half_of_what_is_free() -> None:
    assert has_room(LogUsage(166, 59_000_000), 50_000)
    assert not has_room(LogUsage(166, 59_000_000), 30_000)
    assert has_room(LogUsage(10_000_000, 59_000_000), 20_100_000)
    assert not has_room(LogUsage(10_000_000, 59_000_000), 20_000_000)


def test_the_log_that_is_written_to_is_left_only_for_much_room() -> None:
    assert is_worth_leaving(LogUsage(166, 59_000_000), 0.5)
    assert not is_worth_leaving(LogUsage(30_000_000, 59_000_000), 0.5)
    assert not is_worth_leaving(LogUsage(0, 1_000_000), 0.5)
    assert not is_worth_leaving(LogUsage(166, 59_000_000), 0.0)


def test_a_compaction_that_is_turned_off_has_no_threshold_on_a_full_disk_either() -> None:
    assert RoundPlanner(LIMITS, 0.0).highest_threshold == 0.5
    assert (
        RoundPlanner(replace(LIMITS, major_compaction_interval_s=0), 0.0).highest_threshold == 0.2
    )
    off = replace(LIMITS, major_compaction_interval_s=0, minor_compaction_interval_s=0)
    assert RoundPlanner(off, 0.0).highest_threshold == 0
