"""The broker put together: its parts, and the order in which they open and close.

Everything outside (network, ZooKeeper, clock, randomness) comes in through the constructor, so that
the same broker runs as a process and inside a simulation.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from functools import partial
from random import Random

from geminga import Client, Opening, connect
from geminga_broker.admin.administration import Administration
from geminga_broker.admin.bundle_calls import BundleCalls
from geminga_broker.admin.services import Services
from geminga_broker.config import BrokerConfig
from geminga_broker.discovery import Discovery
from geminga_broker.health import HealthCheck
from geminga_broker.load_manager.history_records import HistoryRecords
from geminga_broker.load_manager.load_manager import LoadManager
from geminga_broker.load_manager.process_usage import Usage
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.writing.broker_entry_metadata import BrokerEntryFields
from geminga_broker.metrics.collector import BrokerMetrics
from geminga_broker.non_persistent_topics import NonPersistentTopics
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.assignment.placement import evenly_spread
from geminga_broker.ownership.brokers import Brokers
from geminga_broker.ownership.clusters import ServingClusters
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.policies.resolver import PolicyResolver
from geminga_broker.policy_follower import PolicyFollower
from geminga_broker.replicated_topics import ReplicatedTopics
from geminga_broker.replication.remote_clusters import (
    CallsOver,
    RemoteClusters,
    tls_of,
)
from geminga_broker.replication.remote_topics import RemoteTopics
from geminga_broker.replication.replicator import ReplicationServices
from geminga_broker.sessions.connection import Connection
from geminga_broker.sessions.context import ProducerNames, SessionContext
from geminga_broker.topic_policies.store import TopicPolicyStore
from geminga_broker.topics.directory import Successor, TopicDirectory
from geminga_broker.topics.maintenance import PeriodicWork, TopicMaintenance
from geminga_cluster.clusters import Clusters
from geminga_cluster.initialize import check_initialized
from geminga_cluster.namespaces import Namespaces, serves
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_cluster.persistent_topics import PersistentTopics
from geminga_cluster.tenants import Tenants
from geminga_cluster.topic_lists import TopicLists
from geminga_ledger import Ledgers
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_runtime.network import Network
from geminga_runtime.service import Service
from geminga_server.authentication import AUTHENTICATION_DISABLED, Authentication
from geminga_server.authorization import Authorize
from geminga_server.connection_limits import ConnectionLimits
from geminga_server.http.rest_calls import NO_CALLS, RestCalls

log = logging.getLogger(__name__)

# The version of Apache Pulsar that this broker presents itself as, to clients and other brokers.
PULSAR_VERSION = "4.0.6"


class Broker(Service):
    """One broker. Entered, it serves; left, it hands its topics back in order."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        coordination: Coordination,
        configuration_store: Coordination | None = None,
        network: Network,
        clock: Clock,
        random: Random,
        authorize: Authorize,
        authentication: Authentication = AUTHENTICATION_DISABLED,
        tls_network: Network | None = None,
        calls: RestCalls = NO_CALLS,
        remote_calls: CallsOver | None = None,
        usage: Usage | None = None,
    ) -> None:
        """``configuration_store`` is what clusters share, if that is not ``coordination``.

        ``tls_network`` accepts connections with TLS. ``calls`` makes requests to other brokers,
        ``remote_calls`` to those of other clusters. ``usage`` measures the process, for load
        reports.
        """
        super().__init__()
        assert min(config.ports.values()) > 0, "the ports go into records: choose them first"
        self.config = config
        self.address = config.address
        self._coordination = coordination
        self._configuration = configuration_store or coordination
        self._network = network
        self._tls_network = tls_network
        self._clock = clock
        self._random = random
        self._authorize = authorize
        self._authentication = authentication
        self._calls = calls
        # Nothing below opens or connects anything: that is for ``_open``. Of two parts that need
        # each other, the earlier one is given a function that looks the later one up. A constructor
        # of one part takes those that stand below it; ``lambda``s bridge the few places where a
        # lower part asks a higher one, and are called only once the broker is open.
        self._make_storage()
        self._make_ownership()
        self._make_topics(remote_calls)
        self._make_sessions()
        self._make_reports(usage)
        # Topics of lost bundles are about to be closed; see ``_bundle_lost``.
        self._is_unload_due = False

    def _make_storage(self) -> None:
        """The client of BookKeeper, and the managed ledgers over it."""
        config = self.config
        self.ledgers = Ledgers(
            *(self._coordination, self._network, self._clock, self._random, config.ledgers),
            tls=config.bookkeeper_tls.maker,
        )
        self._cache = EntryCache(config.cache)
        self._factory = ManagedLedgerFactory(
            coordination=self._coordination,
            ledgers=self.ledgers,
            cache=self._cache,
            clock=self._clock,
            random=self._random,
            config=config.policies.log,
            stamps=BrokerEntryFields.of(config.broker_entry_metadata_interceptors),
        )

    def _make_ownership(self) -> None:
        """The cluster's metadata, and which bundles this broker has of it."""
        config = self.config
        self.clusters = Clusters(self._configuration)
        self.tenants = Tenants(self._coordination, self._configuration)
        # The configuration store has what clusters share: clusters, tenants, policies, partitioned
        # topics. The rest is in this cluster's own ZooKeeper, which is mostly the same one.
        self.namespaces = Namespaces(self._coordination, self._configuration)
        self.partitioned_topics = PartitionedTopics(self._coordination, self._configuration)
        self.persistent_topics = PersistentTopics(self._coordination)
        self.topic_lists = TopicLists(self._coordination)
        timeout_s = config.load_manager.load_balancer_unload_timeout_s
        self._bundle_calls = BundleCalls(self._calls, unload_timeout_s=timeout_s)
        self.load_manager = LoadManager(
            self._clock,
            config.load_manager,
            # The load manager asks the registrations for the leader, and these report a load that
            # is measured from topics, which need the ownership: a circle, which the two functions
            # break.
            is_leader=lambda: self.brokers.election.is_leader,
            view_brokers=lambda: self.brokers.view(),
            mover=self._bundle_calls,
            count_bundles=self._count_bundles,
            records=HistoryRecords(self._coordination),
        )
        is_balanced = config.load_manager.load_balancer_enabled
        self.ownership = Ownership(
            self._coordination,
            self.namespaces,
            self.address,
            former_broker_ids=config.former_broker_ids,
            # Where a bundle without an owner goes: by load, or evenly.
            placement=self.load_manager.placement.choose if is_balanced else evenly_spread,
            view_brokers=lambda: self.brokers.view(),
            assign=self._bundle_calls.assign,
            clusters=ServingClusters(config.cluster, self.namespaces, self.clusters),
        )
        self.ownership.owned.on_lost.append(self._bundle_lost)
        self.ownership.owned.on_release.append(self._bundle_released)

    def _make_topics(self, remote_calls: CallsOver | None) -> None:
        """The policies of topics, what replicates them, and the topics."""
        config = self.config
        self.topic_policies = TopicPolicyStore(
            self._coordination,
            self.namespaces,
            configuration=self._configuration,
            cluster=config.cluster,
            random=self._random,
            connect=self._connect,
            # Topics and their policies need each other: policies are stored in a topic, whose
            # schema versions the directory's registry knows, and are needed to load any other
            # topic.
            schema_version=lambda topic, number: self.topics.services.schemas.version(
                topic, number
            ),
            in_use=lambda: self.topics.namespaces(),
        )
        self.policies = PolicyResolver(
            config.policies,
            self.namespaces.policies,
            cluster=config.cluster,
            topics=self.topic_policies,
        )
        self.remotes = RemoteClusters(
            self.clusters,
            network=self._network,
            random=self._random,
            calls=remote_calls,
            tls=config.broker_client_tls,
        )
        is_enabled = config.replication.creates_remote_topics
        self.remote_topics = RemoteTopics(self.remotes, is_enabled=is_enabled)
        self.topics = TopicDirectory(
            self._factory,
            self._clock,
            owns=self.ownership.owns,
            suspect=self.ownership.suspect,
            policies=self.policies,
            config=config.topics,
            replication=ReplicationServices(
                remotes=self.remotes,
                clock=self._clock,
                random=self._random,
                config=config.replication,
                partitions_of=self.partitioned_topics.partitions,
                remote_topics=self.remote_topics,
            ),
        )
        # From memory: maintenance counts the load of all topics by bundle, and must not read
        # ZooKeeper for it.
        bundle_of = self.ownership.rings.last_bundle_of
        self._maintenance = TopicMaintenance(self.topics, self._clock, bundle_of=bundle_of)

    def _make_sessions(self) -> None:
        """What clients look up, and what their sessions share."""
        self.non_persistent_topics = NonPersistentTopics(
            self.ownership,
            here=self.topics.non_persistent_in,
            ask_owner=self._bundle_calls.non_persistent_topics,
        )
        self.discovery = Discovery(
            self.ownership,
            self.namespaces,
            self.partitioned_topics,
            self.persistent_topics,
            self.non_persistent_topics,
            auto_creation=self.config.policies.auto_creation,
        )
        # Shared by all sessions of this broker; what belongs to one connection is in its
        # ``Session``.
        self._context = SessionContext(
            topics=self.topics,
            discovery=self.discovery,
            topic_lists=self.topic_lists,
            authorize=self._authorize,
            authentication=self._authentication,
            clock=self._clock,
            next_producer_name=ProducerNames(self._coordination, self.config.cluster).next,
            limits=ConnectionLimits(self.config.connections),
            config=self.config.sessions,
        )

    def _make_reports(self, usage: Usage | None) -> None:
        """What is reported of the broker: its health, its metrics, its registration with its load;
        and what the REST side does with topics."""
        self._health = HealthCheck(self.topics, self._clock, self.address.broker_id)
        self.metrics = BrokerMetrics(
            self._clock,
            topics=self.topics,
            maintenance=self._maintenance,
            cache=self._cache,
            ledger_counters=self.ledgers.counters,
            sessions=self._context,
            health=self._health,
            ownership=self.ownership,
            usage=usage,
            load_counts=self.load_manager.counts,
            shows_bundles=self.config.exposes_bundle_metrics,
        )
        self.brokers = Brokers(
            self._coordination,
            self._clock,
            self.address,
            # The load report is what metrics count, so that the leader and an operator see the same
            # figures.
            self.metrics.load,
            version=PULSAR_VERSION,
            former_broker_ids=self.config.former_broker_ids,
            reports=self.config.load_reports,
        )
        self.administration = Administration(self.topics, self.ledgers, self.ownership)

    # Opening

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open the parts, each after those that it stands on.

        They close in reverse: the registration is deleted, bundles are handed on, connections are
        closed, then the topics that are left, and last the ledgers, once their writers are done.
        """
        # First of all: in a cluster that was not initialized, everything below would fail with
        # worse words.
        await check_initialized(self._configuration, self.config.cluster)
        await stack.enter_async_context(self.ledgers)
        # Before any record is taken over: where the port is in use, another broker of this address
        # serves. Clients that connect early wait for ``discovery``.
        await self._listen(stack)
        await stack.enter_async_context(self.ownership)
        await stack.enter_async_context(self._factory)
        # The clients of other clusters, before the topics whose replicators use them.
        await stack.enter_async_context(self.remotes)
        await stack.enter_async_context(self.remote_topics)
        await stack.enter_async_context(self.topics)
        # Reads its topics through a client of this broker, so it opens after the topics, and closes
        # while they still serve.
        await stack.enter_async_context(self.topic_policies)
        await stack.enter_async_context(self.topic_lists)
        stack.callback(self._close_connections)
        # Bundles are handed on when the broker ends: once it is not registered any more, so that no
        # client is sent here, and while its clients are connected, which are told the next broker.
        stack.push_async_callback(self._hand_on)
        await stack.enter_async_context(self.brokers)
        await stack.enter_async_context(self.load_manager)
        replicated_topics = ReplicatedTopics(
            tenants=self.tenants,
            namespaces=self.namespaces,
            persistent_topics=self.persistent_topics,
            policies=self.policies,
            ownership=self.ownership,
            topics=self.topics,
            is_leader=lambda: self.brokers.election.is_leader,
            view_brokers=self.brokers.view,
        )
        await stack.enter_async_context(replicated_topics)
        # Registered, and with the load manager running: lookups that came early are answered now.
        self.discovery.is_open.set()
        follower = PolicyFollower(
            self.namespaces,
            self._random,
            in_use=self.topics.namespaces,
            apply=self._apply_policies,
            refresh=self.topic_policies.refresh,
        )
        # Before the follower opens, so that no change is missed between the two.
        self.topic_policies.followers.append(follower.topics_changed)
        await stack.enter_async_context(follower)
        config, maintenance = self.config, self._maintenance
        unused_check_s = config.policies.inactivity.check_s
        for name, period_s, work in (
            PeriodicWork("renew metrics", config.stats_period_s, self.metrics.renew),
            PeriodicWork("delete unused topics", unused_check_s, maintenance.delete_unused),
            *maintenance.work_of_parts(),
        ):
            # Last: these are tasks of the broker itself, which end before anything above is closed.
            self.spawn_every(period_s, work, name=name)

    async def _listen(self, stack: AsyncExitStack) -> None:
        """Accept connections on the broker's own ports, and on those of its other listeners."""
        # When the ports are closed: clients may have come while topics were closed.
        stack.callback(self._accept_no_more)
        config = self.config
        for bind in config.binds:
            # The process opens those of REST (``part``).
            if bind.is_web:
                continue
            network = self._tls_network if bind.is_tls else self._network
            assert network is not None, "the config has a certificate for it"
            connection = partial(Connection, self._context, bind.listener)
            listener = await network.listen(connection, bind.host, bind.port)
            stack.push_async_callback(listener.close)

    def _connect(self) -> Opening[Client]:
        """A client of this cluster, which looks topics up at this broker."""
        address, tls = self.address, self.config.broker_client_tls
        # With TLS where the settings ask for it, and where the broker listens without TLS nowhere.
        is_tls = not address.broker_url or (tls.enabled and bool(address.broker_url_tls))
        return connect(
            address.broker_url_tls if is_tls else address.broker_url,
            tls=tls_of(tls) if is_tls else None,
            network=self._network,
            clock=self._clock,
            random=self._random,
        )

    # Policies

    def _apply_policies(
        self, namespace: NamespaceName, policies: Policies, only: Collection[TopicName] | None
    ) -> None:
        """Apply policies to the topics of a namespace, or close the topics where the policies do
        not name this cluster any more.

        What is stored of them stays, with the cursors of replicators: where the cluster is named
        again, they are served and replicated as before.
        """
        if serves(self.config.cluster, policies):
            self.topics.apply_policies(namespace, policies, only)
            return
        # A task of the directory: it goes on while the follower takes up the next change.
        unloading = self.topics.unload_where(lambda topic: topic.namespace == namespace)
        self.topics.spawn(unloading, name="unload what other clusters serve")

    # Ownership

    async def _count_bundles(self, namespace: NamespaceName) -> int:
        return len((await self.ownership.rings.ring_of(namespace)).bundles)

    def _bundle_lost(self, bundle: Bundle) -> None:
        """Stop serving a bundle at once, as another broker may own it now.

        Bundles are mostly lost many at a time, with the ZooKeeper session: their topics are closed
        by one task, which looks for all topics that are not owned any more.
        """
        del bundle
        if not self._is_unload_due:
            self._is_unload_due = True
            self.topics.spawn(self._unload_lost(), name="unload what was lost")

    async def _unload_lost(self) -> None:
        self._is_unload_due = False
        # Bundles that are lost from here on start another task, as the flag is reset.
        await self.topics.unload_where(lambda topic: not self.ownership.owns(topic))

    async def _bundle_released(self, bundle: Bundle, successor: Successor) -> None:
        """Close the topics of a bundle in order, before it is handed on to ``successor``."""
        await self.topics.unload_where(partial(self.ownership.leaves_with, bundle), successor)

    async def _hand_on(self) -> None:
        # Before the bundles are handed on: topics that are closed from now on share one budget of
        # time.
        self.topics.limit_closing()
        # Each bundle is released to its next owner; what does not fit into the time is closed with
        # the topics.
        await self.ownership.retire(self.config.hand_on_budget_s)

    def _accept_no_more(self) -> None:
        self._context.is_over = True
        self._close_connections()

    def _close_connections(self) -> None:
        # A copy: a session that closes takes itself out. The clients look their topics up again,
        # and find the brokers that have taken the bundles over.
        for session in list(self._context.sessions):
            session.close()

    # For the process around it

    async def check_health(self) -> None:
        """Publish one message and read it back. Raises what went wrong."""
        # This acquires the bundle of the health check's topic, if no broker owns it. Always this
        # broker: the namespace is its own (``broker_of_namespace``).
        await self.ownership.owner(self._health.topic)
        await self._health.run()

    def services(self, configuration: Mapping[str, str] | None = None) -> Services:
        """Everything the REST side works on; ``configuration`` has the settings that it shows."""
        return Services(
            cluster=self.config.cluster,
            version=PULSAR_VERSION,
            broker=self.administration,
            metrics_text=partial(
                self.metrics.text,
                cluster=self.config.cluster,
                version=PULSAR_VERSION,
                # Without the port, as upstream labels its metrics.
                host=self.address.broker_id.rpartition(":")[0],
            ),
            check_health=self.check_health,
            clusters=self.clusters,
            tenants=self.tenants,
            namespaces=self.namespaces,
            partitioned_topics=self.partitioned_topics,
            persistent_topics=self.persistent_topics,
            non_persistent_topics=self.non_persistent_topics,
            ownership=self.ownership,
            brokers=self.brokers,
            schemas=self.topics.services.schemas,
            policies=self.policies,
            topic_policies=self.topic_policies,
            authorize=self._authorize,
            calls=self._calls,
            remote_topics=self.remote_topics,
            auto_creation=self.config.policies.auto_creation,
            config=self.config.admin,
            configuration=configuration or {},
        )
