"""Bookies and V3 links to them, for tests of what goes over those."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random

from tests.unit.geminga_ledger.fake_bookie import FakeBookie
from tests.unit.geminga_ledger.world import KEY, World, entry_of

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.connections.v3_link import V3Link
from geminga_ledger.membership.registry import BookieRegistry

LEDGER = 5


class V3Bench:
    """``bookies`` b0, b1, …, and the ``links`` to them, in this order."""

    def __init__(self, world: World, links: BookieLinks, config: LedgerConfig) -> None:
        self.world = world
        self.config = config
        self.bookies = world.bookies
        self.find: Callable[[str], V3Link] = links.v3_link
        self.links = [links.v3_link(each.bookie_id) for each in world.bookies]

    def store(self, *entry_ids: int, on: int | None = None) -> None:
        """Entries come to all bookies, or to one: each tells that the one before is confirmed."""
        holders: list[FakeBookie] = self.bookies if on is None else [self.bookies[on]]
        for entry_id in entry_ids:
            for bookie in holders:
                bookie.store(LEDGER, entry_id, entry_of(LEDGER, entry_id, entry_id - 1), KEY)


@asynccontextmanager
async def v3_bench(count: int, config: LedgerConfig | None = None) -> AsyncGenerator[V3Bench, None]:
    """So many bookies without any entry."""
    config = config or LedgerConfig()
    world = World(count)
    registry = BookieRegistry(world.coordination, random=Random(1), config=config)
    links = BookieLinks(
        registry.resolve, network=world.network, clock=world.clock, random=Random(1), config=config
    )
    async with registry, links:
        yield V3Bench(world, links, config)
