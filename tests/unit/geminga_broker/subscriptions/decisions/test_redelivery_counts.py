"""Proves that counts are right, and that what is kept of them is bounded and found again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.decisions.redelivery_counts import RUNS_KEPT_MAX, RedeliveryCounts
from geminga_protocol.records.topics.cursor import PositionRecord
from geminga_protocol.records.topics.redelivery_counts import CountedRun, properties_of_runs

CHAIN = LedgerChain([LedgerSpan(3, 20), LedgerSpan(5, 20)])
positions = st.builds(Position, st.sampled_from([3, 5]), st.integers(0, 19))


def counts_of(given_back: list[Position]) -> RedeliveryCounts:
    counts = RedeliveryCounts()
    for position in given_back:
        counts.increment(position)
    return counts


def nothing_acknowledged() -> Acknowledged:
    return Acknowledged(CHAIN, CHAIN.before_first)


@given(st.lists(positions), st.lists(positions))
def test_counts_are_found_again_where_they_fit(
    given_back: list[Position], acknowledged: list[Position]
) -> None:
    counts = counts_of(given_back)
    for position in acknowledged:
        counts.forget(position)
    restored = RedeliveryCounts()
    restored.restore(counts.runs(), CHAIN, nothing_acknowledged())
    left = [each for each in given_back if each not in acknowledged]
    assert len(restored) == len(set(left))
    for ledger_id in (3, 5):
        for entry_id in range(20):
            position = Position(ledger_id, entry_id)
            assert restored.get(position) == counts.get(position) == left.count(position)


def test_neighbours_with_one_count_are_one_run() -> None:
    counts = counts_of([Position(3, entry) for entry in (4, 2, 3, 7, 7, 8, 8)] + [Position(5, 9)])
    assert counts.runs() == [
        CountedRun(3, 2, 4, 1),
        CountedRun(3, 7, 8, 2),
        CountedRun(5, 9, 9, 1),
    ]


def test_a_run_ends_with_its_ledger() -> None:
    counts = counts_of([Position(3, 0), Position(5, 1)])
    assert counts.runs() == [CountedRun(3, 0, 0, 1), CountedRun(5, 1, 1, 1)]


def test_of_too_many_runs_the_highest_counts_are_kept() -> None:
    given_back = [Position(3, entry) for entry in (0, 2, 4, 6, 8)]
    counts = counts_of(given_back + given_back[1:2] + given_back[3:] * 2)
    assert counts.runs(runs_max=3) == [
        CountedRun(3, 2, 2, 2),
        CountedRun(3, 6, 6, 3),
        CountedRun(3, 8, 8, 3),
    ]


def test_of_too_many_entries_those_are_kept_that_were_given_back_first() -> None:
    counts = counts_of([Position(3, entry) for entry in (9, 8, 0, 9)])
    assert counts.runs(entries_max=2) == [CountedRun(3, 8, 8, 1), CountedRun(3, 9, 9, 2)]


def test_what_is_acknowledged_meanwhile_is_not_restored() -> None:
    counts = counts_of([Position(3, entry) for entry in range(4)])
    acknowledged = nothing_acknowledged()
    acknowledged.acknowledge_upto(Position(3, 1))
    acknowledged.acknowledge(3, 3)
    restored = RedeliveryCounts()
    restored.restore(counts.runs(), CHAIN, acknowledged)
    assert restored.runs() == [CountedRun(3, 2, 2, 1)]


def test_what_the_mark_has_passed_is_forgotten_without_a_word() -> None:
    counts = counts_of([Position(3, entry) for entry in (2, 1, 3, 0)])
    counts.forget_passed(Position(3, 2), entries_max=2)
    assert counts.runs() == [CountedRun(3, 0, 0, 1), CountedRun(3, 3, 3, 1)]
    counts.forget_passed(Position(3, 2))
    assert counts.runs() == [CountedRun(3, 3, 3, 1)]


def test_no_counts_are_no_runs() -> None:
    assert RedeliveryCounts().runs() == []


def test_entries_that_are_not_there_are_not_restored() -> None:
    restored = RedeliveryCounts()
    restored.restore(
        [CountedRun(3, 18, 1 << 62, 1), CountedRun(4, 0, 1 << 62, 1)], CHAIN, nothing_acknowledged()
    )
    assert restored.runs() == [CountedRun(3, 18, 19, 1)]


def test_what_is_restored_is_bounded() -> None:
    restored = RedeliveryCounts()
    restored.restore([CountedRun(3, 0, 19, 1)], CHAIN, nothing_acknowledged(), entries_max=7)
    assert len(restored) == 7


def test_every_change_is_told() -> None:
    counts = RedeliveryCounts()
    told: list[int] = []
    counts.on_changed = lambda: told.append(len(counts))
    counts.increment(Position(3, 0))
    counts.increment(Position(3, 0))
    counts.forget(Position(3, 1))
    counts.forget(Position(3, 0))
    counts.clear()
    assert told == [1, 1, 0]


def test_what_is_kept_is_small_however_many_were_given_back() -> None:
    chain = LedgerChain([LedgerSpan(1 << 40, 50_000)])
    counts = counts_of([Position(1 << 40, entry) for entry in range(0, 50_000, 2)])
    kept = properties_of_runs(counts.runs())
    assert len(kept) == RUNS_KEPT_MAX
    assert len(PositionRecord(mark_delete=(1, 1), properties=kept).encode()) < 32 * 1024
    restored = RedeliveryCounts()
    restored.restore(counts.runs(), chain, Acknowledged(chain, chain.before_first))
    assert len(restored) == RUNS_KEPT_MAX
