"""A whole cluster in one thread: ZooKeeper, bookies, brokers and clients on simulated hosts.

Processes are put together as their real ones are, from what their host gives them. A process that
ends by an error (no ZooKeeper while starting, say) is started again, as a supervisor would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from geminga import Client, Opening, connect
from geminga_broker.broker import Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.policies.delayed import DelayedConfig
from geminga_broker.policies.publishing import PublishConfig
from geminga_broker.replication.config import ReplicationConfig
from geminga_cluster.initialize import ClusterUrls, initialize_cluster_metadata
from geminga_cluster.namespaces import Namespaces
from geminga_ledger import LedgerConfig
from geminga_protocol.pulsar.topic_names import NamespaceName
from geminga_protocol.records.namespaces import Policies
from geminga_proxy.brokers import RegisteredBrokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.proxy import Proxy
from geminga_runtime.coordination import SessionState
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import Network
from geminga_scenarios.sizes import (
    BROKER,
    CLIENT_MEMORY_BYTES,
    CLIENT_REDIRECTS,
    LEDGERS,
    PROXY,
    UNACKNOWLEDGED,
)
from geminga_scenarios.storage import EAGER, RecoveringStorage, Storage
from geminga_server.authorization import ALLOW_ALL
from geminga_server.http.rest_calls import NO_CALLS, RestCalls
from geminga_simulation.errors import HostCrashed
from geminga_simulation.fault_menu import FULL_MENU
from geminga_simulation.host import Host
from geminga_simulation.world import Site, World
from geminga_simulation.zookeeper.session import SimulatedSession


class Sizes(NamedTuple):
    """A ledger's ensemble, write quorum and ack quorum."""

    ensemble: int
    write_quorum: int
    ack_quorum: int


