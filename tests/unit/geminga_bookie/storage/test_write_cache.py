"""The write cache holds two generations, finds the newest copy, and forgets what it may."""

from __future__ import annotations

from geminga_bookie.storage.write_cache import WriteCache


def test_entries_are_found_in_both_generations() -> None:
    cache = WriteCache()
    cache.entries_of(1)[0] = b"old"
    cache.seal()
    cache.entries_of(1)[1] = b"new"
    assert cache.find(1, 0) == b"old"
    assert cache.find(1, 1) == b"new"
    assert cache.find(1, 2) is None
    assert cache.find(2, 0) is None


def test_an_entry_added_twice_is_the_newer_one() -> None:
    cache = WriteCache()
    cache.entries_of(1)[0] = b"old"
    cache.seal()
    cache.entries_of(1)[0] = b"new"
    assert cache.find(1, 0) == b"new"


def test_the_last_entry_is_the_highest_of_both_generations() -> None:
    cache = WriteCache()
    assert cache.last_entry(1) == -1
    cache.entries_of(1)[7] = b""
    cache.seal()
    cache.entries_of(1)[3] = b""
    assert cache.last_entry(1) == 7
    cache.release()
    assert cache.last_entry(1) == 3


def test_sealing_takes_admissions_back_and_moves_the_bytes() -> None:
    cache = WriteCache()
    cache.writable[b"prefix"] = cache.entries_of(1)
    cache.writable[b"prefix"][0] = b"x"
    cache.active_bytes = 10
    assert cache.seal() == {1: {0: b"x"}}
    assert cache.writable == {}
    assert (cache.active_bytes, cache.sealed_bytes, cache.used_bytes) == (0, 10, 10)
    assert cache.entry_count == 1
    cache.release()
    assert cache.used_bytes == 0
    assert cache.find(1, 0) is None
    assert cache.entry_count == 0
