"""Ranges are read in order, within a size, waiting for bookies that are away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.unit.geminga_ledger.world import KEY, Listener, World, entry_of, payload_of, until

from geminga_ledger import (
    BookieUnavailable,
    EntryCorrupt,
    LedgerConfig,
    LedgerReader,
    Ledgers,
    NoSuchEntry,
    NoSuchLedger,
    UnsupportedLedger,
)
from geminga_protocol.bookkeeper.codes import Operation
from geminga_protocol.bookkeeper.digest import encode_entry_header
from geminga_protocol.records.ledgers.ledger_metadata import LEDGERS_PATH, Fragment
from geminga_runtime.coordination import ConnectionLost

LEDGER = 5
ALL = (0, 1, 2)


class Bench:
    """Three bookies and a client."""

    def __init__(self, world: World, ledgers: Ledgers) -> None:
        self.world = world
        self.ledgers = ledgers

    async def closed(self, count: int, quorum: tuple[int, int, int] = (3, 2, 2)) -> LedgerReader:
        """A reader of a closed ledger with ``count`` entries of ten bytes on all bookies."""
        holders = dict.fromkeys(range(count), ALL[: quorum[0]])
        self.world.left_behind(LEDGER, quorum, holders)
        metadata = self.world.metadata(LEDGER).closed(count - 1, 10 * count)
        self.world.put_metadata(LEDGER, metadata)
        return await self.ledgers.open(LEDGER, recover=False)

    @property
    def read_count(self) -> int:
        return sum(bookie.count(Operation.READ) for bookie in self.world.bookies)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    world = World(3)
    async with world.ledgers(LedgerConfig(reads_in_flight_max=20)) as ledgers:
        yield Bench(world, ledgers)


def payloads(first: int, last: int) -> list[bytes]:
    return [payload_of(number) for number in range(first, last + 1)]


async def test_a_closed_ledger_tells_its_end(bench: Bench) -> None:
    reader = await bench.closed(7)
    assert (reader.last_confirmed, reader.length_bytes) == (6, 70)
    assert bench.read_count == 0


async def test_a_range_comes_in_order(bench: Bench) -> None:
    reader = await bench.closed(100)
    assert await reader.read(3, 95, bytes_max=10_000) == payloads(3, 95)
    assert bench.read_count == 93


async def test_as_many_entries_come_as_fit(bench: Bench) -> None:
    reader = await bench.closed(100)
    assert await reader.read(10, 99, bytes_max=55) == payloads(10, 14)
    assert bench.read_count <= 6


async def test_one_entry_comes_even_if_it_is_too_large(bench: Bench) -> None:
    reader = await bench.closed(5)
    assert await reader.read(2, 4, bytes_max=1) == payloads(2, 2)
    assert bench.read_count == 1


async def test_a_range_beyond_the_end_is_cut(bench: Bench) -> None:
    reader = await bench.closed(5)
    assert await reader.read(3, 99, bytes_max=1000) == payloads(3, 4)


@pytest.mark.parametrize(("first", "last"), [(5, 5), (-1, 3), (3, 2)])
async def test_an_entry_outside_the_ledger_is_no_entry(bench: Bench, first: int, last: int) -> None:
    reader = await bench.closed(5)
    with pytest.raises(NoSuchEntry):
        await reader.read(first, last, bytes_max=1000)


async def test_entries_of_very_different_sizes_are_read_within_the_limit(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (1, 1, 1), {})
    sizes = [1, 1, 1, 5000, 1, 1, 5000, 1]
    for entry_id, size in enumerate(sizes):
        length = sum(sizes[: entry_id + 1])
        head = encode_entry_header(LEDGER, entry_id, entry_id - 1, length, bytes(size))
        bench.world.bookies[0].store(LEDGER, entry_id, head + bytes(size), KEY)
    closed = bench.world.metadata(LEDGER).closed(7, sum(sizes))
    bench.world.put_metadata(LEDGER, closed)
    reader = await bench.ledgers.open(LEDGER, recover=False)
    first, seen = 0, list[int]()
    while first < len(sizes):
        batch = [len(each) for each in await reader.read(first, 7, bytes_max=5001)]
        assert sum(batch) <= 5001
        seen += batch
        first += len(batch)
    assert seen == sizes


async def test_a_bookie_that_restarts_only_delays_a_read(bench: Bench) -> None:
    reader = await bench.closed(3, (1, 1, 1))
    bench.world.bookies[0].kill()
    reading = asyncio.ensure_future(reader.read(0, 2, bytes_max=1000))
    await asyncio.sleep(10)
    bench.world.bookies[0].start()
    assert await reading == payloads(0, 2)


async def test_a_read_that_tries_again_takes_what_another_read_has_brought_meanwhile(
    bench: Bench,
) -> None:
    reader = await bench.closed(3, (1, 1, 1))
    bench.world.bookies[0].kill()
    reading = asyncio.ensure_future(reader.read(1, 1, bytes_max=1000))
    await asyncio.sleep(10)
    bench.world.bookies[0].start()
    other = await bench.ledgers.open(LEDGER, recover=False)
    assert await other.peek(1) == payloads(1, 1)
    assert not reading.done()
    assert await reading == payloads(1, 1)


async def test_bookies_that_stay_away_end_a_read_at_its_deadline(bench: Bench) -> None:
    reader = await bench.closed(3, (1, 1, 1))
    bench.world.bookies[0].kill()
    before_s = bench.world.clock.monotonic()
    with pytest.raises(BookieUnavailable, match="b0"):
        await reader.read(0, 2, bytes_max=1000)
    assert 29 < bench.world.clock.monotonic() - before_s < 34


async def test_a_damaged_copy_is_read_from_another_bookie(bench: Bench) -> None:
    reader = await bench.closed(3)
    bench.world.bookies[1].store(LEDGER, 1, entry_of(LEDGER, 1, 0)[:-1] + b"?", KEY)
    assert await reader.read(0, 2, bytes_max=1000) == payloads(0, 2)


async def test_an_entry_of_which_every_copy_is_damaged_is_said_to_be(bench: Bench) -> None:
    reader = await bench.closed(3)
    for bookie in bench.world.bookies:
        bookie.store(LEDGER, 1, b"rotten", KEY)
    assert await reader.read(0, 2, bytes_max=1000) == payloads(0, 0)
    with pytest.raises(EntryCorrupt) as caught:
        await reader.read(1, 2, bytes_max=1000)
    assert caught.value.entry_id == 1


async def test_an_entry_that_all_its_bookies_lost_is_no_entry(bench: Bench) -> None:
    reader = await bench.closed(3)
    for bookie in bench.world.bookies:
        bookie.entries[LEDGER].pop(1)
    with pytest.raises(NoSuchEntry):
        await reader.read(1, 2, bytes_max=1000)


async def test_an_open_ledger_is_read_as_far_as_its_bookies_know(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 2, 2), dict.fromkeys(range(5), ALL))
    reader = await bench.ledgers.open(LEDGER, recover=False)
    assert reader.last_confirmed == 3
    assert await reader.read(0, 99, bytes_max=1000) == payloads(0, 3)
    assert not any(bookie.fenced for bookie in bench.world.bookies)


async def test_the_owner_of_the_writer_moves_the_end_on_and_never_back(bench: Bench) -> None:
    bench.world.left_behind(LEDGER, (3, 2, 2), dict.fromkeys(range(5), ALL))
    reader = await bench.ledgers.open(LEDGER, recover=False)
    reader.advance(4)
    reader.advance(2)
    assert reader.last_confirmed == 4
    assert await reader.read(4, 4, bytes_max=1000) == payloads(4, 4)


async def test_two_readers_of_the_same_entries_do_not_disturb_each_other(bench: Bench) -> None:
    reader = await bench.closed(30)
    results = await asyncio.gather(*(reader.read(0, 29, bytes_max=10_000) for _ in range(5)))
    assert results == [payloads(0, 29)] * 5


async def test_an_empty_ledger_has_nothing_to_read(bench: Bench) -> None:
    reader = await bench.closed(0)
    assert replace(reader.view.metadata).last_entry == -1
    with pytest.raises(NoSuchEntry):
        await reader.read(0, 0, bytes_max=1)


async def test_a_damaged_copy_is_no_verdict_while_another_bookie_is_away(bench: Bench) -> None:
    reader = await bench.closed(3)
    bench.world.bookies[1].store(LEDGER, 1, b"rotten", KEY)
    bench.world.bookies[2].kill()
    reading = asyncio.ensure_future(reader.read(1, 1, bytes_max=1000))
    await asyncio.sleep(5)
    bench.world.bookies[2].start()
    assert await reading == payloads(1, 1)


async def test_entries_that_moved_to_other_bookies_are_found_there(bench: Bench) -> None:
    reader = await bench.closed(3, (1, 1, 1))
    moved = (Fragment(0, ("b2",)),)
    for entry_id in range(3):
        bench.world.bookies[2].store(LEDGER, entry_id, entry_of(LEDGER, entry_id, -1), KEY)
    bench.world.bookies[0].kill()
    bench.world.put_metadata(LEDGER, replace(bench.world.metadata(LEDGER), fragments=moved))
    assert await reader.read(0, 2, bytes_max=1000) == payloads(0, 2)
    assert reader.view.metadata.fragments == moved


async def test_a_read_that_fails_says_why_although_zookeeper_is_away(bench: Bench) -> None:
    reader = await bench.closed(3, (1, 1, 1))
    bench.world.bookies[0].kill()

    def refuse(method: str, path: str) -> None:
        if LEDGERS_PATH in path and method == "get" and "available" not in path:
            raise ConnectionLost(path)

    bench.world.coordination.before = refuse
    with pytest.raises(BookieUnavailable):
        await reader.read(0, 2, bytes_max=1000)


async def test_missing_copies_are_counted_and_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    reader = await bench.closed(4, (3, 3, 2))
    del bench.world.bookies[0].entries[LEDGER][0]
    del bench.world.bookies[0].entries[LEDGER][3]
    assert await reader.read(0, 3, bytes_max=1000) == payloads(0, 3)
    assert bench.ledgers.counters.copies_missing == 2
    assert [each.message for each in caplog.records if each.levelname == "WARNING"] == [
        "copies missing"
    ]


async def test_a_reader_that_waits_is_told_of_what_is_confirmed(bench: Bench) -> None:
    listener = Listener()
    writer = await bench.ledgers.create(listener=listener)
    reader = await bench.ledgers.open(writer.ledger_id, recover=False)
    waiting = asyncio.ensure_future(reader.wait_for_confirmed(-1, timeout_s=60))
    for _ in range(3):
        writer.append(b"entry")
        await until(lambda: writer.last_confirmed == writer.last_pushed)
    assert await waiting == 0
    # That entry 2 is confirmed, only an entry after it or the end of the ledger can tell.
    assert await reader.wait_for_confirmed(0, timeout_s=60) == 1
    assert await reader.read(0, 9, bytes_max=1000) == [b"entry"] * 2
    waiting = asyncio.ensure_future(reader.wait_for_confirmed(1, timeout_s=60))
    await writer.close()
    assert await waiting == 2
    assert reader.view.is_closed
    assert reader.length_bytes == 15


async def test_a_reader_waits_no_longer_than_it_was_told_to(bench: Bench) -> None:
    writer = await bench.ledgers.create(listener=Listener())
    reader = await bench.ledgers.open(writer.ledger_id, recover=False)
    before_s = bench.world.clock.monotonic()
    assert await reader.wait_for_confirmed(-1, timeout_s=7) == -1
    assert bench.world.clock.monotonic() - before_s == pytest.approx(7, abs=0.1)


async def test_a_reader_that_waits_follows_the_writer_to_other_bookies(bench: Bench) -> None:
    writer = await bench.ledgers.create(listener=Listener())
    reader = await bench.ledgers.open(writer.ledger_id, recover=False)
    bench.world.bookie(writer.ensemble[0]).kill()
    for _ in range(2):
        writer.append(b"entry")
        await until(lambda: writer.last_confirmed == writer.last_pushed)
    assert await reader.wait_for_confirmed(-1, timeout_s=60) == 0
    assert reader.view.metadata.fragments[-1].ensemble == writer.ensemble


async def test_a_reader_that_waits_for_a_ledger_that_is_deleted_is_told(bench: Bench) -> None:
    writer = await bench.ledgers.create(listener=Listener())
    reader = await bench.ledgers.open(writer.ledger_id, recover=False)
    await bench.ledgers.delete(writer.ledger_id)
    with pytest.raises(NoSuchLedger):
        await reader.wait_for_confirmed(-1, timeout_s=60)


async def test_a_ledger_without_a_known_digest_is_not_read(bench: Bench) -> None:
    await bench.closed(1)
    metadata = replace(bench.world.metadata(LEDGER), digest_type=None)
    bench.world.put_metadata(LEDGER, metadata)
    reader = await bench.ledgers.open(LEDGER, recover=True)
    with pytest.raises(UnsupportedLedger, match="digest"):
        await reader.read(0, 0, bytes_max=1000)
