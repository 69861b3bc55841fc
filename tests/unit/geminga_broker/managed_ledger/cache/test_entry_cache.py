"""Proves that the entry cache serves runs, keeps its bound, and lets go of what is wanted least."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.cache.entry_cache import (
    ENTRY_OVERHEAD_BYTES,
    EntryCache,
    LedgerCache,
)
from geminga_broker.managed_ledger.config import CacheConfig
from geminga_broker.managed_ledger.positions import Entry

COST = 5 * (100 + ENTRY_OVERHEAD_BYTES)


def cache_of(
    *,
    bytes_max: int = CacheConfig().cache_bytes_max,
    watermark: float = CacheConfig().cache_watermark,
    age_max_s: float = CacheConfig().cache_age_max_s,
    wanted_age_max_s: float = CacheConfig().cache_wanted_age_max_s,
) -> EntryCache:
    return EntryCache(
        CacheConfig(
            cache_bytes_max=bytes_max,
            cache_watermark=watermark,
            cache_age_max_s=age_max_s,
            cache_wanted_age_max_s=wanted_age_max_s,
        )
    )


def run_of(first: int, count: int, size: int = 100) -> list[Entry]:
    return [(entry, bytes(size), 1) for entry in range(first, first + count)]


def insert(
    cache: EntryCache, ledger: LedgerCache, first: int, count: int = 5, now: float = 0
) -> None:
    cache.insert(ledger, run_of(first, count), 100 * count, now)


def wanted(first: int = 0) -> LedgerCache:
    """A ledger of which a subscription still has to be sent what begins with ``first``."""
    return LedgerCache(0, lambda: first)


def held(ledger: LedgerCache) -> list[int]:
    return [entry[0] for entry in ledger.entries]


def test_a_run_begins_at_the_entry_asked_for() -> None:
    cache, ledger = cache_of(bytes_max=1 << 20), LedgerCache(0)
    insert(cache, ledger, 0)
    insert(cache, ledger, 5)
    assert [entry[0] for entry in ledger.run(3, 4)] == [3, 4, 5, 6]
    assert ledger.run(10, 4) == []
    assert cache.inserted - cache.evicted == 10


def test_entries_are_picked_up_to_the_first_that_is_not_there() -> None:
    ledger = LedgerCache(0)
    insert(EntryCache(CacheConfig()), ledger, 0)
    ledger.drop_front(2)
    assert [entry[0] for entry in ledger.pick([(1, 2), (1, 4), (1, 5), (1, 9)])] == [2, 4]
    assert ledger.pick([(1, 1), (1, 2)]) == []
    assert ledger.pick([(1, 5)]) == []


def test_the_oldest_entries_leave_when_the_bound_is_passed_until_the_watermark() -> None:
    cache, ledger = cache_of(bytes_max=10 * COST, watermark=0.7), wanted()
    for first in range(0, 50, 5):
        insert(cache, ledger, first)
    assert cache.used_bytes == 10 * COST
    assert cache.evictions == 0
    insert(cache, ledger, 50)
    assert cache.used_bytes == 7 * COST
    assert held(ledger) == list(range(20, 55))
    assert (cache.evicted, cache.evictions) == (20, 1)


def test_short_runs_leave_as_a_whole() -> None:
    """They are what is counted: each is less than a 64th of the bound."""
    cache, ledger = cache_of(bytes_max=64 * COST, watermark=0.7), wanted()
    for first in range(0, 65 * 5, 5):
        insert(cache, ledger, first)
    assert ledger.first_entry_id == 21 * 5, "44 of 65 stay: 0.7 of the bound are 44.8"
    assert len(ledger.runs) == 44


def test_the_oldest_of_all_ledgers_leave_first() -> None:
    cache, ledgers = cache_of(bytes_max=4 * COST, watermark=0.5), [wanted(), wanted()]
    for first in (0, 5):
        for ledger in ledgers:
            insert(cache, ledger, first)
    insert(cache, ledgers[0], 10)
    assert held(ledgers[0]) == list(range(10, 15))
    assert held(ledgers[1]) == list(range(5, 10))


def test_a_long_run_leaves_piece_by_piece() -> None:
    """What was confirmed at once, and only then passes the bound, is not thrown out at once."""
    cache, ledger = cache_of(bytes_max=100 * COST, watermark=0.9), wanted()
    insert(cache, ledger, 0, 400)
    insert(cache, ledger, 400, 101)
    assert 89 * COST <= cache.used_bytes <= 90 * COST
    assert ledger.entries[-1][0] == 500


def test_of_a_run_beyond_the_bound_the_newest_part_stays() -> None:
    cache, ledger = cache_of(bytes_max=10 * COST, watermark=0.9), wanted()
    insert(cache, ledger, 0, 5000)
    assert cache.used_bytes == 9 * COST
    assert held(ledger) == list(range(4955, 5000))


def test_an_entry_beyond_the_bound_stays_for_its_dispatch() -> None:
    cache, ledger = cache_of(bytes_max=COST), wanted()
    cache.insert(ledger, run_of(0, 2, size=10 * COST), 20 * COST, 0)
    assert held(ledger) == [1]


def test_pieces_are_counted_by_their_own_bytes() -> None:
    cache, ledger = cache_of(bytes_max=64 * COST), wanted()
    sizes = [10, 20_000, 0, 300, 4_000, 1]
    run = [(number, bytes(size), 1) for number, size in enumerate(sizes)]
    cache.insert(ledger, run, sum(sizes), 0)
    assert len(ledger.runs) > 1
    assert sum(count for _, count, _ in ledger.runs) == len(sizes)
    assert sum(cost for *_, cost in ledger.runs) == ledger.cost_bytes == cache.used_bytes


def test_sent_entries_are_evicted_before_older_ones_that_are_still_to_be_sent() -> None:
    cache, late, done = cache_of(bytes_max=4 * COST, watermark=0.8), wanted(), LedgerCache(0)
    insert(cache, late, 0, now=1)
    insert(cache, done, 0, now=2)
    insert(cache, late, 5, now=3)
    insert(cache, done, 5, now=4)
    insert(cache, late, 10, now=5)
    assert (len(late.entries), len(done.entries)) == (15, 0)


def test_sent_entries_are_evicted_soon_and_the_rest_of_their_ledger_stays() -> None:
    cache, ledger = cache_of(age_max_s=1, wanted_age_max_s=60), wanted(7)
    for first in (0, 5, 10):
        insert(cache, ledger, first)
    cache.sweep(1.0)
    assert held(ledger) == list(range(15))
    cache.sweep(1.5)
    assert held(ledger) == list(range(5, 15)), "of the second run, two entries are wanted"


def test_entries_still_to_be_sent_are_evicted_when_they_are_too_old() -> None:
    cache, ledger = cache_of(age_max_s=1, wanted_age_max_s=60), wanted()
    insert(cache, ledger, 0, now=0)
    insert(cache, ledger, 5, now=30)
    cache.sweep(61)
    assert held(ledger) == list(range(5, 10))


def test_young_runs_stay_though_every_subscription_was_sent_them() -> None:
    cache, ledger = cache_of(age_max_s=1), LedgerCache(0)
    insert(cache, ledger, 0, now=1.0)
    insert(cache, ledger, 5, now=2.0)
    cache.sweep(2.5)
    assert ledger.run(0, 1) == []
    assert len(ledger.run(5, 9)) == 5


def test_a_discarded_ledger_gives_its_bytes_back_and_others_stay() -> None:
    cache, gone, kept = cache_of(bytes_max=1 << 20), LedgerCache(0), LedgerCache(0)
    insert(cache, gone, 0)
    insert(cache, kept, 0, 3)
    insert(cache, gone, 5)
    cache.discard(gone)
    cache.discard(gone)
    assert gone.run(0, 9) == []
    assert len(kept.run(0, 9)) == 3
    assert cache.used_bytes == 3 * (100 + ENTRY_OVERHEAD_BYTES)
    assert cache.inserted - cache.evicted == 3


Step = tuple[str, int, int]
Run = tuple[float, int, int]
"""When it came, its ledger, its entries."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("insert", "insert", "sweep", "discard")),
        st.integers(0, 2),
        st.integers(1, 4),
    ),
    max_size=60,
)


