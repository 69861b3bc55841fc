"""A whole cluster in one thread: its bookies, brokers, proxies and clients on simulated hosts.

The processes are the real ones, built from their host's clock, network, disks and ZooKeeper session
instead of the system's. A process that ends with an error, such as one that finds no ZooKeeper
while it starts, is started again, as a supervisor would do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, NamedTuple

from geminga import Client, Opening, connect
from geminga_broker.broker import Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.policies.delayed import DelayedConfig
from geminga_broker.policies.publish import PublishConfig
from geminga_broker.replication.config import ReplicationConfig
from geminga_cluster.initialize import ClusterUrls, initialize_cluster_metadata
from geminga_cluster.namespaces import Namespaces
from geminga_ledger import LedgerConfig
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.namespaces import Policies
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
from geminga_server.authorization import allow_all
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
# How long a process that failed stays down. In virtual seconds. Short, so that a run of some
# seconds sees several lives of a process.
RESTART_S = 0.2
ONE_COPY = Sizes(1, 1, 1)
# Ledgers of a few entries, trimmed often: a short run has many of them. The seed may change each of
# these numbers again (``sizes.BROKER``).
SHORT_LEDGERS = ManagedLedgerConfig(
    ledger_entries_max=25, ledger_age_min_s=0.0, cursor_ledger_entries_max=10, sweep_period_s=2.0
)
# The state of delayed messages and of deduplication is stored often, in small parts.
SMALL_BUCKETS = DelayedConfig(bucket_messages_min=8, segment_messages_max=3)
# How a broker's requests to bookies and ZooKeeper end under faults. A patient broker retries for
# half a minute, so that shorter faults stay hidden from it; an impatient one sees every request
# that failed.
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
# By then, everything has arrived that a broker sent before it knew that its session was over.
FORMER_OWNER_S = 1.0
FREQUENT_SNAPSHOTS = PublishConfig(deduplication_snapshot_entries=10)


@dataclass(frozen=True, slots=True)
class Shape:
    """The processes of a cluster, and on how many bookies an entry is stored."""

    bookies: int = 1
    brokers: int = 1
    sizes: Sizes = ONE_COPY
    # Whether auto-recovery runs in the bookies' processes and replaces lost copies.
    recovers: bool = False
    # With proxies, clients connect to these instead of to the brokers.
    proxies: int = 0
    # A topic's ledger is full with so many entries.
    ledger_entries_max: int = SHORT_LEDGERS.ledger_entries_max


# The clusters that stories of messages run on, in turn; and the faults in short runs, each of which
# is over soon.
SHAPES = (Shape(), Shape(brokers=2), Shape(4, 2, Sizes(3, 3, 2)))
SHORT_FAULTS = replace(FULL_MENU, down_s_max=1.0, pause_s_max=1.5, partition_s_max=1.5)


class Cluster:
    """The bookies (``storage``), brokers and proxies of a ``shape``; ``open`` starts them.

    - ``ledgers`` says how patient brokers are with bookies, ``replication`` how they replicate,
      ``config`` has their other settings.
    - ``site`` is given where the world has several clusters: the hosts, ZooKeeper and name of this
      one.
    - ``acknowledges_all``: every consumer acknowledges what it receives, so the limits on messages
      that are unacknowledged may be small.
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
        # Where this cluster's hosts and its ZooKeeper are.
        self.place: World | Site = site or world
        self.brokers = [self.place.host(f"broker-{number}") for number in range(shape.brokers)]
        self.proxies = [self.place.host(f"proxy-{number}") for number in range(shape.proxies)]
        # Where clients connect, all addresses in one URL.
        fronts = self.proxies or self.brokers
        addresses = ",".join(f"{front.name}:{BROKER_PORT}" for front in fronts)
        self.service_url = f"pulsar://{addresses}"
        # The network by which a client on a host reaches the cluster. A story that listens to what
        # passes replaces it. Not asked for brokers and bookies, which always use their host's.
        self.network_of: Callable[[Host], Network] = lambda host: host.network
        # How the broker on a host asks other brokers over REST. There is no REST here unless a
        # story provides it.
        self.calls_of: Callable[[Host], RestCalls] = lambda _: NO_CALLS

        # One object for the whole cluster: whether sizes are drawn at all is decided once.
        drawn = self.storage.sizes
        self._ledgers = drawn.of(ledgers, LEDGERS)
        # Options of each client, unless it is given others: the sizes of this seed.
        self.client_options: dict[str, Any] = {}
        if memory_bytes := drawn.number("clients", 0, CLIENT_MEMORY_BYTES):
            self.client_options["memory_limit_bytes"] = memory_bytes
        if redirects := drawn.number("lookups", 0, CLIENT_REDIRECTS):
            self.client_options["lookup_redirects_max"] = redirects
        self._knobs = {**BROKER, **(UNACKNOWLEDGED if acknowledges_all else {})}
        self._replication = replication or ReplicationConfig()
        self._config = config or BrokerConfig()

        #     (broker-0, life 1)  killed, still in the table
        #     (broker-0, life 2)  serves         ◀── ``host.lives`` is 2
        #
        # A process is known by its host and the number of the host's life: what a host runs after a
        # crash is another process. A process that was killed cannot leave these tables by itself,
        # so readers compare the number with the host's current one.
        self._serving: dict[tuple[Host, int], tuple[Broker, SimulatedSession]] = {}
        self._serving_proxies: dict[tuple[Host, int], Proxy] = {}
        # The ZooKeeper session of each broker, from when the broker begins to start. Earlier than
        # ``_serving``: a broker that starts already acts on what it reads.
        self._sessions: dict[tuple[Host, int], SimulatedSession] = {}
        # The virtual second at which a broker last learned that its session was over.
        self._expiry_noticed_s = -FORMER_OWNER_S

    async def open(self) -> None:
        """Write the cluster's records into ZooKeeper and start its processes."""
        # Before the brokers, whose first ledgers wait for bookies.
        await self.storage.open()
        async with self.place.host("setup").coordination() as setup:
            await initialize_cluster_metadata(
                setup,
                self.name,
                ClusterUrls(f"http://{self.brokers[0].name}:8080", self.service_url),
                instance_id="00000000-0000-0000-0000-000000000001",
            )
        for broker in self.brokers:
            broker.start(partial(_keep_running, self._broker_process))
        for proxy in self.proxies:
            proxy.start(partial(_keep_running, self._proxy_process))

    async def create_namespace(self, namespace: NamespaceName, policies: Policies) -> None:
        """Create a namespace with these policies; it is in this cluster unless they name others."""
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

    @asynccontextmanager
    async def _broker_process(self, host: Host) -> AsyncGenerator[None]:
        # Taken now: by the time this process is left, the host may live again.
        life = host, host.lives
        shape = self.shape
        log = replace(
            SHORT_LEDGERS,
            ledger_entries_max=shape.ledger_entries_max,
            ensemble_size=shape.sizes.ensemble,
            write_quorum=shape.sizes.write_quorum,
            ack_quorum=shape.sizes.ack_quorum,
        )
        config = replace(
            self._config,
            cluster=self.name,
            bind_address=host.name,
            port=BROKER_PORT,
            ledgers=self._ledgers,
            replication=self._replication,
            policies=replace(
                self._config.policies,
                log=log,
                delayed=SMALL_BUCKETS,
                publishing=FREQUENT_SNAPSHOTS,
            ),
        )

        # Called in the broker's process, when its client of ZooKeeper learns it: that may be long
        # after the session has ended.
        def changed(state: SessionState) -> None:
            if state is SessionState.EXPIRED:
                self._expiry_noticed_s = self.world.loop.now_s

        async with host.coordination() as session:
            self._sessions[life] = session
            session.on_session(changed)
            async with Broker(
                self.storage.sizes.of(config, self._knobs),
                coordination=session,
                network=host.network,
                clock=host.clock,
                random=host.random,
                authorize=allow_all,
                calls=self.calls_of(host),
            ) as broker:
                self._serving[life] = broker, session
                yield
                # Only after an orderly end. What is killed does not come here (see ``_serving``).
                del self._serving[life]

    @asynccontextmanager
    async def _proxy_process(self, host: Host) -> AsyncGenerator[None]:
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
        """The brokers that serve now, each with whether ZooKeeper still holds its session."""
        return [
            (broker, self.place.zookeeper.is_alive(session.session_id))
            for (host, life), (broker, session) in self._serving.items()
            if host.lives == life and host.is_running
        ]

    def serving_proxies(self) -> list[tuple[Host, Proxy]]:
        """The proxies that serve now, with their hosts."""
        return [
            (host, proxy)
            for (host, life), proxy in self._serving_proxies.items()
            if host.lives == life and host.is_running
        ]

    def has_former_owner(self) -> bool:
        """Whether a broker serves topics though its session is over, or did so a moment ago.

        Such a broker does not know it yet, while others may already own its topics. Its consumers
        receive what it has, acknowledged or not (docs/decisions/cluster.md, "A broker without
        ZooKeeper keeps serving what it owns"). Its answers to acknowledgements and publishes hold
        all the same.
        """
        if self.world.loop.now_s < self._expiry_noticed_s + FORMER_OWNER_S:
            return True
        return not all(is_alive for _, is_alive in self.serving())

    def knows_until_s(self, host_name: str) -> float:
        """The virtual second up to which the broker on this host knows all changes in ZooKeeper.

        For a host that is no broker's, such as a proxy, the earliest of all brokers; minus infinity
        where a broker has no session yet.
        """
        # A proxy asks any broker: it knows what the slowest of them knows.
        asked = [each for each in self.brokers if each.name == host_name] or self.brokers
        sessions = [self._sessions.get((each, each.lives)) for each in asked]
        return min(-inf if each is None else each.knows_until_s for each in sessions)

    def broker(self, host: Host) -> Broker | None:
        """The broker that serves on this host now; None while none does."""
        serving = self._serving.get((host, host.lives))
        return serving[0] if serving is not None and host.is_running else None

    async def do(self, host: Host, what: Callable[[Broker], Coroutine[Any, Any, object]]) -> None:
        """Run ``what`` in the process of the broker on ``host``; nothing happens while none serves.

        Raises ``HostCrashed`` where the host crashes meanwhile, and what ``what`` raises.
        """
        broker = self.broker(host)
        if broker is not None:
            # In its process: what the broker schedules now dies with it.
            await host.run(what(broker))

    async def do_everywhere(self, what: Callable[[Broker], Coroutine[Any, Any, object]]) -> None:
        """Run ``what`` in each broker, one after the other; a broker that fails is passed over."""
        for host in self.brokers:
            # Faults may strike at any moment, so a story cannot rely on a broker to do it.
            with suppress(GemingaError, HostCrashed):
                await self.do(host, what)

    def client(self, name: str) -> Opening[Client]:
        """A client on a host of its own, to be used with ``async with``."""
        host = self.place.host(name)
        return connect(
            self.service_url,
            network=self.network_of(host),
            clock=host.clock,
            random=host.random,
            **self.client_options,
        )


async def _keep_running(
    make: Callable[[Host], AbstractAsyncContextManager[None]], host: Host
) -> None:
    """Run the process that ``make`` opens until the host stops; start it again after an error."""
    while not host.is_stopping:
        try:
            async with make(host):
                # The simulator shows it when a run is stuck.
                host.status = "serves"
                await host.until_stopped()
        # Any other error is a bug: it ends the process, and the run with it
        # (``verdicts.raise_failures``).
        except GemingaError as error:
            host.status = f"could not start: {error!r}"
            await asyncio.sleep(RESTART_S)