BROKER_PORT = 6650
CLUSTER = "standalone"
RESTART_S = 0.2
ONE_COPY = Sizes(1, 1, 1)
# Ledgers of a few entries, so that a short run rolls over; trimmed often.
SHORT_LEDGERS = ManagedLedgerConfig(
    ledger_entries_max=25, ledger_age_min_s=0.0, cursor_ledger_entries_max=10, sweep_period_s=2.0
)
# What a topic needs to find delayed messages and repeats again is written down often, in parts.
SMALL_BUCKETS = DelayedConfig(bucket_messages_min=8, segment_messages_max=3)
# A broker that is patient hears of no fault that is over in half a minute; one that is not hears of
# every request that failed.
PATIENT = LedgerConfig()
IMPATIENT = LedgerConfig(
    append_deadline_s=0.5,
    answer_timeout_s=0.3,
    read_deadline_s=0.02,
    create_deadline_s=0.02,
    recovery_deadline_s=1.0,
    metadata_deadline_s=0.02,
    registration_grace_s=0.02,
)
# What a broker sent before it knew that its session was over has arrived after so long.
FORMER_OWNER_S = 1.0
FREQUENT_SNAPSHOTS = PublishConfig(deduplication_snapshot_entries=10)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many bookies and brokers there are, and on how many bookies an entry is stored.

    ``proxies``: so many stand before the brokers, and clients use them. ``recovers``: lost copies
    are made again (auto-recovery in the bookies' processes). ``ledger_entries_max``: a topic's
    ledger is full with so many.
    """

    bookies: int = 1
    brokers: int = 1
    sizes: Sizes = ONE_COPY
    recovers: bool = False
    proxies: int = 0
    ledger_entries_max: int = SHORT_LEDGERS.ledger_entries_max


# What stories of messages are told on, in turn, and what hosts suffer while they are.
SHAPES = (Shape(), Shape(brokers=2), Shape(4, 2, Sizes(3, 3, 2)))
SHORT_FAULTS = replace(FULL_MENU, down_s_max=1.0, pause_s_max=1.5, partition_s_max=1.5)


class Cluster:
    """The bookies (``storage``) and brokers of ``shape`` in ``world``; ``await open()`` first.

    ``ledgers`` says how patient brokers are, ``replication`` how they replicate, ``config`` what
    else their settings are. One of several clusters has a ``site`` of its own, and its name. Where
    all consumers ``acknowledges_all`` that they get, they may hold few messages unacknowledged.
    """

    def __init__(
        self,
        world: World,
        shape: Shape,
        ledgers: LedgerConfig = PATIENT,
        *,
        site: Site | None = None,
        replication: ReplicationConfig | None = None,
        acknowledges_all: bool = False,
        config: BrokerConfig | None = None,
    ) -> None:
        self.world = world
        self.shape = shape
        self.name = CLUSTER if site is None else site.name
        self.storage = (
            RecoveringStorage(world, shape.bookies, EAGER, site)
            if shape.recovers
            else Storage(world, shape.bookies, site)
        )
        self.place: World | Site = site or world
        self.brokers = [self.place.host(f"broker-{number}") for number in range(shape.brokers)]
        self.proxies = [self.place.host(f"proxy-{number}") for number in range(shape.proxies)]
        # By which network a client on a host reaches the cluster, for those who want to listen.
        self.network_of: Callable[[Host], Network] = lambda host: host.network
        # How the broker on a host asks others over REST, of which there is none here.
        self.calls_of: Callable[[Host], RestCalls] = lambda _: NO_CALLS
        drawn = self.storage.sizes
        self._ledgers = drawn.of(ledgers, LEDGERS)
        # What a client is told that is not told otherwise; 0: nothing.
        memory_bytes = drawn.number("clients", 0, CLIENT_MEMORY_BYTES)
        self.client_options: dict[str, Any] = (
            {"memory_limit_bytes": memory_bytes} if memory_bytes else {}
        )
        if redirects := drawn.number("lookups", 0, CLIENT_REDIRECTS):
            self.client_options["lookup_redirects_max"] = redirects
        self._knobs = {**BROKER, **(UNACKNOWLEDGED if acknowledges_all else {})}
        self._replication = replication or ReplicationConfig()
        self._config = config or BrokerConfig()
        sizes = shape.sizes
        self._log = replace(
            SHORT_LEDGERS,
            ledger_entries_max=shape.ledger_entries_max,
            ensemble_size=sizes.ensemble,
            write_quorum=sizes.write_quorum,
            ack_quorum=sizes.ack_quorum,
        )
        # When a broker last learned that its session was over.
        self._heard_of_the_end_s = -FORMER_OWNER_S
        # The broker of each host's life, and its session.
        self._serving: dict[tuple[Host, int], tuple[Broker, SimulatedSession]] = {}
        self._serving_proxies: dict[tuple[Host, int], Proxy] = {}
        # The session of a broker's life, from when it begins to start.
        self._sessions: dict[tuple[Host, int], SimulatedSession] = {}
        fronts = self.proxies or self.brokers
        addresses = ",".join(f"{front.name}:{BROKER_PORT}" for front in fronts)
        self.service_url = f"pulsar://{addresses}"

    async def open(self) -> None:
        """Write the cluster's records and start its processes."""
        await self.storage.open()
        async with self.place.host("setup").coordination() as setup:
            await initialize_cluster_metadata(
                setup,
                self.name,
                ClusterUrls(f"http://{self.brokers[0].name}:8080", self.service_url),
                instance_id="00000000-0000-0000-0000-000000000001",
            )
        for broker in self.brokers:
            broker.start(self._run_broker)
        for proxy in self.proxies:
            proxy.start(self._run_proxy)

    async def create_namespace(self, namespace: NamespaceName, policies: Policies) -> None:
        """Make a namespace in this cluster that has these policies."""
        policies = replace(
            policies, replication_clusters=policies.replication_clusters or (self.name,)
        )
        async with self.place.host("setup").coordination() as setup:
            await Namespaces(setup).create(namespace, policies)

    def restart_brokers(self) -> None:
        """Kill all brokers and start them again: what is read from then on comes from bookies."""
        for broker in self.brokers:
            broker.kill()
        for broker in self.brokers:
            broker.restart()

    async def _run_broker(self, host: Host) -> None:
        await _keep_up(host, lambda: self._broker_process(host))

    @asynccontextmanager
    async def _broker_process(self, host: Host) -> AsyncGenerator[None, None]:
        life = host, host.lives
        async with (
            self._broker_session(host) as session,
            Broker(
                self._broker_config(host),
                coordination=session,
                network=host.network,
                clock=host.clock,
                random=host.random,
                authorizer=ALLOW_ALL,
                calls=self.calls_of(host),
            ) as broker,
        ):
            self._serving[life] = broker, session
            yield
            del self._serving[life]

    def _broker_config(self, host: Host) -> BrokerConfig:
        config = replace(
            self._config,
            cluster=self.name,
            bind_address=host.name,
            port=BROKER_PORT,
            ledgers=self._ledgers,
            replication=self._replication,
            policies=replace(
                self._config.policies,
                log=self._log,
                delayed=SMALL_BUCKETS,
                publishing=FREQUENT_SNAPSHOTS,
            ),
        )
        return self.storage.sizes.of(config, self._knobs)

    @asynccontextmanager
    async def _broker_session(self, host: Host) -> AsyncGenerator[SimulatedSession]:
        def changed(state: SessionState) -> None:
            if state is SessionState.EXPIRED:
                self._heard_of_the_end_s = self.world.loop.now_s

        async with host.coordination() as session:
            self._sessions[host, host.lives] = session
            session.on_session(changed)
            yield session

    async def _run_proxy(self, host: Host) -> None:
        await _keep_up(host, lambda: self._proxy_process(host))

    @asynccontextmanager
    async def _proxy_process(self, host: Host) -> AsyncGenerator[None, None]:
        life = host, host.lives
        config = self.storage.sizes.of(ProxyConfig(bind_address=host.name, port=BROKER_PORT), PROXY)
        async with (
            host.coordination() as session,
            RegisteredBrokers(session) as brokers,
            Proxy(config, brokers=brokers, network=host.network) as proxy,
        ):
            self._serving_proxies[life] = proxy
            yield
            del self._serving_proxies[life]

    def serving(self) -> list[tuple[Broker, bool]]:
        """The brokers that are open now, on hosts that run, each with whether ZooKeeper keeps its
        session."""
        return [
            (broker, self.place.zookeeper.is_alive(session.session_id))
            for (host, life), (broker, session) in self._serving.items()
            if host.lives == life and host.is_running
        ]

    def serving_proxies(self) -> list[tuple[Host, Proxy]]:
        """The proxies that are open now, and their hosts."""
        return [
            (host, proxy)
            for (host, life), proxy in self._serving_proxies.items()
            if host.lives == life and host.is_running
        ]

    def has_former_owner(self) -> bool:
        """Whether a broker serves whose session is over, or did a moment ago.

        It does not know yet, and serves on what it owned: others may have its topics. Its consumers
        get what it has, acknowledged or not (ARCHITECTURE, "What may a broker do that hears nothing
        of ZooKeeper?"); what it says of acknowledgements and publishes holds all the same.
        """
        if self.world.loop.now_s < self._heard_of_the_end_s + FORMER_OWNER_S:
            return True
        return not all(is_alive for _, is_alive in self.serving())

    def knows_until_s(self, host_name: str) -> float:
        """Until when the broker on this host has heard of all changes from ZooKeeper; all brokers,
        where it is none of them (a proxy)."""
        asked = [each for each in self.brokers if each.name == host_name] or self.brokers
        sessions = [self._sessions.get((each, each.lives)) for each in asked]
        return min(-inf if each is None else each.knows_until_s for each in sessions)

    def broker(self, host: Host) -> Broker | None:
        """What serves on a broker's host at present."""
        serving = self._serving.get((host, host.lives))
        return serving[0] if serving is not None and host.is_running else None

    async def do(self, host: Host, what: Callable[[Broker], Awaitable[object]]) -> None:
        """Have a broker do something, if it serves. Raises ``HostCrashed``, and what that does."""
        broker = self.broker(host)
        if broker is not None:

            async def done() -> None:
                await what(broker)

            await host.run(done())

    async def do_everywhere(self, what: Callable[[Broker], Awaitable[object]]) -> None:
        """Have each broker do something, one after the other, if it can."""
        for host in self.brokers:
            with suppress(GemingaError, HostCrashed):
                await self.do(host, what)

    def client(self, name: str) -> Opening[Client]:
        """A client on a host of its own, to be entered."""
        host = self.place.host(name)
        return connect(
            self.service_url,
            network=self.network_of(host),
            clock=host.clock,
            random=host.random,
            **self.client_options,
        )


async def _keep_up(host: Host, make: Callable[[], AbstractAsyncContextManager[None]]) -> None:
    while not host.is_stopping:
        try:
            async with make():
                host.status = "serves"
                await host.until_stopped()
        except GemingaError as error:
            host.status = f"could not start: {error!r}"
            await asyncio.sleep(RESTART_S)
