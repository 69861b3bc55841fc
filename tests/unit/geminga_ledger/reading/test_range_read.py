"""Each entry of a range is read from the first bookie with a good copy, or its lack is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random

import pytest
from tests.unit.geminga_ledger.world import KEY, World, entry_of, payload_of, settle

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.counters import LedgerCounters
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.reading.range_read import PROVEN_WAIT_S, Found, RangeRead
from geminga_ledger.replication.quorum import Verdict
from geminga_protocol.bookkeeper.codes import Operation, ReturnCode
from geminga_protocol.records.ledgers.ledger_metadata import Fragment

CONFIG = LedgerConfig()
LEDGER = 5
ALL = (0, 1, 2)


class Bench:
    """Three bookies, ledger 5 with E=3 Qw=3 Qa=2, and links to them."""

    def __init__(self, world: World, links: BookieLinks) -> None:
        self.world = world
        self.links = links
        self.counters = LedgerCounters()

    def read(
        self, first: int, last: int, absences_proving: int = 3, *, speculative_s: float = 0.0
    ) -> RangeRead:
        return RangeRead(
            LEDGER,
            self.world.metadata(LEDGER),
            self.links.link,
            entry_ids=range(first, last + 1),
            absences_proving=absences_proving,
            answer_timeout_s=CONFIG.answer_timeout_s,
            speculative_s=speculative_s,
            counters=self.counters,
        )

    def reads_at(self, number: int) -> list[int]:
        requests = self.world.bookies[number].requests
        return [request[3] for request in requests if request[0] == Operation.READ]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    world = World(3)
    registry = BookieRegistry(world.coordination, random=Random(1), config=CONFIG)
    links = BookieLinks(
        registry.resolve, network=world.network, clock=world.clock, random=Random(1), config=CONFIG
    )
    async with registry, links:
        yield Bench(world, links)


def found(entry_id: int) -> Found:
    return 10 * (entry_id + 1), payload_of(entry_id)


async def test_a_range_is_read_in_order_from_striped_bookies(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(6), ALL))
    assert await bench.read(1, 4).run() == [found(number) for number in range(1, 5)]
    assert [bench.reads_at(number) for number in range(3)] == [[3], [1, 4], [2]]


async def test_an_entry_that_one_bookie_lacks_is_read_from_the_next(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: (2,), 1: ALL})
    assert await bench.read(0, 1).run() == [found(0), found(1)]
    assert [bench.reads_at(number) for number in range(3)] == [[0], [1, 0], [0]]


async def test_a_damaged_copy_is_reported_and_read_from_the_next(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL})
    good = entry_of(LEDGER, 0, -1)
    bench.world.bookies[0].store(LEDGER, 0, good[:-1] + b"!", KEY)
    bench.world.bookies[1].store(LEDGER, 0, entry_of(LEDGER, 1, 0), KEY)
    read = bench.read(0, 0)
    assert await read.run() == [found(0)]
    assert read.damaged == {0}
    assert bench.counters.copies_damaged == 2
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "damaged entry",
        "damaged entry",
    ]


async def test_a_bookie_that_is_down_is_passed_over(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(3), ALL))
    bench.world.bookies[0].kill()
    assert await bench.read(0, 2).run() == [found(number) for number in range(3)]


async def test_a_bookie_known_to_be_down_costs_no_further_attempt(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(3), ALL))
    bench.world.bookies[0].kill()
    await bench.read(0, 2).run()
    connects = len(bench.world.network.connects)
    await bench.read(0, 2).run()
    assert len(bench.world.network.connects) == connects


async def test_a_connection_that_breaks_meanwhile_sends_its_reads_elsewhere(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL})
    bench.world.bookies[0].is_silent = True
    reading = asyncio.ensure_future(bench.read(0, 0).run())
    await settle()
    bench.world.bookies[0].drop_connections()
    assert await reading == [found(0)]


async def test_a_silent_bookie_is_passed_over_after_the_answer_timeout(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(4), ALL))
    bench.world.bookies[0].is_silent = True
    before_s = bench.world.clock.monotonic()
    assert await bench.read(0, 3).run() == [found(number) for number in range(4)]
    assert bench.world.clock.monotonic() - before_s == pytest.approx(CONFIG.answer_timeout_s)


async def test_a_refusal_that_is_no_absence_leaves_it_undecided(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {})
    bench.world.bookies[1].refusals[Operation.READ] = ReturnCode.EIO
    assert await bench.read(0, 0).run() == [Verdict.UNDECIDED]


async def test_an_entry_that_no_bookie_has_is_absent(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: ALL})
    assert await bench.read(0, 1).run() == [found(0), Verdict.ABSENT]
    assert [bench.reads_at(number)[-1] for number in range(3)] == [1, 1, 1]


async def test_a_copy_is_found_though_enough_bookies_lack_the_entry(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: (2,)})
    assert await bench.read(0, 0, absences_proving=2).run() == [found(0)]


async def test_where_enough_bookies_lack_an_entry_one_that_is_down_is_not_waited_for(
    bench: Bench,
) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: (2,)})
    bench.world.bookies[2].kill()
    assert await bench.read(0, 0, absences_proving=2).run() == [Verdict.ABSENT]


async def test_where_enough_bookies_lack_an_entry_a_silent_one_is_waited_for_a_moment(
    bench: Bench,
) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: (2,)})
    bench.world.bookies[2].is_silent = True
    before_s = bench.world.clock.monotonic()
    assert await bench.read(0, 0, absences_proving=2).run() == [Verdict.ABSENT]
    assert bench.world.clock.monotonic() - before_s == pytest.approx(PROVEN_WAIT_S, abs=0.1)


async def test_each_fragment_is_read_from_its_own_ensemble(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (1, 1, 1), {0: (0,), 1: (0,), 2: (2,)})
    metadata = bench.world.metadata(LEDGER)
    fragments = (Fragment(0, ("b0",)), Fragment(2, ("b2",)))
    bench.world.put_metadata(LEDGER, replace(metadata, fragments=fragments))
    assert await bench.read(0, 2, 1).run() == [found(number) for number in range(3)]
    assert bench.reads_at(1) == []


async def test_an_entry_that_is_slow_to_come_is_asked_of_the_next_bookie_as_well(
    bench: Bench,
) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(4), ALL))
    bench.world.bookies[0].is_silent = True
    before_s = bench.world.clock.monotonic()
    read = bench.read(0, 3, speculative_s=2.0)
    assert await read.run() == [found(number) for number in range(4)]
    assert bench.world.clock.monotonic() - before_s == pytest.approx(2.0, abs=0.1)
    assert bench.reads_at(1) == [1, 0, 3]
    assert bench.counters.reads_speculative == 2


async def test_a_slow_bookie_is_asked_last_for_a_while(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(4), ALL))
    bench.world.bookies[0].is_silent = True
    await bench.read(0, 0, speculative_s=2.0).run()
    assert bench.reads_at(0) == [0]
    await bench.read(3, 3).run()
    assert bench.reads_at(0) == [0]
    await asyncio.sleep(CONFIG.doubt_s)
    bench.world.bookies[0].is_silent = False
    await bench.read(3, 3).run()
    assert bench.reads_at(0) == [0, 3]


async def test_where_all_are_doubtful_the_one_that_is_silent_now_is_asked_last(
    bench: Bench,
) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(4), ALL))
    for number in ALL:
        bench.links.link(f"b{number}").note_failure()
    bench.world.bookies[0].is_silent = True
    await asyncio.sleep(1)
    for entry_id in (0, 3, 0):
        read = bench.read(entry_id, entry_id, speculative_s=2.0)
        assert await read.run() == [found(entry_id)]
    assert bench.reads_at(0) == [0]
    assert bench.counters.reads_speculative == 1


async def test_a_bookie_that_answers_others_meanwhile_is_not_slow(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (2, 2, 1), dict.fromkeys(range(16), (0,)))
    bench.world.bookies[0].is_holding = True
    reading = asyncio.ensure_future(bench.read(0, 15, 2, speculative_s=2.0).run())
    for _ in range(16):
        await asyncio.sleep(1.9)
        held = bench.world.bookies[0].held
        bench.world.bookies[0].held = held[:1]
        bench.world.bookies[0].release()
        bench.world.bookies[0].held = held[1:]
    assert await reading == [found(number) for number in range(16)]
    assert bench.counters.reads_speculative == 0


async def test_the_slow_answer_counts_where_it_is_the_better_one(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (2, 2, 1), {0: (0,)})
    bench.world.bookies[0].is_holding = True
    reading = asyncio.ensure_future(bench.read(0, 0, 2, speculative_s=2.0).run())
    await asyncio.sleep(3)
    assert bench.reads_at(1) == [0]
    assert not reading.done()
    bench.world.bookies[0].release()
    assert await reading == [found(0)]


async def test_a_machine_that_is_dark_delays_a_read_by_no_more_than_a_slow_one(
    bench: Bench,
) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), dict.fromkeys(range(3), ALL))
    bench.world.network.silent.add(3181)
    before_s = bench.world.clock.monotonic()
    read = bench.read(0, 2, speculative_s=1.0)
    assert await read.run() == [found(number) for number in range(3)]
    assert bench.world.clock.monotonic() - before_s == pytest.approx(1.0, abs=0.1)


async def test_copies_that_are_not_there_are_counted_by_bookie(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 3, 2), {0: (2,), 1: (1, 2)})
    read = bench.read(0, 1)
    assert await read.run() == [found(0), found(1)]
    assert read.missing == {"b0": 1, "b1": 1}
