"""The read cache holds whole blocks, the newest ones, within its bound."""

from __future__ import annotations

from geminga_bookie.storage.read_cache import ReadCache


def test_every_entry_of_a_block_is_found() -> None:
    cache = ReadCache(100)
    cache.put(1, {3: b"three", 4: b"four"})
    assert cache.find(1, 3) == b"three"
    assert cache.find(1, 4) == b"four"
    assert cache.find(2, 3) is None
    assert (cache.hits, cache.misses, cache.entry_count, cache.used_bytes) == (2, 1, 2, 9)


def test_the_oldest_block_goes_first() -> None:
    cache = ReadCache(10)
    cache.put(1, {0: b"12345"})
    cache.put(1, {1: b"12345"})
    cache.put(1, {2: b"12345"})
    assert cache.find(1, 0) is None
    assert cache.find(1, 1) is not None
    assert cache.used_bytes == 10


def test_a_block_larger_than_the_cache_stays_till_the_next() -> None:
    cache = ReadCache(3)
    cache.put(1, {0: b"12345"})
    assert cache.find(1, 0) == b"12345"
    cache.put(1, {1: b"1"})
    assert cache.find(1, 0) is None
    assert cache.used_bytes == 1


def test_a_block_read_again_outlives_its_first_copy() -> None:
    cache = ReadCache(10)
    cache.put(1, {0: bytes([1, 2, 3])})
    cache.put(1, {0: bytes([1, 2, 3])})
    cache.put(1, {1: b"123456"})
    assert cache.find(1, 0) == bytes([1, 2, 3])
    assert cache.used_bytes == 9


def test_ledgers_do_not_mix_and_leave_nothing_behind() -> None:
    cache = ReadCache(10)
    cache.put(1, {0: b"12345"})
    cache.put(2, {0: b"67890"})
    assert (cache.find(1, 0), cache.find(2, 0)) == (b"12345", b"67890")
    cache.put(3, {0: b"1234567890"})
    assert (cache.find(1, 0), cache.find(2, 0)) == (None, None)
    assert (cache.entry_count, list(cache._entries)) == (1, [3])
