"""The newest entries in memory, so that tailing consumers never touch a bookie.

One bound for the whole broker. Entries come in runs, as they were confirmed, and leave oldest run
first when the bound is passed or when they are too old to be read at the tail. A run is the unit of
accounting: nothing is counted an entry at a time.
"""

from __future__ import annotations

from collections import deque

from magnetar_broker.log.positions import Entry

CACHE_BYTES_DEFAULT = 96 * 1024 * 1024
# What an entry costs beside its payload: the tuple, the bytes object's head, list and int slots.
ENTRY_OVERHEAD_BYTES = 160


class LedgerCache:
    """Consecutive entries of one ledger: ``entries[0]`` is entry ``first_entry_id``."""

    __slots__ = ("entries", "first_entry_id")

    def __init__(self, first_entry_id: int) -> None:
        self.first_entry_id = first_entry_id
        self.entries: list[Entry] = []

    def run(self, entry_id: int, count_max: int) -> list[Entry]:
        """Up to ``count_max`` entries from ``entry_id`` on; empty when that one is not cached."""
        start = entry_id - self.first_entry_id
        if start < 0:
            return []
        return self.entries[start : start + count_max]

    def drop_front(self, count: int) -> None:
        """Forget the oldest ``count`` entries."""
        del self.entries[:count]
        self.first_entry_id += count


class EntryCache:
    """The broker's cache: a bound on bytes over all topics, counters for the metrics."""

    def __init__(self, *, bytes_max: int = CACHE_BYTES_DEFAULT) -> None:
        self._bytes_max = bytes_max
        self._runs: deque[tuple[float, LedgerCache, int, int]] = deque()
        self.used_bytes = 0
        self.hits = 0
        self.misses = 0
        self.hit_bytes = 0
        self.missed_bytes = 0
        self.inserted = 0
        self.evicted = 0

    @property
    def entry_count(self) -> int:
        """Entries held now."""
        return self.inserted - self.evicted

    def insert(
        self, cache: LedgerCache, entries: list[Entry], size_bytes: int, now_s: float
    ) -> None:
        """Append a confirmed run of ``size_bytes`` payload bytes to ``cache``."""
        count = len(entries)
        assert entries[0][0] == cache.first_entry_id + len(cache.entries), "runs must join"
        cache.entries.extend(entries)
        cost = size_bytes + count * ENTRY_OVERHEAD_BYTES
        self._runs.append((now_s, cache, count, cost))
        self.used_bytes += cost
        self.inserted += count
        if self.used_bytes > self._bytes_max:
            self._shrink_to(self._bytes_max)

    def discard(self, cache: LedgerCache) -> None:
        """Forget all of ``cache``: its log was closed or deleted."""
        dropped = [run for run in self._runs if run[1] is cache]
        if dropped:
            self._runs = deque(run for run in self._runs if run[1] is not cache)
            self.used_bytes -= sum(run[3] for run in dropped)
            self.evicted += sum(run[2] for run in dropped)
        cache.drop_front(len(cache.entries))

    def evict_older_than(self, deadline_s: float) -> None:
        """Forget runs that came in before ``deadline_s``."""
        while self._runs and self._runs[0][0] < deadline_s:
            self._evict_oldest()

    def _shrink_to(self, bytes_max: int) -> None:
        while self.used_bytes > bytes_max and len(self._runs) > 1:
            self._evict_oldest()

    def _evict_oldest(self) -> None:
        _, cache, count, cost = self._runs.popleft()
        self.used_bytes -= cost
        self.evicted += count
        cache.drop_front(count)
