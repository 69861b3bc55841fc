"""The world: what it keeps of what happens, and how it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.unit.geminga_simulation.recording import Recording

from geminga_simulation.canary import Canary
from geminga_simulation.conditions import DiskConditions
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.world import ERRORS_KEPT_MAX, ZOOKEEPER, World

log = logging.getLogger(__name__)


async def test_what_processes_log_as_errors_is_kept_with_time_and_host() -> None:
    async def main(host: Host) -> None:
        await asyncio.sleep(2)
        log.warning("not worth keeping")
        try:
            int(host.name)
        except ValueError:
            log.exception("went wrong")

    async with World() as world:
        world.host("host").start(main)
        await asyncio.sleep(3)
        ((when_s, host, text),) = world.errors
        assert when_s == pytest.approx(2, abs=0.01)
        assert (host, text) == (
            "host",
            "went wrong: ValueError(\"invalid literal for int() with base 10: 'host'\")",
        )
        for _ in range(ERRORS_KEPT_MAX + 5):
            log.error("again")
        assert world.errors[-1][1] == "main"
        assert len(world.errors) == ERRORS_KEPT_MAX
    log.error("after the end")
    assert len(world.errors) == ERRORS_KEPT_MAX


async def test_partitions_are_between_hosts_or_from_zookeeper() -> None:
    async with World() as world:
        await world.host("a").network.listen(Recording, "a", 1)
        world.partition("a", "b")
        world.partition(ZOOKEEPER, "b")
        connecting = asyncio.ensure_future(world.host("b").network.connect(Recording, "a", 1))
        asking = asyncio.ensure_future(world.zookeeper.session("b").exists("/"))
        await asyncio.sleep(4)
        assert not connecting.done()
        assert not asking.done()
        world.heal("a", "b")
        world.heal("b", ZOOKEEPER)
        await connecting
        assert await asking is not None
        assert next(text for _, text in world.events) == "a and b are cut apart"


async def test_each_site_has_a_zookeeper_of_its_own() -> None:
    async with World() as world:
        east, west = world.site("east"), world.site("west")
        async with east.host("a").coordination() as at_east, west.host("a").coordination() as other:
            await at_east.create("/node")
            assert await other.exists("/node") is None
            world.partition("east-a", ZOOKEEPER)
            await asyncio.sleep(0.1)
            asking = asyncio.ensure_future(at_east.exists("/node"))  # held until there is a link
            await asyncio.sleep(1)
            assert await other.exists("/") is not None
            assert not asking.done()
            world.heal(ZOOKEEPER, "east-a")
            assert await asking is not None
        assert world.hosts == {"east-a": east.host("a"), "west-a": west.host("a")}


async def test_faults_find_the_sessions_of_all_sites() -> None:
    async with World() as world:
        hosts = [world.site(name).host("a") for name in ("east", "west")]
        sessions = [host.coordination() for host in hosts]
        before = [session.session_id for session in sessions]
        async with FaultInjector(world, FaultMenu(session_expiry_rate=5.0), []):
            await asyncio.sleep(10)
        await asyncio.sleep(1)
        for session, former in zip(sessions, before, strict=True):
            assert session.session_id != former


async def test_conditions_of_disks_change_for_all() -> None:
    slow = DiskConditions(sync_s_min=3, sync_s_max=3)
    async with World() as world:
        existing = world.host("host").device("one")
        world.set_disk_conditions(slow)
        assert existing.conditions is world.disk_conditions is slow
        assert world.host("host").device("two").conditions is slow


async def test_leaving_the_world_ends_all_processes() -> None:
    acts: list[str] = []

    async def main(host: Host) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                acts.append(host.name)
        finally:
            await asyncio.sleep(1)
            acts.append("cleanup")

    async with World() as world:
        world.host("host").start(main)
        await asyncio.sleep(1.5)
    await asyncio.sleep(10)
    assert acts == ["host"]
    assert not world.host("host").is_running


async def test_what_is_planned_for_later_is_done_though_the_process_that_planned_it_is_dead() -> (
    None
):
    async with World() as world:
        done: list[float] = []

        async def main(host: Host) -> None:
            world.later(5, lambda: done.append(world.loop.time()))
            await asyncio.Event().wait()
            assert host.is_running

        host = world.host("host")
        host.start(main)
        await asyncio.sleep(1)
        host.crash()
        await asyncio.sleep(10)
        assert done == [pytest.approx(5, abs=0.01)]


async def test_a_canary_breaks_what_it_names() -> None:
    assert World(canary=Canary.LYING_DISK).host("host").device("one").is_lying
    assert World(canary=Canary.LEAKY_STREAM).network.is_leaky
    assert World(canary=Canary.DEAF_WATCH).zookeeper.is_deaf
    sound = World()
    assert not sound.host("host").device("one").is_lying
    assert not sound.network.is_leaky
    assert not sound.zookeeper.is_deaf


async def test_a_failure_says_which_part_did_what() -> None:
    async def refuse(host: Host) -> AsyncGenerator[None]:
        if host.lives > 1:
            raise OSError(28, "the disk is full")
        yield

    async def wait_for_ever() -> None:
        async with World() as world:
            bookie, other = world.host("bookie-1"), world.host("bookie-2")
            await bookie.serve(asynccontextmanager(refuse))
            await other.serve(asynccontextmanager(refuse))
            world.host("bookie-3")
            await asyncio.sleep(2)
            bookie.kill()
            bookie.restart()
            world.partition("bookie-1", "bookie-2", is_one_way=True)
            async with asyncio.timeout(3):
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as raised:
        await wait_for_ever()
    (note,) = raised.value.__notes__
    assert "at 5.000 s of virtual time" in note
    assert "bookie-1 failed: OSError(28, 'the disk is full') -> exits, as of 2.000" in note
    assert "and is down" in note
    assert "bookie-2 serves, as of 0.000 s, in life 1" in note
    assert "bookie-3 has never run" in note
    assert "cut links: bookie-1 to bookie-2" in note
    assert "2.000 bookie-1 is killed" in note
