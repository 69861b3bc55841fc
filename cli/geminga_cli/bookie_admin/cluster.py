"""A running cluster as the tools see it: ZooKeeper, addresses of bookies, connections to them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from geminga_autorecovery.replication.copies import Copies
from geminga_autorecovery.zookeeper.live_bookies import LiveBookies, read_live_bookies
from geminga_cli.bookie_admin.errors import NoCluster, NotInitialized, UnknownBookie
from geminga_cli.supervisor.endpoints import EndpointsFile
from geminga_ledger import LedgerConfig, Ledgers
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.membership.registry import BookieRegistry
from geminga_ledger.metadata.store import LedgerStore
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH, READ_ONLY_PATH, BookieInfo
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.ledgers.ledger_metadata import INSTANCE_ID_PATH
from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.coordination import Coordination, NodeMissing
from geminga_runtime.network import AsyncioNetwork, Network
from geminga_server.zookeeper.session import ZooKeeper

# Short timeouts: the user waits at a terminal.
CONFIG = LedgerConfig(
    read_deadline_s=10.0,
    recovery_deadline_s=15.0,
    metadata_deadline_s=10.0,
    answer_timeout_s=5.0,
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the tools work with, while ``open_cluster`` is entered."""

    # The session with ZooKeeper.
    coordination: Coordination
    network: Network
    clock: Clock
    random: Random
    # Addresses of bookies, by id.
    registry: BookieRegistry
    # Records of ledgers.
    store: LedgerStore
    # Connections to bookies.
    links: BookieLinks

    async def live_bookies(self) -> LiveBookies:
        """The bookies that are registered now. Raises ``CoordinationError``."""
        # Each time anew: a tool may wait for a change of it.
        return await read_live_bookies(self.coordination.children)

    async def require_bookie(self, bookie_id: str) -> None:
        """Raise ``UnknownBookie`` unless it is registered."""
        live = await self.live_bookies()
        if bookie_id not in live.all:
            raise UnknownBookie(bookie_id, live.all)

    async def bookie_info(self, bookie_id: str) -> BookieInfo | None:
        """The record of a registered bookie; None if it is not registered, or has no record."""
        # While it changes, it may be in neither for a moment. A bookie is registered in one of the
        # two, and changes when its disks fill up.
        for directory in (AVAILABLE_PATH, READ_ONLY_PATH):
            try:
                value, _ = await self.coordination.get(f"{directory}/{bookie_id}")
                return BookieInfo.decode(value, bookie_id)
            except (NodeMissing, MalformedRecord):
                continue
        return None

    def copies(self) -> Copies:
        """A reader of single copies, each from the bookie that is named."""
        return Copies(self.links, answer_timeout_s=CONFIG.answer_timeout_s)

    def ledgers(self) -> Ledgers:
        """BookKeeper's client, which the caller opens."""
        return Ledgers(self.coordination, self.network, self.clock, self.random, CONFIG)


Work = Callable[[Cluster, argparse.Namespace], Awaitable[int]]


def run(work: Work, options: argparse.Namespace) -> int:
    """Run ``work`` with the cluster that the options name; returns its exit code."""

    async def with_cluster() -> int:
        async with open_cluster(zookeeper_of(options)) as cluster:
            return await work(cluster, options)

    return asyncio.run(with_cluster())


def zookeeper_of(options: argparse.Namespace) -> str:
    """The address of ZooKeeper: as given, or of a running standalone. Raises ``NoCluster``."""
    if options.zookeeper:
        return str(options.zookeeper)
    # The file is there only while the cluster is ready.
    address = EndpointsFile(options.data_dir).zookeeper_address()
    if not address:
        raise NoCluster(options.data_dir)
    return address


async def require_cluster(coordination: Coordination, hosts: str) -> None:
    """Raise ``NotInitialized`` if ZooKeeper has no cluster.

    Every list would be empty there, which would look like a cluster without bookies.
    """
    if await coordination.exists(INSTANCE_ID_PATH) is None:
        raise NotInitialized(hosts)


@asynccontextmanager
async def open_cluster(hosts: str) -> AsyncGenerator[Cluster, None]:
    """Connect to ZooKeeper, and to each bookie when it is first needed.

    Raises ``CoordinationError``, and ``NotInitialized`` where ZooKeeper has no cluster.
    """
    clock, network = SystemClock(), AsyncioNetwork()
    random = Random()  # noqa: S311 - jitter, no secrets
    # A path that was mistyped must not be created.
    async with ZooKeeper(hosts, clock, makes_chroot=False) as zookeeper:
        await require_cluster(zookeeper, hosts)
        registry = BookieRegistry(zookeeper, random=random, config=CONFIG)
        links = BookieLinks(
            registry.resolve, network=network, clock=clock, random=random, config=CONFIG
        )
        store = LedgerStore(zookeeper, clock=clock, random=random, config=CONFIG)
        # No registry is opened: the tools look each address up when they need it, and watch
        # nothing.
        async with links:
            yield Cluster(zookeeper, network, clock, random, registry, store, links)
