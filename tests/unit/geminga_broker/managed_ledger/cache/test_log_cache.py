"""Proves that a log finds its own entries in the shared cache, and leaves nothing there."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.cache.log_cache import LogCache
from geminga_broker.managed_ledger.config import CacheConfig
from geminga_broker.managed_ledger.positions import Entry, Position


def entries(first: int, count: int) -> list[Entry]:
    return [(entry_id, b"%d" % entry_id, 1) for entry_id in range(first, first + count)]


class Wanted:
    """From where on entries were not sent yet, by ledger; from the fourth on where none is said."""

    def __init__(self, first: Mapping[int, int]) -> None:
        self.first = first

    def wanted_from(self, ledger_id: int) -> int:
        return self.first.get(ledger_id, 4)


def filled(cache: EntryCache) -> LogCache:
    """Ledgers 3 and 5 with four entries each; of ledger 5, two were not sent yet."""
    log = LogCache(cache, Wanted({5: 2}).wanted_from)
    for ledger_id in (3, 5):
        log.begin(ledger_id)
        for first in (0, 2):
            log.insert(ledger_id, entries(first, 2), 2, now_s=0)
    return log


def test_a_run_is_of_one_ledger_and_counted() -> None:
    cache = EntryCache(CacheConfig())
    log = filled(cache)
    assert [entry[0] for entry in log.run(Position(3, 1), 9)] == [1, 2, 3]
    assert log.run(Position(4, 0), 9) == []
    assert log.run(Position(5, 4), 9) == []
    assert (cache.hits, cache.misses) == (3, 2)
    assert cache.hit_bytes == 3


def test_single_entries_are_of_one_ledger_and_counted_where_they_are_found() -> None:
    cache = EntryCache(CacheConfig())
    log = filled(cache)
    assert [entry[0] for entry in log.entries([(3, 0), (3, 2), (3, 4)])] == [0, 2]
    assert log.entries([(4, 0)]) == []
    assert (cache.hits, cache.misses, cache.hit_bytes) == (2, 1, 2)


def test_what_was_sent_leaves_by_ledger() -> None:
    cache = EntryCache(CacheConfig(cache_age_max_s=1))
    log = filled(cache)
    cache.sweep(5)
    assert log.run(Position(3, 0), 9) == log.run(Position(5, 1), 9) == []
    assert [entry[0] for entry in log.run(Position(5, 2), 9)] == [2, 3]


def test_only_what_is_missing_before_the_cached_entries_is_read() -> None:
    cache = EntryCache(CacheConfig(cache_age_max_s=1))
    log = filled(cache)
    cache.sweep(5)
    assert list(log.missing(5, range(4))) == [0, 1]
    assert log.missing(5, [0, 3]) == [0]
    assert log.missing(5, [0]) == [0]
    assert log.missing(3, [0, 3]) == [0, 3]
    assert log.missing(9, [0, 3]) == [0, 3]


def test_forgotten_ledgers_and_a_closed_log_leave_nothing() -> None:
    cache = EntryCache(CacheConfig())
    log = filled(cache)
    log.forget(3)
    log.forget(4)
    assert cache.inserted - cache.evicted == 4
    log.clear()
    assert (cache.inserted - cache.evicted, cache.used_bytes) == (0, 0)


def test_nothing_of_a_log_that_was_closed_is_kept_alive() -> None:
    cache, log = EntryCache(CacheConfig(cache_bytes_max=1 << 20)), Wanted({})
    entries = LogCache(cache, log.wanted_from)
    entries.begin(7)
    entries.insert(7, [(0, b"a", 1)], 1, 0.0)
    is_alive = weakref.ref(log)
    entries.clear()
    assert is_alive() is not None
    del log, entries
    assert is_alive() is None
    assert cache.used_bytes == 0
