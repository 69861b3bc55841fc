"""The simulated cluster of the bookie's admin as the command line's tools see it."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from tests.unit.geminga_bookie.admin.cluster import Cluster as Simulated
from tests.unit.geminga_bookie.admin.cluster import cluster_in

from geminga_cli.bookie_admin.cluster import CONFIG, Cluster
from geminga_cli.commands.bookie_admin import make_parser
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.metadata.store import LedgerStore
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World

Scenario = Callable[[Simulated, Cluster], Awaitable[None]]


def options_of(*words: str) -> argparse.Namespace:
    """What the command line makes of them."""
    return make_parser().parse_args(words)


def run(scenario: Scenario) -> None:
    """Run it with two bookies, ``b1`` and ``b2``."""

    async def main() -> None:
        async with World() as world, cluster_in(world) as simulated:
            host = world.host("tool")
            session = simulated.coordination
            registry = BookieRegistry(session, random=host.random, config=CONFIG)
            links = BookieLinks(
                registry.resolve,
                network=host.network,
                clock=host.clock,
                random=host.random,
                config=CONFIG,
            )
            store = LedgerStore(session, clock=host.clock, random=host.random, config=CONFIG)
            async with links:
                await scenario(
                    simulated,
                    Cluster(session, host.network, host.clock, host.random, registry, store, links),
                )

    simulate(1, main)


def lose(simulated: Simulated, number: int, ledger_id: int, entry_id: int) -> None:
    """A bookie has an entry no more."""
    del simulated.bookies[number].storage.write_cache.entries_of(ledger_id)[entry_id]


def damage(simulated: Simulated, number: int, ledger_id: int, entry_id: int) -> None:
    """The copy of one bookie is not what was written."""
    entries = simulated.bookies[number].storage.write_cache.entries_of(ledger_id)
    entries[entry_id] = entries[entry_id][:-1] + b"?"
