"""Proves that acknowledgements with holes agree with a plain set, in any order, over ledgers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged, bits_set
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.positions import Entry, Position

LEDGERS = {2: 5, 3: 0, 5: 4, 9: 6}
ENTRIES = [Position(ledger, entry) for ledger, count in LEDGERS.items() for entry in range(count)]
STRANGERS = [
    Position(*each)
    for each in ((2, 5), (2, -1), (4, 0), (99, 0), (-1, -1), (9, 6), (1 << 62, 3), (3, 0))
]


def chain() -> LedgerChain:
    return LedgerChain(LedgerSpan(ledger, count) for ledger, count in LEDGERS.items())


def begun() -> Acknowledged:
    return Acknowledged(chain(), Position(2, -1))


def expected_mark(done: set[Position]) -> Position:
    mark = Position(2, -1)
    for entry in ENTRIES:
        if entry not in done:
            break
        mark = entry
    return mark


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["one", "upto"]), st.sampled_from(ENTRIES)),
        st.tuples(st.just("many"), st.lists(st.sampled_from([*ENTRIES, *STRANGERS]), max_size=12)),
    ),
    max_size=25,
)


@given(steps)
def test_any_order_of_acknowledgements_leaves_what_a_set_would(
    taken: list[tuple[str, Position | list[Position]]],
) -> None:
    acknowledged = begun()
    done: set[Position] = set()
    for kind, entry in taken:
        if isinstance(entry, list):
            fresh = set(entry) & set(ENTRIES) - done
            assert acknowledged.acknowledge_all(sorted(entry)) == len(fresh)
            done |= fresh
        elif kind == "one":
            assert acknowledged.acknowledge(*entry) == (entry not in done)
            done.add(entry)
        else:
            acknowledged.acknowledge_upto(entry)
            done.update(each for each in ENTRIES if each <= entry)
        assert acknowledged.mark_delete == expected_mark(done)
        beyond = [each for each in done if each > acknowledged.mark_delete]
        assert acknowledged.ahead_count == len(beyond)
    for entry in ENTRIES:
        assert acknowledged.is_acknowledged(*entry) == (entry in done)
    for ledger, count in LEDGERS.items():
        for first in range(count):
            for step in (1, 2):
                run: list[Entry] = [(entry, b"", 1) for entry in range(first, count, step)]
                left = [each for each in run if Position(ledger, each[0]) not in done]
                assert acknowledged.still_open(ledger, run) == left
            if Position(ledger, first) > acknowledged.mark_delete:
                ids = [each for each in range(first, count) if Position(ledger, each) not in done]
                assert list(acknowledged.open_ids(ledger, first, count, 5)) == ids[:5]
                assert acknowledged.run_end(ledger, first) == (ids[0] if ids else count)


@given(st.sets(st.sampled_from(ENTRIES)))
def test_ranges_restore_exactly_what_they_were_taken_from(done: set[Position]) -> None:
    acknowledged = begun()
    for entry in sorted(done, reverse=True):
        acknowledged.acknowledge(*entry)
    again = Acknowledged(chain(), acknowledged.mark_delete)
    again.restore(acknowledged.ranges())
    assert again.mark_delete == acknowledged.mark_delete
    assert again.ahead_count == acknowledged.ahead_count
    assert list(again.ranges()) == list(acknowledged.ranges())


@given(st.sets(st.sampled_from(ENTRIES)))
def test_bits_restore_exactly_what_they_were_taken_from(done: set[Position]) -> None:
    acknowledged = begun()
    for entry in sorted(done, reverse=True):
        acknowledged.acknowledge(*entry)
    again = Acknowledged(chain(), acknowledged.mark_delete)
    again.restore(bits=acknowledged.bits())
    assert again.mark_delete == acknowledged.mark_delete
    assert list(again.ranges()) == list(acknowledged.ranges())
    assert again.ahead_count == acknowledged.ahead_count


def test_ranges_are_those_that_upstream_wrote() -> None:
    """The recorded cursor ``billing``: entries 0, 1, 2, 5, 6, 9, 15 of twenty."""
    acknowledged = Acknowledged(LedgerChain([LedgerSpan(5, 20)]), Position(5, -1))
    for entry in (0, 1, 2, 5, 6, 9, 15):
        acknowledged.acknowledge(5, entry)
    assert acknowledged.mark_delete == Position(5, 2)
    assert list(acknowledged.ranges()) == [
        (Position(5, 4), Position(5, 6)),
        (Position(5, 8), Position(5, 9)),
        (Position(5, 14), Position(5, 15)),
    ]


def test_entries_that_are_not_in_the_log_change_nothing() -> None:
    acknowledged = begun()
    for each in STRANGERS:
        assert not acknowledged.acknowledge(*each)
    assert not acknowledged.acknowledge_all(sorted(STRANGERS))
    assert acknowledged.mark_delete == Position(2, -1)
    assert not acknowledged.acknowledge_upto(Position(1, 7))


def test_an_acknowledgement_beyond_the_end_stops_at_the_end() -> None:
    acknowledged = begun()
    assert acknowledged.acknowledge_upto(Position(9, 1_000_000))
    assert acknowledged.mark_delete == Position(9, 5)


def test_a_batch_is_acknowledged_when_no_index_is_left() -> None:
    acknowledged = begun()
    assert not acknowledged.acknowledge_batch_indexes(2, 0, (0b110,))
    assert acknowledged.remaining_indexes(2, 0) == (0b110,)
    assert not acknowledged.acknowledge_batch_indexes(2, 0, (0b011,))
    assert acknowledged.remaining_indexes(2, 0) == (0b010,)
    assert acknowledged.acknowledge_batch_indexes(2, 0, (0b101,))
    assert acknowledged.mark_delete == Position(2, 0)
    assert acknowledged.remaining_indexes(2, 0) is None


def test_passing_a_partly_acknowledged_batch_forgets_its_indexes() -> None:
    acknowledged = begun()
    acknowledged.acknowledge_batch_indexes(2, 1, (1,))
    acknowledged.acknowledge_upto(Position(2, 3))
    assert acknowledged.partial_entries == {}


def test_of_many_acknowledged_together_no_batch_is_left() -> None:
    acknowledged = begun()
    for entry_id in (1, 3, 4):
        acknowledged.acknowledge_batch_indexes(2, entry_id, (1,))
    assert acknowledged.acknowledge_all([(2, 1), (2, 2), (2, 3)]) == 3
    assert list(acknowledged.partial_entries) == [(2, 4)]


def test_a_reset_forgets_everything_beyond() -> None:
    acknowledged = begun()
    acknowledged.acknowledge(9, 3)
    acknowledged.reset(Position(2, 1))
    assert acknowledged.mark_delete == Position(2, 1)
    assert not acknowledged.ahead_count


def test_words_are_counted_as_the_signed_numbers_of_the_wire() -> None:
    assert bits_set((-1, 0b101)) == 66


def test_a_million_holes_fit_in_memory_and_are_found_quickly() -> None:
    spans = [LedgerSpan(ledger, 50_000) for ledger in range(40)]
    acknowledged = Acknowledged(LedgerChain(spans), Position(0, -1))
    for ledger in range(40):
        for entry in range(1, 50_000, 2):
            acknowledged.acknowledge(ledger, entry)
    assert acknowledged.ahead_count == 1_000_000
    assert sum(1 for _ in acknowledged.ranges()) == 1_000_000
    acknowledged.acknowledge(0, 0)
    assert acknowledged.mark_delete == Position(0, 1)


def test_batches_that_the_log_does_not_have_are_not_remembered() -> None:
    chain = LedgerChain([LedgerSpan(3, 4)])
    acknowledged = Acknowledged(chain, Position(3, -1))
    for position in ((3, 4), (9, 0), (3, -1)):
        assert not acknowledged.acknowledge_batch_indexes(*position, (1,))
    assert not acknowledged.partial_entries


def test_a_range_may_span_ledgers() -> None:
    """Upstream joins ranges over ledgers where it keeps them as a range set."""
    acknowledged = begun()
    acknowledged.restore([(Position(2, 2), Position(9, 0))])
    assert list(acknowledged.ranges()) == [
        (Position(2, 2), Position(2, 4)),
        (Position(5, -1), Position(5, 3)),
        (Position(9, -1), Position(9, 0)),
    ]


def test_of_ranges_that_make_no_sense_only_what_the_log_has_is_taken() -> None:
    acknowledged = begun()
    acknowledged.restore(
        [
            (Position(9, 4), Position(9, 1_000_000)),
            (Position(5, -9), Position(5, -5)),
            (Position(5, -9), Position(5, 0)),
            (Position(9, 3), Position(2, 1)),
            (Position(4, 0), Position(4, 7)),
        ]
    )
    assert list(acknowledged.ranges()) == [
        (Position(5, -1), Position(5, 0)),
        (Position(9, 4), Position(9, 5)),
    ]


def test_an_ack_set_longer_than_any_batch_is_not_remembered() -> None:
    acknowledged = begun()
    assert not acknowledged.acknowledge_batch_indexes(2, 0, (1,) * 100_000)
    assert not acknowledged.partial_entries


# What an acknowledgement costs: the same anywhere, in any order

COUNT = 5_000
LARGE = 4_000_000


def swapped_pairs() -> list[int]:
    """Each second one joins the mark: as many moves of the mark as may be."""
    return [entry ^ 1 for entry in range(COUNT)]


def shuffled() -> list[int]:
    entries = list(range(COUNT))
    Random(1).shuffle(entries)
    return entries


def backwards() -> list[int]:
    return list(range(COUNT - 1, -1, -1))


def cpu_s(acknowledged: Acknowledged, entries: Iterable[int]) -> float:
    """The CPU time of acknowledging ``entries`` after the mark, one by one."""
    mark = acknowledged.mark_delete
    began_s = time.process_time()
    for entry in entries:
        acknowledged.acknowledge(mark[0], mark[1] + 1 + entry)
    return time.process_time() - began_s


@pytest.mark.parametrize("order", [swapped_pairs, backwards, shuffled])
@pytest.mark.parametrize("hole", [None, 2 * COUNT], ids=["nothing beyond", "a hole beyond"])
def test_an_acknowledgement_costs_no_more_deep_in_a_ledger(
    order: Callable[[], list[int]], hole: int | None
) -> None:
    """What walks over the ledger for each of them takes a hundred times as long."""

    def least_cpu_s(begin: int) -> float:
        taken_s: list[float] = []
        for _ in range(3):
            chain = LedgerChain([LedgerSpan(0, LARGE + 4 * COUNT)])
            acknowledged = Acknowledged(chain, Position(0, -1))
            acknowledged.acknowledge_upto(Position(0, begin - 1))
            if hole is not None:
                acknowledged.acknowledge(0, begin + hole)
            taken_s.append(cpu_s(acknowledged, order()))
        return min(taken_s)

    assert least_cpu_s(LARGE) < 5 * least_cpu_s(0)


def test_an_acknowledgement_costs_no_more_with_many_batches_begun() -> None:
    """What looks through the batches for each of them takes a hundred times as long."""

    def least_cpu_s(batches: int) -> float:
        taken_s: list[float] = []
        for _ in range(3):
            chain = LedgerChain([LedgerSpan(0, COUNT), LedgerSpan(1, batches)])
            acknowledged = Acknowledged(chain, Position(0, -1))
            for batch in range(batches):
                acknowledged.acknowledge_batch_indexes(1, batch, (1,))
            taken_s.append(cpu_s(acknowledged, swapped_pairs()))
        return min(taken_s)

    assert least_cpu_s(10_000) < 5 * least_cpu_s(0)
