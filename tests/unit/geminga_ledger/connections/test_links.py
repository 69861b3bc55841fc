"""A link connects when it is needed, comes back after a break, and finds a bookie that moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest
from tests.unit.geminga_ledger.world import FIRST_PORT, KEY, World, settle, until

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLink, BookieLinks, Purpose
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.membership.registry import BookieRegistry
from geminga_protocol.bookkeeper.codes import Flag, Operation
from geminga_protocol.bookkeeper.v3_requests import read_lac_request

CONFIG = LedgerConfig()


class Writer:
    """Counts what a link tells the writer of a ledger."""

    def __init__(self) -> None:
        self.connected: list[int] = []
        self.unreachable: list[int] = []
        self.absent: list[int] = []
        self.is_closed = False

    def adds_stored(self, bookie: int, entry_ids: list[int]) -> None:
        raise AssertionError(f"bookie {bookie} was sent nothing, and answered {entry_ids}")

    def add_refused(self, bookie: int, entry_id: int, return_code: int) -> None:
        raise AssertionError(f"bookie {bookie} refused {entry_id} with {return_code}")

    def bookie_connected(self, bookie: int) -> None:
        self.connected.append(bookie)

    def bookie_unreachable(self, bookie: int) -> None:
        self.unreachable.append(bookie)

    def bookie_absent(self, bookie: int) -> None:
        self.absent.append(bookie)

    def link_closed(self) -> None:
        self.is_closed = True


class Reader:
    """Remembers the answers to reads."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.lost = 0

    def read_answered(
        self, bookie: int, entry_id: int, return_code: int, buffer: bytes, start: int, end: int
    ) -> None:
        del bookie, entry_id, buffer, start, end
        self.codes.append(return_code)

    def read_lost(self, bookie: int, entry_id: int) -> None:
        del bookie, entry_id
        self.lost += 1


@asynccontextmanager
async def links_in(
    world: World, config: LedgerConfig = CONFIG
) -> AsyncGenerator[BookieLinks, None]:
    registry = BookieRegistry(world.coordination, random=Random(1), config=config)
    links = BookieLinks(
        registry.resolve, network=world.network, clock=world.clock, random=Random(1), config=config
    )
    async with registry, links:
        yield links


@asynccontextmanager
async def link_in(world: World, config: LedgerConfig = CONFIG) -> AsyncGenerator[BookieLink, None]:
    async with links_in(world, config) as links:
        yield links.link("b0")


async def test_waiting_for_a_connection_makes_one() -> None:
    world = World(1)
    async with link_in(world) as link:
        await asyncio.gather(link.connected(), link.connected())
        assert link.is_connected
        assert world.network.connects == [("127.0.0.1", FIRST_PORT)]


async def test_a_failed_attempt_is_not_repeated_without_a_writer_or_a_waiter() -> None:
    world = World(1)
    world.bookies[0].kill()
    async with link_in(world) as link:
        with pytest.raises(BookieUnavailable, match="no process listens"):
            await link.connected()
        assert link.is_down
        await asyncio.sleep(60)
        assert len(world.network.connects) == 1
        assert not link.is_down


async def test_an_unknown_bookie_is_unavailable() -> None:
    async with links_in(World(1)) as links:
        with pytest.raises(BookieUnavailable, match="not registered"):
            await links.link("b7").connected()
        assert links.is_down("b7")
        assert not links.is_down("b0")


async def test_a_bookie_that_swallows_connections_is_given_up_in_time() -> None:
    world = World(1)
    world.network.silent.add(FIRST_PORT)
    async with link_in(world) as link:
        before_s = world.clock.monotonic()
        with pytest.raises(BookieUnavailable, match="no answer"):
            await link.connected()
        assert world.clock.monotonic() - before_s == pytest.approx(CONFIG.connect_timeout_s)


async def test_an_attempt_that_ends_by_an_unexpected_error_fails_its_waiters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(1)

    async def fail(*asked: object) -> None:
        raise RuntimeError(f"no way to connect with {asked}")

    async with link_in(world) as link:
        with monkeypatch.context() as patch:
            patch.setattr(world.network, "connect", fail)
            with pytest.raises(BookieUnavailable, match="no way"):
                await link.connected()
        await link.connected()


async def test_a_writer_is_told_of_each_new_connection() -> None:
    world, writer = World(1), Writer()
    async with link_in(world) as link:
        link.attach(7, writer, 3)
        await until(lambda: writer.connected == [3])
        world.bookies[0].drop_connections()
        await until(lambda: writer.connected == [3, 3])
    assert writer.is_closed


async def test_while_a_writer_is_attached_connecting_goes_on_with_growing_pauses() -> None:
    world, writer = World(1), Writer()
    world.bookies[0].kill()
    async with link_in(world) as link:
        link.attach(7, writer, 0)
        await asyncio.sleep(20)
        attempts = len(world.network.connects)
        assert 40 <= attempts <= 100  # the longest pause is half a second
        world.bookies[0].start()
        await until(lambda: writer.connected)
        link.detach(7, writer)
        world.bookies[0].kill()
        await asyncio.sleep(20)
        assert len(world.network.connects) == attempts + 1


async def test_a_bookie_that_comes_back_on_another_port_is_found() -> None:
    world, writer = World(1), Writer()
    async with link_in(world) as link:
        link.attach(7, writer, 0)
        await until(lambda: writer.connected)
        world.bookies[0].kill()
        world.bookies[0].start(port=4181)
        world.register(0, 4181)
        await until(lambda: len(writer.connected) == 2)
        assert world.network.connects[-1] == ("127.0.0.1", 4181)


