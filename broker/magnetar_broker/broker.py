"""The broker put together: what opens in which order, and what the REST side may ask of it.

Everything outside (network, ZooKeeper, clock, chance) comes in through the constructor, so that the
same broker runs as a process and inside a simulation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from random import Random

from magnetar_broker.admin.facade import Services, StatsQuery
from magnetar_broker.admin.internal_stats import Document
from magnetar_broker.admin.snapshot import (
    SUMMARY_QUANTILES,
    BrokerSnapshot,
    CacheSnapshot,
    ConnectionsSnapshot,
    LookupsSnapshot,
    SummarySnapshot,
)
from magnetar_broker.admin.stats import TopicStats
from magnetar_broker.admin.topics.internal_stats import internal_stats
from magnetar_broker.admin.topics.stats import topic_snapshot, topic_stats
from magnetar_broker.discovery import Discovery
from magnetar_broker.errors import NotAllowed, TopicNotFound
from magnetar_broker.health import HealthCheck
from magnetar_broker.log.entry_cache import EntryCache
from magnetar_broker.log.logs import Logs
from magnetar_broker.metadata.clusters import Clusters
from magnetar_broker.metadata.initialize import check_initialized
from magnetar_broker.metadata.namespaces import Namespaces
from magnetar_broker.metadata.partitioned_topics import PartitionedTopics
from magnetar_broker.metadata.persistent_topics import PersistentTopics
from magnetar_broker.metadata.policy_follower import PolicyFollower
from magnetar_broker.metadata.tenants import Tenants
from magnetar_broker.options import BrokerOptions
from magnetar_broker.ownership.address import BrokerAddress
from magnetar_broker.ownership.brokers import Brokers
from magnetar_broker.ownership.bundles import Bundle
from magnetar_broker.ownership.ownership import Ownership
from magnetar_broker.producer_names import ProducerNames
from magnetar_broker.sessions.connection import Connection
from magnetar_broker.sessions.context import SessionContext
from magnetar_broker.topics.directory import TopicDirectory
from magnetar_broker.topics.durations import Durations
from magnetar_broker.topics.non_persistent import NonPersistentTopic
from magnetar_broker.topics.persistent import PersistentTopic
from magnetar_broker.topics.rates import Meter
from magnetar_ledger import Ledgers, NoSuchLedger
from magnetar_protocol.pulsar.topic_names import NamespaceName, TopicName
from magnetar_protocol.records.brokers import LocalBrokerData
from magnetar_protocol.records.ledger_metadata import LedgerMetadata
from magnetar_runtime.clock import Clock
from magnetar_runtime.coordination import Coordination
from magnetar_runtime.network import Network
from magnetar_runtime.service import Service
from magnetar_server.authorization import Authorizer

log = logging.getLogger(__name__)


class Broker(Service):
    """One broker. Entered, it serves; left, it hands its topics back in order."""

    def __init__(
        self,
        options: BrokerOptions,
        *,
        coordination: Coordination,
        network: Network,
        clock: Clock,
        random: Random,
        authorizer: Authorizer,
    ) -> None:
        super().__init__()
        self.options = options
        self._coordination = coordination
        self._network = network
        self._clock = clock
        self._random = random
        self._authorizer = authorizer
        self._cache = EntryCache(
            bytes_max=options.cache_bytes_max,
            watermark=options.cache_watermark,
            age_max_s=options.cache_age_max_s,
            wanted_age_max_s=options.cache_wanted_age_max_s,
        )
        self._cache_meter = Meter(clock.monotonic(), 0, 0, 0)
        self.ledgers = Ledgers(coordination, network, clock, random)
        self.namespaces = Namespaces(coordination)
        self.partitioned_topics = PartitionedTopics(coordination)
        self.persistent_topics = PersistentTopics(coordination)
        self.address = _address(options)
        self.ownership = Ownership(
            coordination,
            self.namespaces,
            self.address,
            former_broker_ids=options.former_broker_ids,
        )
        self._logs = self._new_logs()
        self.topics = TopicDirectory(
            self._logs,
            clock,
            owns=self.ownership.owns,
            policies=self.namespaces.policies,
            quotas=options.backlog_quotas,
            close_budget_s=options.close_budget_s,
        )
        self.brokers = Brokers(
            coordination,
            clock,
            self.address,
            self.load,
            version=options.version,
            former_broker_ids=options.former_broker_ids,
        )
        self._health = HealthCheck(self.topics, clock, self.address.broker_id)
        self._context = self._session_context()
        self.ownership.on_lost(self._bundle_lost)
        self.ownership.on_release(self._bundle_released)

    async def _open(self, stack: AsyncExitStack) -> None:
        await check_initialized(self._coordination, self.options.cluster)
        await stack.enter_async_context(self.ledgers)
        # Before any record is taken over: where the port is taken, another broker serves. Clients
        # that come early wait for discovery.
        listener = await self._network.listen(
            self._connection, self.options.bind_host, self.options.port
        )
        stack.push_async_callback(listener.close)
        await stack.enter_async_context(self.ownership)
        await stack.enter_async_context(self._logs)
        await stack.enter_async_context(self.topics)
        stack.callback(self._close_connections)
        await stack.enter_async_context(self.brokers)
        self.discovery.open()
        await stack.enter_async_context(self._policy_follower())
        self.spawn(self._renew_rates(), name="renew rates")
        self.spawn(self._enforce_quotas(), name="enforce quotas")

    def _policy_follower(self) -> PolicyFollower:
        return PolicyFollower(
            self.namespaces,
            self._random,
            in_use=self.topics.namespaces,
            apply=self.topics.apply_policies,
        )

    def _new_logs(self) -> Logs:
        return Logs(
            coordination=self._coordination,
            ledgers=self.ledgers,
            cache=self._cache,
            clock=self._clock,
            random=self._random,
            options=self.options.log,
        )

    def _session_context(self) -> SessionContext:
        names = ProducerNames(self._coordination, self.options.cluster)
        self.discovery = Discovery(
            self.ownership,
            self.namespaces,
            self.partitioned_topics,
            self.persistent_topics,
            non_persistent_topics=self.non_persistent_topics,
            auto_creation=self.options.auto_creation,
        )
        return SessionContext(
            topics=self.topics,
            discovery=self.discovery,
            authorizer=self._authorizer,
            clock=self._clock,
            next_producer_name=names.next,
            next_consumer_name=lambda: f"{self._random.getrandbits(40):010x}",
            max_message_bytes=self.options.max_message_bytes,
            keepalive_s=self.options.keepalive_s,
        )

    def _connection(self) -> Connection:
        return Connection(self._context)

    # Ownership

    def _bundle_lost(self, bundle: Bundle) -> None:
        """Somebody else may own it now: stop serving at once."""
        self.topics.spawn(
            self.topics.unload_where(lambda topic: not self.ownership.owns(topic)),
            name=f"unload lost {bundle}",
        )

    async def _bundle_released(self, bundle: Bundle) -> None:
        """Close its topics in order before it is handed on."""
        del bundle
        await self.topics.unload_where(lambda topic: not self.ownership.owns(topic))

    def _close_connections(self) -> None:
        for connection in list(self._context.connections):
            connection.close()

    # Housekeeping

    async def _renew_rates(self) -> None:
        while True:
            await asyncio.sleep(self.options.stats_period_s)
            await self.topics.renew_rates()
            self._context.counts.lookup_durations.renew()
            cache = self._cache
            self._cache_meter.tick(
                self._clock.monotonic(), cache.hits, cache.misses, cache.missed_bytes
            )

    async def _enforce_quotas(self) -> None:
        while True:
            await asyncio.sleep(self.options.backlog_quota_check_s)
            await self.topics.enforce_quotas()

    def load(self) -> LocalBrokerData:
        """What this broker carries; who is connected and the rates as of the last stats period."""
        totals = self.topics.totals
        bundles = tuple(sorted(str(bundle) for bundle in self.ownership.owned()))
        return LocalBrokerData(
            num_topics=self.topics.loaded_count,
            num_bundles=len(bundles),
            bundles=bundles,
            num_producers=totals.producers,
            num_consumers=totals.consumers,
            msg_rate_in=totals.rate_in,
            msg_throughput_in=totals.throughput_in,
            msg_rate_out=totals.rate_out,
            msg_throughput_out=totals.throughput_out,
        )

    # What the REST side asks (BrokerFacade)

    def services(self) -> Services:
        """Everything the REST side works on."""
        return Services(
            cluster=self.options.cluster,
            version=self.options.version,
            broker=self,
            clusters=Clusters(self._coordination),
            tenants=Tenants(self._coordination),
            namespaces=self.namespaces,
            partitioned_topics=self.partitioned_topics,
            persistent_topics=self.persistent_topics,
            ownership=self.ownership,
            brokers=self.brokers,
            authorize=self._authorizer.authorize,
            auto_creation=self.options.auto_creation,
        )

    async def create_topic(self, topic: TopicName, properties: Mapping[str, str]) -> None:
        """Create one topic or one partition. Raises ``TopicExists``."""
        await self.topics.create(topic, properties)

    async def delete_topic(self, topic: TopicName, *, force: bool) -> None:
        """Delete a topic with its ledgers. Raises ``TopicNotFound``, ``TopicBusy``."""
        await self.topics.delete(topic, force=force)

    async def topic_stats(self, topic: TopicName, query: StatsQuery) -> TopicStats:
        """Stats of a topic, which is loaded if it exists. Raises ``TopicNotFound``."""
        loaded = await self.topics.get(topic, create=False)
        return topic_stats(loaded, query, self.address.broker_id)

    async def internal_stats(self, topic: TopicName, *, with_metadata: bool) -> Document:
        """The insides of a topic, which is loaded if it exists. Raises ``TopicNotFound``."""
        loaded = await self.topics.get(topic, create=False)
        metadata: dict[int, LedgerMetadata] = {}
        if with_metadata and isinstance(loaded, PersistentTopic):
            metadata = await self._metadata_of(loaded)
        return internal_stats(loaded, metadata)

    async def _metadata_of(self, topic: PersistentTopic) -> dict[int, LedgerMetadata]:
        found: dict[int, LedgerMetadata] = {}
        for span in topic.managed_ledger.chain.spans:
            with suppress(NoSuchLedger):  # trimmed meanwhile
                found[span.ledger_id] = await self.ledgers.metadata(span.ledger_id)
        return found

    async def unload_topic(self, topic: TopicName) -> None:
        """Close a topic; its clients look it up again. Raises ``TopicNotFound``."""
        if not await self.topics.exists(topic):
            raise TopicNotFound(str(topic))
        await self.topics.unload(topic)

    async def trim_topic(self, topic: TopicName) -> None:
        """Delete ledgers that nobody needs. Raises ``TopicNotFound``."""
        await (await self._persistent(topic)).managed_ledger.trim()

    async def truncate_topic(self, topic: TopicName) -> None:
        """Delete all messages. Raises ``TopicNotFound``."""
        await (await self._persistent(topic)).managed_ledger.truncate()

    async def _persistent(self, topic: TopicName) -> PersistentTopic:
        loaded = await self.topics.get(topic, create=False)
        if not isinstance(loaded, PersistentTopic):
            raise NotAllowed(f"{topic} keeps no messages")
        return loaded

    async def copy_subscriptions(self, source: TopicName, target: TopicName) -> None:
        """Give ``target`` the durable subscriptions of ``source``, from its first message."""
        known = await self.topics.get(source, create=False)
        fresh = await self.topics.get(target, create=False)
        if isinstance(known, PersistentTopic):
            for subscription in known.subscriptions.values():
                if subscription.cursor.is_durable:
                    await fresh.create_subscription(subscription.name, from_earliest=True)

    def non_persistent_topics(self, namespace: NamespaceName) -> list[TopicName]:
        """The non-persistent topics of a namespace that are loaded here."""
        return [
            topic.name
            for topic in self.topics.loaded
            if isinstance(topic, NonPersistentTopic) and topic.name.namespace == namespace
        ]

    def metrics_snapshot(self) -> BrokerSnapshot:
        """What ``/metrics`` shows."""
        cache = self._cache
        loaded = self.topics.loaded
        hits_rate, misses_rate, misses_throughput = self._cache_meter.rates
        counts = self._context.counts
        return BrokerSnapshot(
            topics=[topic_snapshot(topic) for topic in loaded],
            cache=CacheSnapshot(
                managed_ledgers=sum(isinstance(topic, PersistentTopic) for topic in loaded),
                used_bytes=cache.used_bytes,
                entries=cache.entry_count,
                hits_rate=hits_rate,
                misses_rate=misses_rate,
                misses_throughput=misses_throughput,
                inserted_entries_total=cache.inserted,
                evicted_entries_total=cache.evicted,
            ),
            connections=ConnectionsSnapshot(
                active=len(self._context.connections),
                created_total=counts.connections_made,
                created_successfully=counts.connections_greeted,
                failed=counts.connections_refused,
                closed_total=counts.connections_closed,
            ),
            lookups=LookupsSnapshot(
                answers_total=counts.lookups_answered,
                redirects_total=counts.lookups_redirected,
                failures_total=counts.lookups_failed,
                pending=counts.lookups_pending,
                topic_loads_pending=self.topics.loading_count,
                topic_loads_failed=self.topics.loads_failed,
            ),
            publish_latency_ms=_summary(self.topics.publish_durations),
            lookup_ms=_summary(counts.lookup_durations),
            topic_load_ms=_summary(self.topics.load_durations),
            is_healthy=self._health.is_healthy,
        )

    async def check_health(self) -> None:
        """Publish one message and read it back. Raises what went wrong."""
        await self.ownership.owner(self._health.topic)
        await self._health.run()


def _address(options: BrokerOptions) -> BrokerAddress:
    host, web_port = options.advertised_host, options.web_port
    return BrokerAddress(
        broker_id=f"{host}:{web_port}",
        broker_url=f"pulsar://{host}:{options.port}",
        http_url=f"http://{host}:{web_port}",
    )


def _summary(durations: Durations) -> SummarySnapshot:
    return SummarySnapshot(
        values=durations.quantiles(SUMMARY_QUANTILES), count=durations.count, sum=durations.sum_ms
    )