class Counted:
    """The same cache by hand: every entry in one list, oldest first. All are long beside the bound,
    so each is a piece of its own."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.runs: deque[Run] = deque()

    def used(self) -> int:
        return sum(count * (100 + ENTRY_OVERHEAD_BYTES) for _, _, count in self.runs)

    def insert(self, now: float, ledger: int, count: int) -> None:
        self.runs += [(now, ledger, 1)] * count
        if self.used() > self.bytes_max:
            self.keep(lambda run: run[0] >= (now if run[1] == 0 else now - 9))
            while self.used() > self.bytes_max // 2 and len(self.runs) > 1:
                self.runs.popleft()

    def keep(self, condition: Callable[[Run], bool]) -> None:
        self.runs = deque(run for run in self.runs if condition(run))

    def discard(self, ledger: int) -> None:
        self.keep(lambda run: run[1] != ledger)

    def sweep(self, now: float) -> None:
        self.keep(lambda run: run[0] >= now - (3 if run[1] == 0 else 9))


@given(STEPS)
def test_the_books_agree_with_a_list_of_all_runs(steps: list[Step]) -> None:
    bytes_max = 10 * (100 + ENTRY_OVERHEAD_BYTES)
    cache = cache_of(bytes_max=bytes_max, watermark=0.5, age_max_s=3, wanted_age_max_s=9)
    ledgers = [LedgerCache(0), wanted(), wanted()]  # no reader wants the first
    counted = Counted(bytes_max)
    for now, (what, which, count) in enumerate(steps):
        ledger = ledgers[which]
        if what == "insert":
            insert(cache, ledger, ledger.first_entry_id + len(ledger.entries), count, now)
            counted.insert(now, which, count)
        elif what == "sweep":
            cache.sweep(now)
            counted.sweep(now)
        else:
            cache.discard(ledger)
            counted.discard(which)
        assert cache.used_bytes == counted.used()
        for number, each in enumerate(ledgers):
            assert len(each.entries) == sum(run[2] for run in counted.runs if run[1] == number)
        assert cache.inserted - cache.evicted == sum(run[2] for run in counted.runs)
