"""Proves that what readers keep is found until it is taken, and is bounded over all ledgers."""

from __future__ import annotations

from geminga_ledger.entries.read_ahead_cache import ENTRY_OVERHEAD_BYTES, ReadAheadCache

ENTRY_BYTES = 1000
ENTRY_COST = ENTRY_BYTES + ENTRY_OVERHEAD_BYTES


def entry(number: int) -> bytes:
    return bytes([number]) * ENTRY_BYTES


def test_what_is_kept_is_taken_once() -> None:
    surplus = ReadAheadCache(10 * ENTRY_COST)
    surplus.keep(1, {5: entry(5), 7: b""})
    assert (1, 5) in surplus
    assert (2, 5) not in surplus
    assert surplus.take(2, 5) is None
    assert surplus.take(1, 5) == entry(5)
    assert surplus.take(1, 5) is None
    assert surplus.take(1, 7) == b""
    assert surplus.size_bytes == 0


def test_what_was_kept_longest_makes_room_whatever_its_ledger() -> None:
    surplus = ReadAheadCache(3 * ENTRY_COST)
    for number in range(5):
        surplus.keep(number, {0: entry(number)})
    assert surplus.size_bytes == 3 * ENTRY_COST
    assert [number for number in range(5) if (number, 0) in surplus] == [2, 3, 4]


def test_an_entry_that_is_kept_again_counts_once() -> None:
    surplus = ReadAheadCache(2 * ENTRY_COST)
    for number in (1, 2, 1):
        surplus.keep(9, {number: entry(number)})
    assert surplus.size_bytes == 2 * ENTRY_COST
    surplus.keep(9, {3: entry(3)})
    assert [number for number in (1, 2, 3) if (9, number) in surplus] == [1, 3]


def test_an_entry_larger_than_the_bound_is_not_kept() -> None:
    surplus = ReadAheadCache(ENTRY_BYTES)
    surplus.keep(1, {1: entry(1)})
    assert surplus.take(1, 1) is None
    assert surplus.size_bytes == 0
