"""A writer ends its ledger where its confirmed entries end, and only while it is still its own."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.geminga_ledger.world import Listener, World, payload_of, settle, until

from geminga_ledger import (
    AppendTimedOut,
    LedgerClosed,
    LedgerClosedByOther,
    LedgerFenced,
    Ledgers,
    LedgerWriter,
)
from geminga_protocol.records.ledgers.ledger_metadata import LedgerState
from geminga_runtime.coordination import ConnectionLost


class Bench:
    """A writer on one bookie."""

    def __init__(self, world: World, writer: LedgerWriter, listener: Listener) -> None:
        self.world = world
        self.writer = writer
        self.listener = listener
        self.bookie = world.bookies[0]

    async def append(self, count: int) -> None:
        """Append and wait for the confirmation."""
        for _ in range(count):
            self.writer.append(payload_of(self.writer.last_pushed + 1))
        await until(lambda: self.writer.last_confirmed == self.writer.last_pushed)

    @property
    def end(self) -> tuple[LedgerState, int, int]:
        metadata = self.world.metadata(self.writer.ledger_id)
        return metadata.state, metadata.last_entry, metadata.length


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with bench_on(World(1)) as bench:
        yield bench


@asynccontextmanager
async def bench_on(world: World) -> AsyncGenerator[Bench, None]:
    async with world.ledgers() as ledgers:
        yield await bench_of(world, ledgers)


async def bench_of(world: World, ledgers: Ledgers) -> Bench:
    """A writer made now, and who listens to it."""
    listener = Listener()
    return Bench(world, await ledgers.create(listener=listener), listener)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is not referred to is freed; what only refers to itself is not."""
    gc.disable()
    yield
    gc.enable()


async def test_closing_writes_the_last_entry_and_the_length(bench: Bench) -> None:
    await bench.append(3)
    assert bench.end == (LedgerState.OPEN, -1, 0)
    await bench.writer.close()
    assert bench.end == (LedgerState.CLOSED, 2, 30)


async def test_an_empty_ledger_closes_empty(bench: Bench) -> None:
    await bench.writer.close()
    assert bench.end == (LedgerState.CLOSED, -1, 0)


async def test_closing_waits_for_entries_on_their_way(bench: Bench) -> None:
    bench.bookie.is_holding = True
    bench.writer.append(payload_of(0))
    closing = asyncio.ensure_future(bench.writer.close())
    await until(lambda: bench.bookie.held)
    assert bench.end[0] is LedgerState.OPEN
    bench.bookie.release()
    await closing
    assert bench.end == (LedgerState.CLOSED, 0, 10)


async def test_a_closed_writer_takes_no_more(bench: Bench) -> None:
    await bench.writer.close()
    with pytest.raises(LedgerClosed):
        bench.writer.append(b"more")
    assert bench.listener.failures == []


async def test_a_writer_that_is_closing_takes_no_more(bench: Bench) -> None:
    bench.bookie.is_holding = True
    bench.writer.append(payload_of(0))
    closing = asyncio.ensure_future(bench.writer.close())
    await until(lambda: bench.bookie.held)
    with pytest.raises(LedgerClosed):
        bench.writer.append(b"more")
    bench.bookie.release()
    await closing


async def test_closing_twice_writes_once(bench: Bench) -> None:
    await bench.append(1)
    await asyncio.gather(bench.writer.close(), bench.writer.close())
    await bench.writer.close()
    assert len([each for each in bench.world.coordination.requests if each.startswith("set ")]) == 1


async def test_a_closed_writer_hears_no_more_of_its_bookies(bench: Bench) -> None:
    await bench.append(1)
    await bench.writer.close()
    connects = len(bench.world.network.connects)
    bench.bookie.drop_connections()
    await asyncio.sleep(10)
    assert len(bench.world.network.connects) == connects


async def test_a_closed_writer_does_not_keep_its_listener_alive(no_collector: None) -> None:
    del no_collector
    async with bench_on(World(1)) as bench:
        kept = weakref.ref(bench.listener)
        await bench.append(1)
        await bench.writer.close()
        bench.listener = Listener()
        assert kept() is None


async def test_a_writer_whose_bookie_stayed_away_closes_where_it_was_confirmed(
    bench: Bench,
) -> None:
    await bench.append(2)
    bench.bookie.kill()
    bench.writer.append(payload_of(2))
    await bench.writer.close()
    assert isinstance(bench.listener.failures[0], AppendTimedOut)
    assert bench.end == (LedgerState.CLOSED, 1, 20)


async def test_a_fenced_writer_closes_nothing(bench: Bench) -> None:
    await bench.append(2)
    bench.bookie.fenced.add(bench.writer.ledger_id)
    bench.writer.append(payload_of(2))
    for _ in range(2):
        with pytest.raises(LedgerFenced):
            await bench.writer.close()
    assert bench.end[0] is LedgerState.OPEN


async def test_a_ledger_that_was_recovered_to_the_same_end_counts_as_closed(bench: Bench) -> None:
    await bench.append(2)
    async with bench.world.ledgers(seed=2) as other:
        await other.open(bench.writer.ledger_id, recover=True)
    await bench.writer.close()
    assert bench.end == (LedgerState.CLOSED, 1, 20)


async def test_a_ledger_that_was_closed_elsewhere_is_not_ours_any_more(bench: Bench) -> None:
    await bench.append(3)
    metadata = bench.world.metadata(0)
    bench.world.put_metadata(0, metadata.closed(1, 20))
    with pytest.raises(LedgerClosedByOther, match=r"at entry 1, .* entry 2") as caught:
        await bench.writer.close()
    assert isinstance(caught.value, LedgerFenced)
    assert bench.end == (LedgerState.CLOSED, 1, 20)


async def test_a_ledger_in_recovery_is_closed_by_its_writer_all_the_same(bench: Bench) -> None:
    """Its entries are all confirmed; the recovery finds it closed and takes that for the end."""
    await bench.append(3)
    bench.world.put_metadata(0, bench.world.metadata(0).in_recovery())
    await bench.writer.close()
    assert bench.end == (LedgerState.CLOSED, 2, 30)


@pytest.mark.parametrize("is_done", [False, True])
async def test_closing_survives_a_lost_answer(bench: Bench, *, is_done: bool) -> None:
    await bench.append(1)
    bench.world.coordination.lose("set", "/L0000", is_done=is_done)
    await bench.writer.close()
    assert bench.end == (LedgerState.CLOSED, 0, 10)


async def test_a_close_that_zookeeper_did_not_take_may_be_repeated(bench: Bench) -> None:
    await bench.append(1)

    def refuse(method: str, path: str) -> None:
        if method == "set":
            raise ConnectionLost(path)

    bench.world.coordination.before = refuse
    with pytest.raises(ConnectionLost):
        await bench.writer.close()
    bench.world.coordination.before = None
    await bench.writer.close()
    assert bench.end == (LedgerState.CLOSED, 0, 10)


async def test_a_cancelled_close_leaves_the_entries_on_their_way(bench: Bench) -> None:
    bench.bookie.is_holding = True
    bench.writer.append(payload_of(0))
    await until(lambda: bench.bookie.held)
    first = asyncio.ensure_future(bench.writer.close())
    await settle()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(bench.writer.close())
    await settle()
    bench.bookie.release()
    await second
    assert bench.end == (LedgerState.CLOSED, 0, 10)
