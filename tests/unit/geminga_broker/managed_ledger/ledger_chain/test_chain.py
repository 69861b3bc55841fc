"""Proves that position arithmetic over a chain of ledgers agrees with a plain list of entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain, LedgerSpan
from geminga_broker.managed_ledger.positions import EARLIEST, Position

sizes = st.lists(st.integers(0, 4), min_size=1, max_size=5)


def chain_of(counts: list[int]) -> tuple[LedgerChain, list[Position]]:
    spans = [
        LedgerSpan(3 * index + 1, entries, 10 * entries) for index, entries in enumerate(counts)
    ]
    entries = [Position(span.ledger_id, entry) for span in spans for entry in range(span.entries)]
    return LedgerChain(spans), entries


positions = st.builds(Position, st.integers(-1, 16), st.integers(-1, 6))


@given(sizes, positions)
def test_next_after_is_the_first_entry_greater_or_where_it_will_be(
    counts: list[int], position: Position
) -> None:
    chain, entries = chain_of(counts)
    found = chain.next_after(position)
    greater = [entry for entry in entries if entry > position]
    if greater:
        assert found == greater[0]
    else:
        last = chain.spans[-1]
        assert found == Position(last.ledger_id, last.entries)


@given(sizes, positions)
def test_previous_of_is_the_last_entry_less_or_the_gap_before_all(
    counts: list[int], position: Position
) -> None:
    chain, entries = chain_of(counts)
    smaller = [entry for entry in entries if entry < position]
    assert chain.previous_of(position) == (smaller[-1] if smaller else chain.before_first)


@given(sizes, positions, positions)
def test_entries_between_counts_what_lies_between(
    counts: list[int], after: Position, upto: Position
) -> None:
    chain, entries = chain_of(counts)
    assert chain.entries_between(after, upto) == sum(after < entry <= upto for entry in entries)
    assert chain.bytes_between(after, upto) == 10 * chain.entries_between(after, upto)


@given(sizes)
def test_the_last_confirmed_entry_is_the_greatest(counts: list[int]) -> None:
    chain, entries = chain_of(counts)
    first = chain.spans[0].ledger_id
    assert chain.last_confirmed == (entries[-1] if entries else Position(first, -1))
    assert chain.total_entries == len(entries)


def test_an_empty_chain_is_before_everything() -> None:
    chain = LedgerChain()
    assert chain.last_confirmed == chain.before_first == EARLIEST
    chain.append(LedgerSpan(7))
    assert chain.next_after(EARLIEST) == Position(7, 0)


def test_a_removed_ledger_counts_no_more() -> None:
    chain, _ = chain_of([2, 3])
    chain.remove(1)
    assert chain.before_first == Position(4, -1)
    assert chain.span(1) is None
    assert chain.total_entries == 3


LEDGERS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50)), min_size=1, max_size=6)


@given(ledgers=LEDGERS, bytes_max=st.integers(0, 2000))
def test_as_little_is_passed_as_leaves_no_more_than_that(
    ledgers: list[tuple[int, int]], bytes_max: int
) -> None:
    spans = [
        LedgerSpan(ledger_id, entries, entries * entry_bytes)
        for ledger_id, (entries, entry_bytes) in enumerate(ledgers)
    ]
    chain = LedgerChain(spans)
    position = chain.position_leaving(bytes_max)
    assert chain.bytes_between(position, chain.last_confirmed) <= bytes_max
    if position > chain.before_first:
        before = chain.previous_of(position)
        assert chain.bytes_between(before, chain.last_confirmed) > bytes_max


def test_an_empty_log_has_nothing_to_pass() -> None:
    assert LedgerChain().position_leaving(0) == LedgerChain().before_first
    assert LedgerChain([LedgerSpan(3)]).position_leaving(0) == Position(3, -1)
