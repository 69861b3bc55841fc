"""Proves that the entry cache serves runs, keeps its bound, and lets go of what is asked."""

from __future__ import annotations

from magnetar_broker.log.entry_cache import ENTRY_OVERHEAD_BYTES, EntryCache, LedgerCache
from magnetar_broker.log.positions import Entry


def run_of(first: int, count: int, size: int = 100) -> list[Entry]:
    return [(entry, bytes(size), 1) for entry in range(first, first + count)]


def insert(cache: EntryCache, ledger: LedgerCache, first: int, count: int, now: float = 0) -> None:
    cache.insert(ledger, run_of(first, count), 100 * count, now)


def test_a_run_begins_at_the_entry_asked_for() -> None:
    cache, ledger = EntryCache(bytes_max=1 << 20), LedgerCache(0)
    insert(cache, ledger, 0, 5)
    insert(cache, ledger, 5, 5)
    assert [entry[0] for entry in ledger.run(3, 4)] == [3, 4, 5, 6]
    assert ledger.run(10, 4) == []
    assert cache.entry_count == 10


def test_the_oldest_run_leaves_when_the_bound_is_passed() -> None:
    run_cost = 5 * (100 + ENTRY_OVERHEAD_BYTES)
    cache, ledger = EntryCache(bytes_max=2 * run_cost), LedgerCache(0)
    for first in (0, 5, 10):
        insert(cache, ledger, first, 5)
    assert ledger.run(4, 1) == []
    assert [entry[0] for entry in ledger.run(5, 2)] == [5, 6]
    assert cache.used_bytes == 2 * run_cost
    assert cache.evicted == 5


def test_old_runs_leave_though_there_is_room() -> None:
    cache, ledger = EntryCache(bytes_max=1 << 20), LedgerCache(0)
    insert(cache, ledger, 0, 5, now=1.0)
    insert(cache, ledger, 5, 5, now=2.0)
    cache.evict_older_than(1.5)
    assert ledger.run(0, 1) == []
    assert len(ledger.run(5, 9)) == 5


def test_a_discarded_ledger_gives_its_bytes_back_and_others_stay() -> None:
    cache, gone, kept = EntryCache(bytes_max=1 << 20), LedgerCache(0), LedgerCache(0)
    insert(cache, gone, 0, 5)
    insert(cache, kept, 0, 3)
    insert(cache, gone, 5, 5)
    cache.discard(gone)
    assert gone.entries == []
    assert cache.used_bytes == 3 * (100 + ENTRY_OVERHEAD_BYTES)
    assert cache.entry_count == 3
    assert len(kept.run(0, 9)) == 3
