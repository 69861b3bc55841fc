"""The newest entries in memory, so that tailing consumers never touch a bookie. Pure.

The whole broker has one bound. Entries come in runs, as they were confirmed, and a run is the unit
of accounting: nothing is counted an entry at a time. Only a run that is long beside the bound, as
when bookies answer after a pause, is counted in pieces, so that little more is evicted than must
be. What is evicted, and when:

- an entry that every subscription has been sent is evicted soon (``age_max_s``);
- one that some subscription has still to be sent stays longer (``wanted_age_max_s``), for a
  consumer that is behind;
- when the bound is exceeded, first the former is evicted whatever its age, then the oldest of all,
  until the bound's ``watermark`` is reached: so it is not exceeded again at once.

Each ``LedgerCache`` counts its runs, and the ``EntryCache`` has a queue with a *turn* for each run
of all ledgers, in the order in which they came. When runs of a ledger are evicted before their
turns have come, the turns stay in the queue and are skipped later (``passed_turns``): taking them
out of the middle would cost more than it frees.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from geminga_broker.managed_ledger.config import CacheConfig
from geminga_broker.managed_ledger.positions import INT64_MAX, Entry, EntryId

# What an entry costs beside its payload: the tuple, the bytes object's head, list and int slots.
ENTRY_OVERHEAD_BYTES = 160
# Runs longer than this part of the bound are divided: eviction misses the watermark by no more.
PIECES_OF_BOUND = 64
# Turns of runs that were evicted early are swept out of the queue when they are so many, and half
# of it.
PASSED_TURNS_KEPT = 1024


@dataclass(slots=True, eq=False)
class LedgerCache:
    """Consecutive entries of one ledger: ``entries[0]`` is entry ``first_entry_id``."""

    first_entry_id: int
    # Returns the first entry that some subscription has still to be sent; None: there is no such
    # entry.
    wanted_from: Callable[[], int] | None = None
    entries: list[Entry] = field(default_factory=list[Entry], init=False)
    # Kept by the EntryCache: (when it came, entries, bytes) of each run, oldest first. Together
    # they have as many entries as ``entries``.
    runs: deque[tuple[float, int, int]] = field(
        default_factory=deque[tuple[float, int, int]], init=False
    )
    # The bytes of these runs together.
    cost_bytes: int = field(default=0, init=False)
    # Turns in the queue whose runs were evicted early: the next turns of this ledger.
    passed_turns: int = field(default=0, init=False)

    def run(self, entry_id: int, count_max: int) -> list[Entry]:
        """Up to ``count_max`` entries from ``entry_id`` on; empty when that one is not cached."""
        start = entry_id - self.first_entry_id
        if start < 0:
            return []
        # A copy: the list loses its front when entries are evicted while a dispatcher has the run.
        return self.entries[start : start + count_max]

    def pick(self, ids: Sequence[EntryId]) -> list[Entry]:
        """The entries of ``ids``, in order, up to the first that is not cached."""
        entries, first = self.entries, self.first_entry_id
        if ids[0][1] < first:
            return []
        # ``ids`` grow: only the last tells whether any is beyond the end.
        if ids[-1][1] - first >= len(entries):
            ids = [each for each in ids if each[1] - first < len(entries)]
        return [entries[entry_id - first] for _, entry_id in ids]

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
        # The ledger of the oldest run of all, and so on: one turn for each run.
        self._turns: deque[LedgerCache] = deque()
        # How many of these are passed: the sum over all ledgers.
        self._passed_turns = 0
        # The ledgers that have entries here, in the order in which they began to.
        self._holding: dict[LedgerCache, None] = {}
        self.used_bytes = 0
        # Entries that were found, reads that found none, and the bytes of either.
        self.hits = 0
        self.misses = 0
        self.hit_bytes = 0
        self.missed_bytes = 0
        # Entries that ever came and left: the difference is here now.
        self.inserted = 0
        self.evicted = 0
        # How often the bound was exceeded.
        self.evictions = 0

    def insert(
        self, cache: LedgerCache, entries: list[Entry], size_bytes: int, now_s: float
    ) -> None:
        """Append a confirmed run of ``size_bytes`` payload bytes to ``cache``."""
        count = len(entries)
        assert entries[0][0] == cache.first_entry_id + len(cache.entries), "runs must join"
        cache.entries.extend(entries)
        cost = size_bytes + count * ENTRY_OVERHEAD_BYTES
        # ``_strike_off`` takes a ledger out with its last run; the two keep ``_holding`` exact.
        if not cache.runs:
            self._holding[cache] = None
        if cost <= self._piece_bytes:
            cache.runs.append((now_s, count, cost))
            self._turns.append(cache)
        else:
            for piece_count, piece_cost in _pieces(entries, self._piece_bytes):
                cache.runs.append((now_s, piece_count, piece_cost))
                self._turns.append(cache)
        # The pieces add up to ``cost``: the payloads' bytes are those that the caller counted.
        cache.cost_bytes += cost
        self.used_bytes += cost
        self.inserted += count
        # After the run is in: the bound is exceeded by at most one run while that is put right.
        if self.used_bytes > self._bytes_max:
            self._make_room(now_s)

    def discard(self, cache: LedgerCache) -> None:
        """Evict all of ``cache``: its log was closed or deleted."""
        self._pass(cache, len(cache.runs))
        cache.drop_front(len(cache.entries))

    def _make_room(self, now_s: float) -> None:
        """Evict until the watermark is reached."""
        self.evictions += 1
        # First what every subscription was sent, of all ages but this instant.
        self.sweep(now_s, age_max_s=0.0)
        # A list that loses its front moves the rest: once for each ledger, not for each run.
        losing: dict[LedgerCache, int] = {}
        # The newest piece stays in any case: it is about to be dispatched.
        while self.used_bytes > self._bytes_after_eviction and len(self._turns) > 1:
            cache = self._turns.popleft()
            # The oldest turns of a ledger are those of runs that are gone: ``_pass`` evicts from
            # the front.
            if cache.passed_turns:
                cache.passed_turns -= 1
                self._passed_turns -= 1
            else:
                losing[cache] = losing.get(cache, 0) + self._strike_off(cache)
        for cache, entries in losing.items():
            cache.drop_front(entries)

    def sweep(self, now_s: float, age_max_s: float | None = None) -> None:
        """Evict runs that are too old; called periodically, and before others have to go.

        Those that every subscription was sent may have the age ``age_max_s``, by default that of
        the config.
        """
        before_s = now_s - (self._age_max_s if age_max_s is None else age_max_s)
        wanted_before_s = now_s - self._wanted_age_max_s
        for cache in list(self._holding):
            if cache.runs[0][0] >= before_s:
                continue
            # Asking the subscriptions costs more than looking at the age, so it comes second.
            wanted_from = INT64_MAX if cache.wanted_from is None else cache.wanted_from()
            # Runs go from the front: ``end`` is the entry behind the run that is looked at.
            count, end = 0, cache.first_entry_id
            for came_s, entries, _ in cache.runs:
                end += entries
                # A run that is wanted in part counts as wanted. The first that stays ends it: a
                # cache has no gaps.
                if came_s >= (before_s if end <= wanted_from else wanted_before_s):
                    break
                count += 1
            self._pass(cache, count)

    def _pass(self, cache: LedgerCache, count: int) -> None:
        """Evict the ``count`` oldest runs of ``cache`` before their turns have come."""
        cache.drop_front(sum(self._strike_off(cache) for _ in range(count)))
        cache.passed_turns += count
        self._passed_turns += count
        # So a sweep of the queue, which touches all turns, frees more than half of them.
        if self._passed_turns <= max(PASSED_TURNS_KEPT, len(self._turns) // 2):
            return
        # Sweep: the oldest turns of each ledger are those that were passed.
        turns: deque[LedgerCache] = deque()
        for each in self._turns:
            if each.passed_turns:
                each.passed_turns -= 1
            else:
                turns.append(each)
        self._turns = turns
        self._passed_turns = 0

    def _strike_off(self, cache: LedgerCache) -> int:
        """Stop counting the oldest run of ``cache``; returns how many entries it has."""
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
    # A loop over the entries, but only of a run that is long beside the bound.
    for _, payload, _ in entries:
        count += 1
        cost += len(payload) + ENTRY_OVERHEAD_BYTES
        if cost >= piece_bytes:
            yield count, cost
            count = cost = 0
    if count:
        yield count, cost
