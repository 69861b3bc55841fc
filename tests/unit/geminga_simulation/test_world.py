"""The world: what it keeps of what happens, and how it ends."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.geminga_simulation.recording import Recording

from geminga_simulation.canary import Canary
from geminga_simulation.conditions import DiskConditions
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


async def test_conditions_of_disks_change_for_all() -> None:
    slow = DiskConditions(sync_s_min=3, sync_s_max=3)
    async with World() as world:
        existing = world.host("host").device("one")
        world.disk_conditions = slow
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


async def test_what_is_done_later_is_done_though_the_one_who_asked_is_dead() -> None:
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
