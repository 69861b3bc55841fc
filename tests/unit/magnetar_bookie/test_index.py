"""The index finds blocks and ledgers again, whatever else is in its store."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.magnetar_bookie.fakes import KEY

from magnetar_bookie.formats.entry_log_v1 import BLOCK_SPAN_MAX, LedgerRecord
from magnetar_bookie.index import (
    FORMAT_VERSION,
    BlockLocation,
    Checkpoint,
    Counts,
    Index,
    JournalMark,
    LogEnd,
    SortedStore,
)
from magnetar_bookie.memory_store import MemoryStore

NOTHING = Checkpoint((), (), None, None, Counts())


@pytest.fixture
def store() -> SortedStore:
    return MemoryStore()


def at(ledger_id: int, first: int, last: int, log_number: int = 1) -> BlockLocation:
    return BlockLocation(ledger_id, first, last, log_number, first * 100, 50)


async def test_a_new_index_knows_nothing(store: SortedStore) -> None:
    index = Index(store)
    assert index.format_version is None
    assert index.journal_mark() is None
    assert index.log_end() is None
    assert index.counts() == Counts()
    assert index.ledger(1) is None
    assert list(index.blocks(1, 0)) == []


async def test_a_checkpoint_comes_back(store: SortedStore) -> None:
    mark, end = JournalMark(3, 4000, 77), LogEnd(9, 123_456_789_012)
    records = [LedgerRecord(1, KEY, is_fenced=True, last_entry=9)]
    blocks = [at(1, 0, 4), at(1, 5, 9)]
    await Index(store).commit(Checkpoint(blocks, records, end, mark, Counts(1, 10)))
    index = Index(store)
    assert index.format_version == FORMAT_VERSION
    assert index.journal_mark() == mark
    assert index.log_end() == end
    assert index.counts() == Counts(1, 10)
    assert index.ledger(1) == records[0]
    assert index.ledger(2) is None
    assert list(index.blocks(1, 7)) == [at(1, 5, 9)]


async def test_marks_that_are_not_told_stay(store: SortedStore) -> None:
    index = Index(store)
    mark, end = JournalMark(3, 4000, 77), LogEnd(9, 12)
    await index.commit(Checkpoint((), (), end, mark, Counts()))
    await index.commit(NOTHING)
    assert (index.journal_mark(), index.log_end()) == (mark, end)


async def test_blocks_of_other_ledgers_are_never_found(store: SortedStore) -> None:
    index = Index(store)
    await index.commit_blocks([at(1, 0, 9), at(3, 0, 9)])
    assert list(index.blocks(2, 5)) == []
    assert list(index.blocks(2**62, 5)) == []
    assert index.format_version is None


async def test_of_blocks_that_overlap_all_are_found_the_likeliest_first(store: SortedStore) -> None:
    index = Index(store)
    await index.commit_blocks([at(1, 0, 99), at(1, 50, 50), at(1, 0, 3, log_number=2)])
    assert list(index.blocks(1, 60)) == [at(1, 0, 99)]
    assert list(index.blocks(1, 50)) == [at(1, 50, 50), at(1, 0, 99)]
    assert list(index.blocks(1, 2)) == [at(1, 0, 3, log_number=2), at(1, 0, 99)]


async def test_a_lookup_ends_where_no_block_can_reach(store: SortedStore) -> None:
    index = Index(store)
    far = at(1, 0, BLOCK_SPAN_MAX - 1)
    await index.commit_blocks([far])
    assert list(index.blocks(1, BLOCK_SPAN_MAX - 1)) == [far]
    assert list(index.blocks(1, BLOCK_SPAN_MAX)) == []


async def test_ledgers_are_listed(store: SortedStore) -> None:
    index = Index(store)
    records = [LedgerRecord(number, KEY, is_fenced=False, last_entry=0) for number in (1, 5, 300)]
    await index.commit(Checkpoint([at(1, 0, 9)], records, None, None, Counts()))
    assert list(index.ledgers()) == records[::-1]


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 20)), max_size=30), st.integers(0, 250)
)
@settings(max_examples=100)
def test_every_block_that_spans_an_entry_is_found(
    spans: list[tuple[int, int]], entry_id: int
) -> None:
    store = MemoryStore()
    blocks = [at(1, first, first + more, number) for number, (first, more) in enumerate(spans)]
    store.write([pair for block in blocks for pair in [_pair(block)]])
    found = list(Index(store).blocks(1, entry_id))
    wanted = [block for block in blocks if block.first_entry <= entry_id <= block.last_entry]
    assert sorted(found, key=lambda block: block.log_number) == wanted


def _pair(block: BlockLocation) -> tuple[bytes, bytes]:
    from magnetar_bookie.index import _block_pair

    return _block_pair(block)
