"""The memory store is sorted, and a crash takes from it what was not flushed."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.index.store_conformance import StoreConformance

from geminga_bookie.index.memory_store import MemoryStore


class TestMemoryStore(StoreConformance):
    """The one in memory keeps to what every store must do."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


async def test_a_crash_loses_what_was_not_flushed() -> None:
    store = MemoryStore()
    store.write([(b"a", b"1"), (b"b", b"1")])
    await store.flush()
    store.write([(b"b", b"2"), (b"c", b"2")])
    assert store.get(b"c") == b"2"
    store.crash()
    assert store.get(b"b") == b"1"
    assert list(store.descend(b"z", b"")) == [(b"b", b"1"), (b"a", b"1")]
