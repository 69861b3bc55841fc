"""The newest entries in memory, so that tailing consumers never touch a bookie.

One bound for the whole broker. Entries come in runs, as they were confirmed, and a run is the unit
of accounting: nothing is counted an entry at a time. Only a run that is long beside the bound, as
when bookies answer after a pause, is taken into the books in pieces, so that little more leaves
than must. What leaves, and when:

- what every subscription has been sent leaves soon (``age_max_s``);
- what one still has to be sent stays longer (``wanted_age_max_s``), for a consumer that is behind;
- when the bound is passed, first the former leaves whatever its age, then the oldest of all, until
  the bound's ``watermark`` is reached: so it is not passed again at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from geminga_broker.managed_ledger.config import CacheConfig
from geminga_broker.managed_ledger.positions import INT64_MAX, Entry, EntryId

# What an entry costs beside its payload: the tuple, the bytes object's head, list and int slots.
ENTRY_OVERHEAD_BYTES = 160
# Runs longer than this part of the bound are divided: eviction misses the watermark by no more.
PIECES_OF_BOUND = 64
# Turns of runs that left early are swept out of the queue when they are so many, and half of it.
PASSED_TURNS_KEPT = 1024


def nobody() -> int:
    """What nobody has still to be sent begins here."""
    return INT64_MAX


class LedgerCache:
    """Consecutive entries of one ledger: ``entries[0]`` is entry ``first_entry_id``.

    ``wanted_from`` tells the first entry that some subscription has still to be sent.
    """

    __slots__ = ("cost_bytes", "entries", "first_entry_id", "passed_turns", "runs", "wanted_from")

    def __init__(self, first_entry_id: int, wanted_from: Callable[[], int] = nobody) -> None:
        self.first_entry_id = first_entry_id
        self.wanted_from = wanted_from
        self.entries: list[Entry] = []
        # The EntryCache's books: (when it came, entries, bytes) of each run, oldest first, their
        # bytes together, and how many turns in its queue belong to runs that left early.
        self.runs: deque[tuple[float, int, int]] = deque()
        self.cost_bytes = 0
        self.passed_turns = 0

    def run(self, entry_id: int, count_max: int) -> list[Entry]:
        """Up to ``count_max`` entries from ``entry_id`` on; empty when that one is not cached."""
        start = entry_id - self.first_entry_id
        if start < 0:
            return []
        return self.entries[start : start + count_max]

    def pick(self, ids: Sequence[EntryId]) -> list[Entry]:
        """The entries of ``ids``, in order, up to the first that is not cached."""
        entries, first = self.entries, self.first_entry_id
        if ids[0][1] < first:
            return []
        if ids[-1][1] - first >= len(entries):
            ids = [each for each in ids if each[1] - first < len(entries)]
        return [entries[entry_id - first] for _, entry_id in ids]

    def about_bytes(self, count: int) -> int:
        """About how many payload bytes ``count`` of the entries have: sizes are known by run."""
        return count * self.cost_bytes // len(self.entries) - count * ENTRY_OVERHEAD_BYTES

    def drop_front(self, count: int) -> None:
        """Forget the oldest ``count`` entries."""
        del self.entries[:count]
        self.first_entry_id += count


class EntryCache:
    """The broker's cache: a bound on bytes over all topics, counters for the metrics."""

    def __init__(self, config: CacheConfig) -> None:
        self._bytes_max = config.cache_bytes_max
        self._bytes_after_eviction = int(config.cache_bytes_max * config.cache_watermark)
        self._piece_bytes = config.cache_bytes_max // PIECES_OF_BOUND
        self._age_max_s = config.cache_age_max_s
        self._wanted_age_max_s = config.cache_wanted_age_max_s
        # Whose run is the oldest of all, and so on: one turn for each run.
        self._turns: deque[LedgerCache] = deque()
        self._passed_turns = 0
        # The caches that hold something, in the order in which they began to.
        self._holding: dict[LedgerCache, None] = {}
        self.used_bytes = 0
        self.hits = 0
        self.misses = 0
        self.hit_bytes = 0
        self.missed_bytes = 0
        self.inserted = 0
        self.evicted = 0
        # How often the bound was passed.
        self.evictions = 0

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
        if not cache.runs:
            self._holding[cache] = None
        if cost <= self._piece_bytes:
            cache.runs.append((now_s, count, cost))
            self._turns.append(cache)
        else:
            for piece_count, piece_cost in _pieces(entries, self._piece_bytes):
                cache.runs.append((now_s, piece_count, piece_cost))
                self._turns.append(cache)
        cache.cost_bytes += cost
        self.used_bytes += cost
        self.inserted += count
        if self.used_bytes > self._bytes_max:
            self._make_room(now_s)

    def discard(self, cache: LedgerCache) -> None:
        """Forget all of ``cache``: its log was closed or deleted."""
        self._pass(cache, len(cache.runs))
        cache.drop_front(len(cache.entries))

    def sweep(self, now_s: float) -> None:
        """Forget what is too old; to be called once in a while."""
        self._evict_unwanted(now_s - self._age_max_s, now_s - self._wanted_age_max_s)

    def _make_room(self, now_s: float) -> None:
        """The newest piece stays in any case: it is about to be dispatched."""
        self.evictions += 1
        self._evict_unwanted(now_s, now_s - self._wanted_age_max_s)
        # A list that loses its front moves the rest: once for each cache, not for each run.
        losing: dict[LedgerCache, int] = {}
        while self.used_bytes > self._bytes_after_eviction and len(self._turns) > 1:
            cache = self._turns.popleft()
            if cache.passed_turns:
                cache.passed_turns -= 1
                self._passed_turns -= 1
            else:
                losing[cache] = losing.get(cache, 0) + self._strike_off(cache)
        for cache, entries in losing.items():
            cache.drop_front(entries)

    def _evict_unwanted(self, before_s: float, wanted_before_s: float) -> None:
        """Forget runs older than ``before_s``, those still wanted if older than their own limit."""
        for cache in list(self._holding):
            if cache.runs[0][0] >= before_s:
                continue
            wanted_from = cache.wanted_from()
            count, end = 0, cache.first_entry_id
            for came_s, entries, _ in cache.runs:
                end += entries
                if came_s >= (before_s if end <= wanted_from else wanted_before_s):
                    break
                count += 1
            self._pass(cache, count)

    def _pass(self, cache: LedgerCache, count: int) -> None:
        """Forget the ``count`` oldest runs of ``cache`` before it is their turn."""
        cache.drop_front(sum(self._strike_off(cache) for _ in range(count)))
        cache.passed_turns += count
        self._passed_turns += count
        if self._passed_turns > max(PASSED_TURNS_KEPT, len(self._turns) // 2):
            self._sweep_turns()

    def _sweep_turns(self) -> None:
        turns: deque[LedgerCache] = deque()
        for cache in self._turns:
            if cache.passed_turns:
                cache.passed_turns -= 1
            else:
                turns.append(cache)
        self._turns = turns
        self._passed_turns = 0

    def _strike_off(self, cache: LedgerCache) -> int:
        """Take the oldest run of ``cache`` out of the books; returns how many entries it has."""
        _, entries, cost = cache.runs.popleft()
        self.used_bytes -= cost
        cache.cost_bytes -= cost
        self.evicted += entries
        if not cache.runs:
            del self._holding[cache]
        return entries


def _pieces(entries: list[Entry], piece_bytes: int) -> Iterator[tuple[int, int]]:
    """A long run in pieces of about ``piece_bytes``: how many entries each has, and its cost."""
    count = cost = 0
    for _, payload, _ in entries:
        count += 1
        cost += len(payload) + ENTRY_OVERHEAD_BYTES
        if cost >= piece_bytes:
            yield count, cost
            count = cost = 0
    if count:
        yield count, cost
