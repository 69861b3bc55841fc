"""Proves that what readers keep is found until it is taken, and is bounded over all ledgers."""

from __future__ import annotations

from geminga_ledger.entries.read_ahead_cache import ENTRY_OVERHEAD_BYTES, ReadAheadCache

ENTRY_BYTES = 1000
ENTRY_COST = ENTRY_BYTES + ENTRY_OVERHEAD_BYTES


def entry(number: int) -> bytes:
    return bytes([number]) * ENTRY_BYTES


def test_what_is_kept_is_taken_once() -> None:
    cache = ReadAheadCache(10 * ENTRY_COST)
    cache.keep(1, {5: entry(5), 7: b""})
    assert (1, 5) in cache
    assert (2, 5) not in cache
    assert cache.take(2, 5) is None
    assert cache.take(1, 5) == entry(5)
    assert cache.take(1, 5) is None
    assert cache.take(1, 7) == b""
    assert cache.size_bytes == 0


def test_what_was_kept_longest_makes_room_whatever_its_ledger() -> None:
    cache = ReadAheadCache(3 * ENTRY_COST)
    for number in range(5):
        cache.keep(number, {0: entry(number)})
    assert cache.size_bytes == 3 * ENTRY_COST
    assert [number for number in range(5) if (number, 0) in cache] == [2, 3, 4]


def test_an_entry_that_is_kept_again_counts_once() -> None:
    cache = ReadAheadCache(2 * ENTRY_COST)
    for number in (1, 2, 1):
        cache.keep(9, {number: entry(number)})
    assert cache.size_bytes == 2 * ENTRY_COST
    cache.keep(9, {3: entry(3)})
    assert [number for number in (1, 2, 3) if (9, number) in cache] == [1, 3]


def test_an_entry_larger_than_the_bound_is_not_kept() -> None:
    cache = ReadAheadCache(ENTRY_BYTES)
    cache.keep(1, {1: entry(1)})
    assert cache.take(1, 1) is None
    assert cache.size_bytes == 0
