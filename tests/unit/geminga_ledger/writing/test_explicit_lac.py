"""At a pause a writer tells that its last entry is confirmed: once, to those who keep it."""

from __future__ import annotations

import asyncio

from tests.unit.geminga_ledger.writers import Bench, writing

from geminga_ledger import LedgerConfig
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3_requests import encode_explicit_lac

INTERVAL_S = 0.5
CONFIG = LedgerConfig(explicit_lac_interval_s=INTERVAL_S)
SIZES = (3, 2, 2)


def told(bench: Bench) -> list[list[int]]:
    """What each bookie of the ensemble was told, in order."""
    return [
        [
            each.writeLacRequest.lac
            for each in bookie.v3.requests
            if each.HasField("writeLacRequest")
        ]
        for bookie in bench.bookies
    ]


async def test_a_pause_is_used_to_tell_what_is_confirmed() -> None:
    async with writing(SIZES, config=CONFIG) as bench:
        bench.append(2)
        await asyncio.sleep(10 * INTERVAL_S)
        # Entry 1 belongs on the second bookie and the third.
        assert told(bench) == [[], [1], [1]]
        ledger_id = bench.writer.ledger_id
        assert bench.bookies[1].v3.explicit_lacs[ledger_id] == encode_explicit_lac(ledger_id, 1)
        bench.append(1)
        await asyncio.sleep(10 * INTERVAL_S)
        assert told(bench) == [[2], [1], [1, 2]]


async def test_while_entries_come_they_tell_it_themselves() -> None:
    async with writing(SIZES, config=CONFIG) as bench:
        for _ in range(20):
            bench.append(1)
            await asyncio.sleep(0.9 * INTERVAL_S)
        assert told(bench) == [[], [], []]


async def test_nothing_is_told_unless_the_options_say_so() -> None:
    async with writing(SIZES) as bench:
        bench.append(2)
        await asyncio.sleep(600)
        assert told(bench) == [[], [], []]
        assert not any(bookie.v3.requests for bookie in bench.bookies)


async def test_nothing_is_told_of_what_is_not_confirmed() -> None:
    async with writing(SIZES, config=CONFIG) as bench:
        bench.append(1)
        await bench.all_confirmed()
        for bookie in bench.bookies:
            bookie.is_holding = True
        bench.append(1)
        await asyncio.sleep(4 * INTERVAL_S)
        assert told(bench) == [[0], [0], []]


async def test_it_is_told_again_until_enough_keep_it() -> None:
    async with writing(SIZES, config=CONFIG) as bench:
        for bookie in bench.bookies:
            bookie.v3.refusals[pb.WRITE_LAC] = pb.EIO
        bench.append(1)
        await asyncio.sleep(5 * INTERVAL_S)
        assert len(told(bench)[0]) > 1
        for bookie in bench.bookies:
            bookie.v3.refusals.clear()
        await asyncio.sleep(2 * INTERVAL_S)
        count = len(told(bench)[0])
        await asyncio.sleep(10 * INTERVAL_S)
        assert len(told(bench)[0]) == count
        assert set(bench.bookies[0].v3.explicit_lacs) == {bench.writer.ledger_id}


async def test_the_bookies_that_are_written_to_now_are_told() -> None:
    async with writing((1, 1, 1), config=CONFIG) as bench:
        bench.bookies[0].kill()
        bench.append(1)
        newcomer = bench.world.bookie(await bench.replaced(0))
        await bench.all_confirmed()
        await asyncio.sleep(4 * INTERVAL_S)
        assert newcomer.v3.count(pb.WRITE_LAC) == 1


async def test_a_closed_writer_tells_no_more() -> None:
    async with writing(SIZES, config=CONFIG) as bench:
        bench.append(1)
        await bench.writer.close()
        await asyncio.sleep(10 * INTERVAL_S)
        assert told(bench) == [[], [], []]
        names = [each.get_name() for each in asyncio.all_tasks()]
        assert not [each for each in names if each.startswith("tell of")]


async def test_a_reader_gets_the_last_entry_before_a_next_one() -> None:
    async with writing((3, 3, 2), config=CONFIG) as bench:
        reader = await bench.ledgers.open(bench.writer.ledger_id, recover=False)
        bench.append(3)
        began_s = bench.world.clock.monotonic()
        assert await reader.wait_for_confirmed(1, timeout_s=60) == 2
        assert bench.world.clock.monotonic() - began_s < 3 * INTERVAL_S
        other = await bench.ledgers.open(bench.writer.ledger_id, recover=False)
        assert other.last_confirmed < 2
        assert await other.view.ask_bookies() == 2
