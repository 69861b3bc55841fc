"""The registry follows the bookies in ZooKeeper and finds where they listen."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.unit.geminga_ledger.world import World, settle, until

from geminga_ledger.config import LedgerConfig
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.membership.registry import BookieRegistry
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH, READ_ONLY_PATH, BookieInfo
from geminga_protocol.records.bookies.racks import RACKS_PATH, BookieRack, BookieRacks
from geminga_simulation.zookeeper.server import SESSION_TIMEOUT_S_DEFAULT


def registry_in(world: World) -> BookieRegistry:
    return BookieRegistry(world.coordination, random=Random(1), config=LedgerConfig())


def names(registry: BookieRegistry) -> list[str]:
    return list(registry.writable)


async def test_writable_bookies_are_candidates_and_read_only_ones_are_not() -> None:
    world = World(2)
    world.coordination.zookeeper.put(f"{READ_ONLY_PATH}/b9", b"")
    async with registry_in(world) as registry:
        assert names(registry) == ["b0", "b1"]


async def test_bookies_that_come_and_go_are_noticed() -> None:
    world = World(1)
    async with registry_in(world) as registry:
        changed = asyncio.ensure_future(registry.changed())
        await settle()
        world.add_bookies(1)
        await changed
        assert names(registry) == ["b0", "b1"]
        world.unregister(0)
        await until(lambda: names(registry) == ["b1"])


async def test_a_bookie_is_registered_while_it_is_writable_or_read_only() -> None:
    world = World(1)
    async with registry_in(world) as registry:
        assert registry.is_registered("b0")
        world.coordination.zookeeper.put(f"{READ_ONLY_PATH}/b0", b"")
        world.unregister(0)
        await until(lambda: not names(registry))
        assert registry.is_registered("b0")
        changed = asyncio.ensure_future(registry.changed())
        await settle()
        world.coordination.zookeeper.remove(f"{READ_ONLY_PATH}/b0")
        await changed
        assert not registry.is_registered("b0")


async def test_a_cluster_without_bookies_yet_is_waited_for() -> None:
    world = World()
    world.coordination.zookeeper.remove(AVAILABLE_PATH)
    async with registry_in(world) as registry:
        assert names(registry) == []
        world.add_bookies(1)
        await until(lambda: names(registry) == ["b0"])


async def test_the_list_is_read_again_with_a_new_session() -> None:
    world = World(1)
    async with registry_in(world) as registry:
        zookeeper = world.coordination.zookeeper
        zookeeper.leader.children_watches.clear()
        world.add_bookies(1)
        await settle()
        assert names(registry) == ["b0"]
        zookeeper.isolate("main")
        await asyncio.sleep(SESSION_TIMEOUT_S_DEFAULT)
        session_id = world.coordination.session_id
        assert names(registry) == ["b0"]
        zookeeper.restore("main")
        await until(lambda: names(registry) == ["b0", "b1"])
        assert world.coordination.session_id != session_id


async def test_a_lost_connection_only_delays_the_news() -> None:
    world = World(1)
    async with registry_in(world) as registry:
        for _ in range(3):
            world.coordination.lose("children", AVAILABLE_PATH, is_done=False)
        world.add_bookies(1)
        await until(lambda: names(registry) == ["b0", "b1"])


async def test_racks_are_read_from_all_groups_and_followed() -> None:
    world = World(1)
    async with registry_in(world) as registry:
        assert registry.racks == {}
        groups = {
            "default": {"b0": BookieRack(rack="/r0", hostname="h")},
            "other": {"b1": BookieRack(rack="/r1"), "b2": BookieRack()},
        }
        world.coordination.zookeeper.put(RACKS_PATH, BookieRacks(groups).encode())
        await until(lambda: registry.racks == {"b0": "/r0", "b1": "/r1"})
        world.coordination.zookeeper.put(RACKS_PATH, b"not json")
        await settle()
        assert registry.racks == {"b0": "/r0", "b1": "/r1"}
        world.coordination.zookeeper.remove(RACKS_PATH)
        await until(lambda: registry.racks == {})


async def test_an_address_is_looked_up_each_time() -> None:
    world = World(1)
    async with registry_in(world) as registry:
        assert await registry.resolve("b0") == ("127.0.0.1", 3181)
        world.register(0, 9999)
        assert await registry.resolve("b0") == ("127.0.0.1", 9999)


async def test_a_read_only_bookie_can_still_be_read_from() -> None:
    world = World()
    world.coordination.zookeeper.put(
        f"{READ_ONLY_PATH}/b9", BookieInfo.of_address("far", 1).encode()
    )
    async with registry_in(world) as registry:
        assert await registry.resolve("b9") == ("far", 1)


async def test_an_id_that_is_an_address_needs_no_registration() -> None:
    async with registry_in(World()) as registry:
        assert await registry.resolve("host.example:3181") == ("host.example", 3181)


@pytest.mark.parametrize(
    "value",
    [
        b"\xff\xff",
        BookieInfo(endpoints=(), properties={"a": "b"}).encode(),
        BookieInfo.of_address("host", 0).encode(),
        BookieInfo.of_address("host", 70_000).encode(),
        BookieInfo.of_address("", 3181).encode(),
    ],
)
async def test_a_registration_that_says_no_address_is_no_way_to_a_bookie(value: bytes) -> None:
    world = World()
    world.coordination.zookeeper.put(f"{AVAILABLE_PATH}/b0", value)
    async with registry_in(world) as registry:
        with pytest.raises(BookieUnavailable, match="registered"):
            await registry.resolve("b0")
