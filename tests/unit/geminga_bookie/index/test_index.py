"""The index finds blocks and ledgers again, whatever else is in its store."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_bookie.fakes import KEY

from geminga_bookie.formats.entry_log_v1 import BLOCK_SPAN_MAX, LedgerRecord
from geminga_bookie.formats.index_v2 import (
    FORMAT_VERSION,
    BlockLocation,
    Counts,
    LogEnd,
    LogUsage,
    block_pair,
)
from geminga_bookie.formats.journal_v1 import JournalMark
from geminga_bookie.index.index import Change, Index, SortedStore
from geminga_bookie.index.memory_store import MemoryStore

NOTHING = Change()


@pytest.fixture
def store() -> SortedStore:
    return MemoryStore()


def at(ledger_id: int, first: int, last: int, log_number: int = 1) -> BlockLocation:
    return BlockLocation(ledger_id, first, last, log_number, first * 100, 50, last - first + 1)


async def test_a_new_index_knows_nothing(store: SortedStore) -> None:
    index = Index(store)
    assert index.format_version is None
    assert index.journal_marks() == ()
    assert index.log_end() is None
    assert index.counts() == Counts()
    assert index.ledger(1) is None
    assert list(index.blocks(1, 0)) == []


async def test_a_checkpoint_comes_back(store: SortedStore) -> None:
    marks, end = (JournalMark(3, 4000, 77), JournalMark(1, 2, 3)), LogEnd(9, 123_456_789_012)
    records = [LedgerRecord(1, KEY, is_fenced=True, last_entry=9)]
    blocks = [at(1, 0, 4), at(1, 5, 9)]
    await Index(store).commit(
        Change(
            blocks=blocks, ledgers=records, log_end=end, journal_marks=marks, counts=Counts(1, 10)
        )
    )
    index = Index(store)
    assert index.format_version == FORMAT_VERSION
    assert index.journal_marks() == marks
    assert index.log_end() == end
    assert index.counts() == Counts(1, 10)
    assert index.ledger(1) == records[0]
    assert index.ledger(2) is None
    assert list(index.blocks(1, 7)) == [at(1, 5, 9)]


async def test_marks_that_are_not_told_stay(store: SortedStore) -> None:
    index = Index(store)
    marks, end = (JournalMark(3, 4000, 77), JournalMark(1, 2, 3)), LogEnd(9, 12)
    await index.commit(Change(log_end=end, journal_marks=marks, counts=Counts(1, 2)))
    await index.commit(NOTHING)
    assert (index.journal_marks(), index.log_end()) == (marks, end)
    assert index.counts() == Counts(1, 2)


async def test_blocks_of_other_ledgers_are_never_found(store: SortedStore) -> None:
    index = Index(store)
    index.note(Change(blocks=[at(1, 0, 9), at(3, 0, 9)]))
    assert list(index.blocks(2, 5)) == []
    assert list(index.blocks(2**62, 5)) == []
    assert index.format_version is None


async def test_of_blocks_that_overlap_all_are_found_the_likeliest_first(store: SortedStore) -> None:
    index = Index(store)
    index.note(Change(blocks=[at(1, 0, 99), at(1, 50, 50), at(1, 0, 3, log_number=2)]))
    assert list(index.blocks(1, 60)) == [at(1, 0, 99)]
    assert list(index.blocks(1, 50)) == [at(1, 50, 50), at(1, 0, 99)]
    assert list(index.blocks(1, 2)) == [at(1, 0, 3, log_number=2), at(1, 0, 99)]


async def test_a_lookup_ends_where_no_block_can_reach(store: SortedStore) -> None:
    index = Index(store)
    far = at(1, 0, BLOCK_SPAN_MAX - 1)
    index.note(Change(blocks=[far]))
    assert list(index.blocks(1, BLOCK_SPAN_MAX - 1)) == [far]
    assert list(index.blocks(1, BLOCK_SPAN_MAX)) == []


async def test_ledgers_are_listed(store: SortedStore) -> None:
    index = Index(store)
    records = [LedgerRecord(number, KEY, is_fenced=False, last_entry=0) for number in (1, 5, 300)]
    await index.commit(Change(blocks=[at(1, 0, 9)], ledgers=records))
    assert list(index.ledgers()) == records[::-1]
    assert list(index.ledgers(299)) == records[1::-1]


async def test_what_is_removed_is_found_no_more(store: SortedStore) -> None:
    index = Index(store)
    records = [LedgerRecord(number, KEY, is_fenced=False, last_entry=9) for number in (1, 2)]
    blocks = [at(1, 0, 4), at(1, 5, 9), at(2, 0, 9, log_number=7)]
    await index.commit(Change(blocks=blocks, ledgers=records))
    await index.commit(Change(removed_blocks=blocks[:2], removed_ledgers=[1]))
    again = Index(store)
    assert list(again.ledgers()) == records[1:]
    assert list(again.blocks_of(1)) == []
    assert not again.knows(blocks[0])
    assert list(again.blocks_of(2)) == blocks[2:]


async def test_how_much_of_a_log_is_of_use_follows_every_change(store: SortedStore) -> None:
    index = Index(store)
    one, two = at(1, 0, 4), at(1, 5, 9)
    moved = at(1, 0, 4, log_number=2)
    await index.commit(Change(blocks=[one, two], log_end=LogEnd(1, 900)))
    assert index.logs == Index(store).logs == {1: LogUsage(100, 900)}
    index.note(Change(blocks=[moved], removed_blocks=[one], log_end=LogEnd(2, 60)))
    assert index.logs == Index(store).logs == {1: LogUsage(50, 900), 2: LogUsage(50, 60)}
    await index.commit(Change(removed_blocks=[two]))
    assert index.logs[1] == LogUsage(0, 900)
    await index.commit(Change(removed_logs=[1]))
    assert index.logs == Index(store).logs == {2: LogUsage(50, 60)}


async def test_what_is_only_noted_goes_with_a_crash_and_stays_with_a_commit() -> None:
    store = MemoryStore()
    index = Index(store)
    index.note(Change(blocks=[at(1, 0, 4)]))
    store.crash()
    assert list(Index(store).blocks_of(1)) == []
    index = Index(store)
    index.note(Change(blocks=[at(1, 0, 4)]))
    await index.commit(NOTHING)
    store.crash()
    assert list(Index(store).blocks_of(1)) == [at(1, 0, 4)]


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 20)), max_size=30), st.integers(0, 250)
)
@settings(max_examples=100)
def test_every_block_that_spans_an_entry_is_found(
    spans: list[tuple[int, int]], entry_id: int
) -> None:
    store = MemoryStore()
    blocks = [at(1, first, first + more, number) for number, (first, more) in enumerate(spans)]
    store.write([block_pair(block) for block in blocks])
    found = list(Index(store).blocks(1, entry_id))
    wanted = [block for block in blocks if block.first_entry <= entry_id <= block.last_entry]
    assert sorted(found, key=lambda block: block.log_number) == wanted
