"""Writers get rid of bookies that are gone, idle or not; one that comes back in time stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from tests.unit.geminga_ledger.fake_bookie import FakeBookie
from tests.unit.geminga_ledger.world import FIRST_PORT, Listener, World, until
from tests.unit.geminga_ledger.writers import CONFIG, Bench, payloads, writing

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_ledger.membership.missing_bookies import WRITERS_AT_ONCE
from geminga_protocol.records.bookies.bookie_info import READ_ONLY_PATH

GRACE_S = CONFIG.absent_replace_s
# When the last look after the grace is over, and what it finds is done.
SURELY_S = 1.5 * GRACE_S


def number_of(bookie: FakeBookie) -> int:
    return int(bookie.bookie_id.removeprefix("b"))


def unregister(bench: Bench, bookie: FakeBookie) -> None:
    bench.world.unregister(number_of(bookie))


def register(bench: Bench, bookie: FakeBookie) -> None:
    bench.world.register(number_of(bookie), FIRST_PORT + number_of(bookie))


def stand_still(bookie: FakeBookie) -> None:
    """Its connections stay, as those to a machine without power do."""
    bookie.is_silent = True


async def written(bench: Bench) -> None:
    bench.append(1)
    await bench.all_confirmed()


def test_writers_are_faster_than_auto_recovery() -> None:
    assert AutoRecoveryConfig().open_ledger_rereplication_grace_s >= 2 * SURELY_S


@pytest.mark.parametrize("harm", [FakeBookie.kill, stand_still])
async def test_an_idle_writer_replaces_a_bookie_that_is_gone(
    harm: Callable[[FakeBookie], None],
) -> None:
    async with writing((3, 3, 2)) as bench:
        await written(bench)
        harm(bench.bookies[1])
        unregister(bench, bench.bookies[1])
        await asyncio.sleep(0.9 * GRACE_S)
        assert bench.beginnings == [0]
        await asyncio.sleep(SURELY_S - 0.9 * GRACE_S)
        assert bench.beginnings == [0, 1]
        assert bench.writer.ensemble[1] == bench.spare[0].bookie_id
        await written(bench)
        assert bench.listener.failures == []
        assert await bench.read_back() == payloads(2)


async def test_a_bookie_that_comes_back_in_time_stays() -> None:
    async with writing((2, 2, 2)) as bench:
        await written(bench)
        for _ in range(5):
            unregister(bench, bench.bookies[0])
            await asyncio.sleep(0.9 * GRACE_S)
            register(bench, bench.bookies[0])
            await asyncio.sleep(0.1)
        await asyncio.sleep(SURELY_S)
        assert bench.beginnings == [0]


async def test_a_bookie_that_became_read_only_is_not_gone() -> None:
    async with writing((2, 2, 2)) as bench:
        await written(bench)
        bench.world.coordination.zookeeper.put(f"{READ_ONLY_PATH}/{bench.first[0]}", b"")
        unregister(bench, bench.bookies[0])
        await asyncio.sleep(SURELY_S)
        assert bench.beginnings == [0]
        bench.world.coordination.zookeeper.remove(f"{READ_ONLY_PATH}/{bench.first[0]}")
        await asyncio.sleep(SURELY_S)
        assert bench.beginnings == [0, 1]


async def test_a_missing_bookie_is_replaced_as_soon_as_there_is_another_one() -> None:
    async with writing((2, 2, 2), spare=0) as bench:
        await written(bench)
        unregister(bench, bench.bookies[0])
        await asyncio.sleep(10 * GRACE_S)
        assert bench.beginnings == [0]
        assert bench.listener.failures == []
        bench.world.add_bookies(1)
        await asyncio.sleep(SURELY_S)
        assert bench.writer.ensemble[0] == "b2"


async def test_a_bookie_that_no_other_could_replace_stays_once_it_is_back() -> None:
    async with writing((2, 2, 2), spare=0) as bench:
        await written(bench)
        unregister(bench, bench.bookies[0])
        await asyncio.sleep(2 * GRACE_S)
        register(bench, bench.bookies[0])
        bench.world.add_bookies(1)
        await written(bench)
        await asyncio.sleep(SURELY_S)
        assert bench.beginnings == [0]


async def test_two_missing_bookies_are_both_replaced() -> None:
    async with writing((3, 3, 2), spare=2) as bench:
        await written(bench)
        for bookie in bench.bookies[:2]:
            unregister(bench, bookie)
        await asyncio.sleep(SURELY_S)
        spare = {each.bookie_id for each in bench.spare}
        assert set(bench.writer.ensemble[:2]) == spare


async def test_very_many_writers_are_told_little_by_little() -> None:
    world, count = World(1), 2 * WRITERS_AT_ONCE + 1
    async with AsyncExitStack() as stack:
        ledgers = await stack.enter_async_context(world.ledgers(CONFIG))
        writers = [await ledgers.create(listener=Listener()) for _ in range(count)]
        world.add_bookies(1)
        world.unregister(0)

        def moved() -> int:
            return sum(writer.ensemble == ("b1",) for writer in writers)

        await until(moved)
        assert moved() <= WRITERS_AT_ONCE
        await until(lambda: moved() == count)


async def test_nothing_is_done_while_every_bookie_is_there() -> None:
    async with writing((3, 3, 2)) as bench:
        await written(bench)
        unregister(bench, bench.spare[0])
        await asyncio.sleep(1)
        requests = list(bench.world.coordination.requests)
        await asyncio.sleep(100 * GRACE_S)
        assert bench.world.coordination.requests == requests
        assert bench.beginnings == [0]
