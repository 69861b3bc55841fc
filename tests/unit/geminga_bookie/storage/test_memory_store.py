"""The memory store is sorted, and a crash takes from it what was not flushed."""

from __future__ import annotations

from geminga_bookie.storage.memory_store import MemoryStore


async def test_a_crash_loses_what_was_not_flushed() -> None:
    store = MemoryStore()
    store.write([(b"a", b"1"), (b"b", b"1")])
    await store.flush()
    store.write([(b"b", b"2"), (b"c", b"2")])
    assert store.get(b"c") == b"2"
    store.crash()
    assert store.get(b"b") == b"1"
    assert list(store.descend(b"z", b"")) == [(b"b", b"1"), (b"a", b"1")]


def test_both_ends_of_a_descent_belong_to_it() -> None:
    store = MemoryStore()
    store.write([(key, key) for key in (b"d", b"a", b"c", b"b")])
    assert [key for key, _ in store.descend(b"c", b"b")] == [b"c", b"b"]
    assert list(store.descend(b"bb", b"ba")) == []