async def test_only_the_listener_that_is_attached_can_detach() -> None:
    world, first, second = World(1), Writer(), Writer()
    async with link_in(world) as link:
        link.attach(7, first, 0)
        link.attach(7, second, 0)
        link.detach(7, first)
        await until(lambda: second.connected)
        assert first.connected == []


async def test_a_read_is_answered() -> None:
    world, reader = World(1), Reader()
    world.left_behind(5, (1, 1, 1), {0: (0,)})
    async with link_in(world) as link:
        await link.connected()
        link.read(5, 0, reader, 0)
        link.read(5, 1, reader, 0, flags=Flag.FENCING, master_key=KEY)
        await until(lambda: len(reader.codes) == 2)
    assert reader.codes == [0, 2]
    assert world.bookies[0].fenced == {5}


async def test_a_read_without_a_connection_is_refused_at_once() -> None:
    async with link_in(World(1)) as link:
        with pytest.raises(BookieUnavailable, match="not connected"):
            link.read(5, 0, Reader(), 0)


async def test_a_read_is_lost_with_its_connection() -> None:
    world, reader = World(1), Reader()
    world.bookies[0].is_silent = True
    async with link_in(world) as link:
        await link.connected()
        link.read(5, 0, reader, 0)
        await settle()
        world.bookies[0].drop_connections()
        await until(lambda: reader.lost)
        assert not link.is_connected


async def test_a_young_connection_is_not_suspected() -> None:
    world = World(1)
    async with link_in(world) as link:
        await link.connected()
        await asyncio.sleep(5)
        link.suspect(10)
        assert link.is_connected
        await asyncio.sleep(5)
        link.suspect(10)
        assert not link.is_connected


async def test_a_bookie_that_takes_its_bytes_too_slowly_is_dropped() -> None:
    world = World(1)
    config = replace(CONFIG, unsent_bytes_max=100)
    async with link_in(world, config) as link:
        await link.connected()
        link.outbox.pause()
        for _ in range(10):
            link.read(5, 0, Reader(), 0)
        await settle()
        assert not link.is_connected


async def test_each_purpose_has_its_own_connection() -> None:
    world = World(1)
    async with links_in(world) as links:
        assert links.link("b0") is links.link("b0")
        assert links.link("b0") is not links.link("b0", Purpose.RECOVERY)
        await links.link("b0").connected()
        await links.link("b0", Purpose.RECOVERY).connected()
    assert len(world.network.connects) == 2


async def test_closing_fails_those_that_wait_for_a_connection() -> None:
    world = World(1)
    world.network.silent.add(FIRST_PORT)
    async with links_in(world) as links:
        link = links.link("b0")
        waiting = asyncio.ensure_future(link.connected())
        await settle()
    with pytest.raises(BookieUnavailable, match="closing"):
        await waiting
    with pytest.raises(BookieUnavailable, match="closing"):
        await link.connected()
    assert world.bookies[0].count(Operation.READ) == 0


async def test_a_link_that_is_asked_for_after_closing_is_closed() -> None:
    world = World(2)
    async with links_in(world) as links:
        pass
    with pytest.raises(BookieUnavailable, match="closing"):
        async with asyncio.timeout(100):
            await links.link("b0").connected()
    with pytest.raises(BookieUnavailable, match="closing"):
        await links.v3_link("b1").ask(read_lac_request(1), timeout_s=1)
    assert world.network.connects == []


async def test_writers_are_told_of_every_attempt_that_fails() -> None:
    world = World(1)
    world.bookies[0].kill()
    async with link_in(world) as link:
        writer = Writer()
        link.attach(7, writer, 2)
        await until(lambda: len(writer.unreachable) >= 3)
        assert set(writer.unreachable) == {2}
        assert writer.connected == []
        world.bookies[0].start()
        await until(lambda: writer.connected == [2])


async def test_writers_are_told_of_an_absence_one_by_one() -> None:
    async with links_in(World(1)) as links:
        writers = [Writer(), Writer()]
        link = links.link("b0")
        for ledger_id, writer in enumerate(writers):
            link.attach(ledger_id, writer, ledger_id)
        links.link("b0", Purpose.RECOVERY)
        assert links.writing == [link]
        assert link.writing == [0, 1]
        link.tell_absent(1)
        link.tell_absent(2)
        assert [each.absent for each in writers] == [[], [1]]


async def test_a_bookie_that_failed_is_doubtful_for_all_purposes_for_a_while() -> None:
    async with links_in(World(1)) as links:
        ordinary, recovery = links.link("b0"), links.link("b0", Purpose.RECOVERY)
        await ordinary.connected()
        recovery.note_failure()
        assert (ordinary.is_down, ordinary.is_doubtful, links.is_down("b0")) == (False, True, True)
        await asyncio.sleep(CONFIG.doubt_s)
        assert (ordinary.is_doubtful, links.is_down("b0")) == (False, False)


async def test_a_bookie_that_fails_often_is_quarantined(caplog: pytest.LogCaptureFixture) -> None:
    async with links_in(World(1)) as links:
        told: list[bool] = []
        for _ in range(CONFIG.quarantine_errors_max):
            told.append(links.is_quarantined("b0"))
            links.link("b0").note_failure()
        assert not any(told)
        assert links.is_quarantined("b0")
        assert [each.message for each in caplog.records] == ["bookie quarantined"]
