"""Who is registered, reachable, well-behaved and in which rack decides together who is chosen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
from tests.unit.geminga_ledger.world import World, until

from geminga_ledger import BookieUnavailable, LedgerConfig, NotEnoughBookies
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.membership.bookies import Bookies
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.records.bookies.racks import RACKS_PATH, BookieRack, BookieRacks

CONFIG = LedgerConfig(quarantine_errors_max=1, doubt_s=0.0)
ONE = Quorum(1, 1, 1)
TIMES = 20


class Bench:
    """Three bookies, b1 and b2 in one rack."""

    def __init__(self, world: World, bookies: Bookies) -> None:
        self.world = world
        self.bookies = bookies

    def chosen(self, quorum: Quorum = ONE) -> set[tuple[str, ...]]:
        return {self.bookies.new_ensemble(quorum) for _ in range(TIMES)}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    world = World(3)
    places = {"b0": "/r0", "b1": "/r1", "b2": "/r1"}
    racks = {bookie_id: BookieRack(rack=rack) for bookie_id, rack in places.items()}
    world.coordination.zookeeper.put(RACKS_PATH, BookieRacks({"default": racks}).encode())
    registry = BookieRegistry(world.coordination, random=Random(1), config=CONFIG)
    links = BookieLinks(
        registry.resolve, network=world.network, clock=world.clock, random=Random(1), config=CONFIG
    )
    async with registry, links:
        yield Bench(world, Bookies(registry, links, Random(1)))


async def test_chance_decides_among_equals(bench: Bench) -> None:
    assert bench.chosen() == {("b0",), ("b1",), ("b2",)}


async def test_racks_are_heeded(bench: Bench) -> None:
    assert all("b0" in ensemble for ensemble in bench.chosen(Quorum(2, 2, 2)))


async def test_a_bookie_that_cannot_be_reached_comes_last_and_replaces_no_other(
    bench: Bench,
) -> None:
    bench.world.bookies[0].kill()
    with pytest.raises(BookieUnavailable):
        await bench.bookies.links.link("b0").connected()
    assert bench.chosen() == {("b1",), ("b2",)}
    assert set(bench.bookies.new_ensemble(Quorum(3, 3, 2))) == {"b0", "b1", "b2"}
    assert bench.bookies.replacements(("b1", "b2"), [0], Quorum(2, 2, 2)) == {}


async def test_a_bookie_in_quarantine_comes_last(bench: Bench) -> None:
    bench.bookies.links.link("b1").note_failure()
    assert bench.chosen() == {("b0",), ("b2",)}
    replacements = {bench.bookies.replacements(("b0",), [0], ONE)[0] for _ in range(TIMES)}
    assert replacements == {"b2"}


async def test_a_bookie_that_is_not_registered_as_writable_is_not_chosen(bench: Bench) -> None:
    bench.world.unregister(2)
    await until(lambda: bench.chosen() == {("b0",), ("b1",)})
    with pytest.raises(NotEnoughBookies):
        bench.bookies.new_ensemble(Quorum(3, 3, 2))
