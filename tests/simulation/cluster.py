"""A whole cluster in one thread: ZooKeeper, bookies, a broker and clients on simulated hosts.

Processes are put together as their real ones are, from what their host gives them. A process that
ends by an error (no ZooKeeper while starting, say) is started again, as a supervisor would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from magnetar import Client
from magnetar_bookie.bookie import Bookie
from magnetar_bookie.memory_store import MemoryStore
from magnetar_bookie.settings import BookieSettings
from magnetar_broker.broker import Broker
from magnetar_broker.log.options import LogOptions
from magnetar_broker.metadata.initialize import ClusterUrls, initialize_cluster_metadata
from magnetar_broker.options import BrokerOptions
from magnetar_runtime.errors import MagnetarError
from magnetar_server.authorization import ALLOW_ALL
from magnetar_simulation.host import Host
from magnetar_simulation.world import World

BROKER_PORT = 6650
BOOKIE_PORT = 3181
RESTART_S = 0.2
# Ledgers of a few entries, so that a short run rolls over.
SHORT_LEDGERS = LogOptions(
    ledger_entries_max=25, ledger_age_min_s=0.0, cursor_ledger_entries_max=10
)


class Cluster:
    """One bookie and one broker in ``world``; ``await open()`` first."""

    def __init__(self, world: World, *, log: LogOptions = SHORT_LEDGERS) -> None:
        self.world = world
        self.bookie = world.host("bookie")
        self.broker = world.host("broker")
        self._log = log
        self._index = MemoryStore()

    async def open(self) -> None:
        """Write the cluster's records and start its processes."""
        setup = self.world.host("setup").coordination()
        async with setup:
            await initialize_cluster_metadata(
                setup,
                "standalone",
                ClusterUrls("http://broker:8080", f"pulsar://broker:{BROKER_PORT}"),
                instance_id="00000000-0000-0000-0000-000000000001",
            )
        self.bookie.start(self._run_bookie)
        self.broker.start(self._run_broker)

    async def _run_bookie(self, host: Host) -> None:
        # A process that is gone takes along what its index had not flushed.
        self._index.crash()
        await _keep_up(lambda: self._bookie_process(host))

    async def _run_broker(self, host: Host) -> None:
        await _keep_up(lambda: self._broker_process(host))

    @asynccontextmanager
    async def _bookie_process(self, host: Host) -> AsyncGenerator[None, None]:
        async with (
            host.coordination() as session,
            Bookie(
                BookieSettings(host=host.name, port=BOOKIE_PORT),
                journal_disks=[host.disk("journal")],
                ledger_disks=[host.disk("ledgers")],
                index=self._index,
                network=host.network,
                coordination=session,
                clock=host.clock,
            ),
        ):
            yield

    @asynccontextmanager
    async def _broker_process(self, host: Host) -> AsyncGenerator[None, None]:
        async with (
            host.coordination() as session,
            Broker(
                BrokerOptions(
                    bind_host=host.name, advertised_host=host.name, port=BROKER_PORT, log=self._log
                ),
                coordination=session,
                network=host.network,
                clock=host.clock,
                random=host.random,
                authorizer=ALLOW_ALL,
            ),
        ):
            yield

    def client(self, name: str) -> Client:
        """A client on a host of its own, to be entered."""
        host = self.world.host(name)
        return Client(
            f"pulsar://broker:{BROKER_PORT}",
            network=host.network,
            clock=host.clock,
            random=host.random,
        )


async def _keep_up(make: Callable[[], AbstractAsyncContextManager[None]]) -> None:
    while True:
        try:
            async with make():
                await asyncio.Event().wait()
        except MagnetarError:
            await asyncio.sleep(RESTART_S)
