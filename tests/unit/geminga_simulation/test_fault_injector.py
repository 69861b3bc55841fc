"""The fault menu: everything on it happens, within bounds, and ends when the block does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from tests.unit.geminga_simulation.recording import Recording

from geminga_functions.cluster.sessions import CLOCK_MARGIN
from geminga_runtime.coordination import DOUBT_FRACTION, ConnectionLost
from geminga_simulation.conditions import DiskConditions, NetworkConditions
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import CLOCK_DRIFT_MAX, FULL_MENU, FaultMenu
from geminga_simulation.host import Host
from geminga_simulation.simulate import simulate
from geminga_simulation.stored_file import StoredFile
from geminga_simulation.world import World


async def serve(host: Host) -> None:
    await host.network.listen(Recording, host.name, 80)
    host.disk("data")
    async with host.coordination() as session:
        with suppress(ConnectionLost):
            await session.create("/n-", ephemeral=True, sequential=True)
        await asyncio.Event().wait()


async def keep_connecting(host: Host) -> None:
    while True:
        try:
            _, protocol = await host.network.connect(Recording, "server-0", 80)
            await asyncio.wait_for(protocol.lost.wait(), 1)
        except OSError:
            await asyncio.sleep(0.1)


def test_everything_on_the_menu_is_served_and_cleared_away() -> None:
    async def main() -> list[str]:
        async with World() as world:
            servers = [world.host(f"server-{number}") for number in range(3)]
            down_at_once: list[int] = []
            for server in servers:
                server.start(serve)
            world.host("client").start(keep_connecting)
            async with FaultInjector(world, FULL_MENU, servers):
                assert world.network.conditions is FULL_MENU.network
                for _ in range(1000):
                    await asyncio.sleep(0.1)
                    down_at_once.append(sum(not server.is_running for server in servers))
            assert max(down_at_once) == 1
            assert all(server.is_running for server in servers)
            assert world.network.conditions == NetworkConditions()
            assert world.disk_conditions == DiskConditions()
            await world.host("client").run(
                world.host("client").network.connect(Recording, "server-1", 80)
            )
            assert world.host("client").lives == 1
            return [text for _, text in world.events]

    text = "\n".join(simulate(1, main).result)
    for dish in (
        "crashes",
        "crashes silently",
        "is killed",
        "stands still",
        "cut apart",
        "joined again",
        "is reset",
        "goes dark",
        "loses its connection",
        "expires",
        "jumps by",
        "the monotonic clock of",
        "no longer reaches",
        "ZooKeeper is restarted",
        "is slow for",
        "reads of",
        "create of /n- ",
        "a follower lags by",
    ):
        assert dish in text


async def test_an_empty_menu_leaves_the_world_alone() -> None:
    async with World() as world:
        async with FaultInjector(world, FaultMenu(), [world.host("host")]):
            await asyncio.sleep(100)
        assert world.events == []


async def test_what_a_lying_disk_has_made_safe_is_gone_with_the_power_and_no_disk_lies_later() -> (
    None
):
    async def write_and_sync(host: Host) -> None:
        async with host.coordination():
            file = await host.disk("data").open("file")
            while True:
                await file.append_and_sync([b"x"])
                await asyncio.sleep(0.01)

    async with World() as world:
        liar, honest = world.host("liar"), world.host("honest")
        for host in (liar, honest):
            host.start(write_and_sync)
        menu = FaultMenu(lying_sync_rate=1.0)
        lost_bytes = 0
        async with FaultInjector(world, menu, [], liars=[liar]) as injector:
            while liar.lives < 5:
                before = len(liar.device("data").files.get("file", StoredFile()).content)
                await asyncio.sleep(0.005)
                after = len(liar.device("data").files.get("file", StoredFile()).content)
                lost_bytes += max(0, before - after)
        assert lost_bytes > 50
        assert honest.lives == 1
        assert injector.orders["lying_sync"] >= 4
        assert not liar.device("data").is_lying
        assert liar.is_running


def test_rates_are_about_what_they_say() -> None:
    async def main() -> int:
        async with World() as world:
            menu = FaultMenu(clock_jump_rate=2.0)
            world.host("host")
            async with FaultInjector(world, menu, []):
                await asyncio.sleep(100)
            return len(world.events)

    assert 150 < simulate(1, main).result < 250


def test_a_drawn_menu_leaves_dishes_out() -> None:
    menus = [FULL_MENU.drawn(Random(seed)) for seed in range(50)]
    assert len({menu.crash_rate for menu in menus}) == 2
    assert {menu.network for menu in menus} == {FULL_MENU.network, NetworkConditions()}
    assert menus.count(FULL_MENU) in range(5, 21), "a quarter draws the whole menu"
    assert all(menu.down_s_max == FULL_MENU.down_s_max for menu in menus)


def test_rates_and_bounds_are_checked() -> None:
    with pytest.raises(ValueError, match="crash_rate"):
        FaultMenu(crash_rate=-1)
    with pytest.raises(ValueError, match="silent_probability"):
        replace(FULL_MENU, silent_probability=2)


def test_clocks_run_apart_by_less_than_what_relies_on_them_allows() -> None:
    fastest, slowest = 1 + CLOCK_DRIFT_MAX, 1 - CLOCK_DRIFT_MAX
    assert fastest / slowest < CLOCK_MARGIN
    assert DOUBT_FRACTION / slowest < 1, "a session is in doubt before ZooKeeper ends it"
