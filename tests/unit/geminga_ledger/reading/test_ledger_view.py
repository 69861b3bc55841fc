"""A reader that waits leaves that to bookies, and hears of all that happens to its ledger."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.geminga_ledger.world import payload_of, settle, until
from tests.unit.geminga_ledger.writers import Bench, payloads, writing

from geminga_ledger import LedgerConfig, LedgerReader, NoSuchLedger
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.codes import Operation, ReturnCode
from geminga_protocol.records.ledgers.ledger_metadata import LEDGERS_PATH, ledger_path
from geminga_runtime.coordination import ConnectionLost

SIZES = (3, 3, 2)


async def append_two(bench: Bench) -> None:
    """The second entry tells that the first is confirmed."""
    for _ in range(2):
        bench.append(1)
        await bench.all_confirmed()


async def waiting_reader(bench: Bench) -> tuple[LedgerReader, asyncio.Task[int]]:
    """Entries 0 and 1 are there, 0 is known to be confirmed; a reader waits for more."""
    await append_two(bench)
    reader = await bench.ledgers.open(bench.writer.ledger_id, recover=False)
    assert reader.last_confirmed == 0
    waiting = asyncio.get_running_loop().create_task(reader.wait_for_confirmed(0, timeout_s=60))
    await until(lambda: any(each.v3.waiting for each in bench.bookies))
    return reader, waiting


def long_polls(bench: Bench) -> int:
    return sum(each.v3.count(pb.READ_ENTRY) for each in bench.world.bookies)


def metadata_reads(bench: Bench) -> int:
    path = ledger_path(bench.writer.ledger_id)
    return bench.world.coordination.requests.count(f"get {path}")


async def test_a_waiting_reader_asks_each_bookie_once_and_zookeeper_not_at_all() -> None:
    async with writing(SIZES) as bench:
        reader, waiting = await waiting_reader(bench)
        polls, reads = long_polls(bench), metadata_reads(bench)
        await asyncio.sleep(25)
        # One by one the others were asked too: a silent bookie may hang.
        assert long_polls(bench) - polls == 2
        bench.append(1)
        assert await waiting == 1
        await reader.wait_for_confirmed(0, timeout_s=60)
        assert metadata_reads(bench) == reads


async def test_the_entry_comes_with_the_news() -> None:
    async with writing(SIZES) as bench:
        reader, waiting = await waiting_reader(bench)
        bench.append(1)
        await waiting
        before = sum(each.count(Operation.READ) for each in bench.bookies)
        assert await reader.read(1, 1, bytes_max=1000) == [payload_of(1)]
        assert sum(each.count(Operation.READ) for each in bench.bookies) == before
        assert await reader.read(0, 1, bytes_max=1000) == payloads(2)


async def test_an_entry_that_came_damaged_is_read_from_another_bookie() -> None:
    async with writing(SIZES) as bench:
        reader, waiting = await waiting_reader(bench)
        (first,) = [each for each in bench.bookies if each.v3.waiting]
        entries = first.entries[reader.ledger_id]
        entries[1] = entries[1][:-1] + b"?"
        bench.append(1)
        await waiting
        assert await reader.read(1, 1, bytes_max=1000) == [payload_of(1)]
        assert bench.ledgers.counters.copies_damaged >= 1


async def test_a_bookie_that_is_not_written_to_any_more_keeps_no_reader_waiting() -> None:
    """The bookie that keeps the question is replaced, and goes on to live."""
    async with writing(SIZES) as bench:
        _, waiting = await waiting_reader(bench)
        (slot,) = [slot for slot, each in enumerate(bench.bookies) if each.v3.waiting]
        bench.bookies[slot].refusals[Operation.ADD] = ReturnCode.EREADONLY
        began_s = bench.world.clock.monotonic()
        bench.append(1)
        await bench.replaced(slot)
        await bench.all_confirmed()
        bench.append(1)
        assert await waiting >= 1
        assert bench.world.clock.monotonic() - began_s < 0.5


async def test_what_comes_before_a_new_fragment_is_confirmed() -> None:
    async with writing((1, 1, 1)) as bench:
        reader, waiting = await waiting_reader(bench)
        bench.bookies[0].kill()
        bench.append(1)
        # The newcomer has entry 2 alone, which tells of entry 1; so do the metadata.
        assert await waiting == 1
        assert reader.view.metadata.fragments == bench.fragments
        assert bench.beginnings == [0, 2]


async def test_the_end_of_the_ledger_is_heard_at_once() -> None:
    async with writing(SIZES) as bench:
        reader, waiting = await waiting_reader(bench)
        began_s = bench.world.clock.monotonic()
        await bench.writer.close()
        assert await waiting == 1
        assert reader.view.is_closed
        assert bench.world.clock.monotonic() == began_s


async def test_the_deletion_of_the_ledger_is_heard_at_once() -> None:
    async with writing(SIZES) as bench:
        _, waiting = await waiting_reader(bench)
        await bench.ledgers.delete(bench.writer.ledger_id)
        with pytest.raises(NoSuchLedger):
            await waiting


async def test_many_readers_of_a_ledger_are_one_watch() -> None:
    async with writing(SIZES) as bench:
        _, waiting = await waiting_reader(bench)
        others = [await bench.ledgers.open(bench.writer.ledger_id, recover=False) for _ in range(5)]
        tasks = [asyncio.ensure_future(each.wait_for_confirmed(0, timeout_s=60)) for each in others]
        await settle()
        path = ledger_path(bench.writer.ledger_id)
        assert bench.world.coordination.zookeeper.watch_count(path) == 1
        await bench.writer.close()
        assert await asyncio.gather(waiting, *tasks) == [1] * 6


async def test_an_advance_wakes_a_waiting_reader() -> None:
    async with writing(SIZES) as bench:
        reader, waiting = await waiting_reader(bench)
        reader.advance(1)
        assert await waiting == 1


async def test_readers_go_on_while_zookeeper_is_away() -> None:
    async with writing(SIZES) as bench:
        await append_two(bench)
        reader = await bench.ledgers.open(bench.writer.ledger_id, recover=False)

        def refuse(method: str, path: str) -> None:
            if path.startswith(LEDGERS_PATH) and method == "get" and "available" not in path:
                raise ConnectionLost(path)

        bench.world.coordination.before = refuse
        waiting = asyncio.ensure_future(reader.wait_for_confirmed(0, timeout_s=60))
        await asyncio.sleep(3)
        bench.append(1)
        assert await waiting == 1
        waiting = asyncio.ensure_future(reader.wait_for_confirmed(1, timeout_s=60))
        await asyncio.sleep(3)
        bench.world.coordination.before = None
        await bench.writer.close()
        assert await waiting == 2


async def test_bookies_that_hold_nothing_yet_are_asked_again_soon() -> None:
    async with writing(SIZES) as bench:
        reader = await bench.ledgers.open(bench.writer.ledger_id, recover=False)
        waiting = asyncio.ensure_future(reader.wait_for_confirmed(-1, timeout_s=60))
        await asyncio.sleep(2)
        began_s = bench.world.clock.monotonic()
        await append_two(bench)
        assert await waiting == 0
        assert bench.world.clock.monotonic() - began_s <= LedgerConfig().poll_interval_s + 0.01


async def test_a_wait_that_is_given_up_leaves_nothing_behind() -> None:
    async with writing(SIZES) as bench:
        _, waiting = await waiting_reader(bench)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        names = [each.get_name() for each in asyncio.all_tasks()]
        assert not [each for each in names if "tail ledger" in each or "hear of" in each]


async def test_metadata_that_was_overtaken_is_not_believed() -> None:
    async with writing(SIZES) as bench:
        reader, waiting = await waiting_reader(bench)
        await bench.writer.close()
        await waiting
        view = reader.view
        old = replace(view._stored, version=0, metadata=replace(reader.view.metadata, fragments=()))
        view._take(old)
        assert reader.view.is_closed
        assert reader.view.metadata.fragments


async def test_short_waits_ask_one_bookie_after_the_other() -> None:
    async with writing((5, 3, 2), config=LedgerConfig(explicit_lac_interval_s=1)) as bench:
        await append_two(bench)
        reader = await bench.ledgers.open(bench.writer.ledger_id, recover=False)
        # All of a burst tell of what was confirmed before it; the pause is told to three of five.
        bench.append(9)
        await asyncio.sleep(5)
        waits = 0
        while reader.last_confirmed < bench.writer.last_confirmed:
            await reader.wait_for_confirmed(reader.last_confirmed, timeout_s=0.1)
            waits += 1
        assert waits <= 5
