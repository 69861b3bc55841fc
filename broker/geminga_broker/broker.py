"""The broker put together: what it is made of, and what opens in which order.

Everything outside (network, ZooKeeper, clock, chance) comes in through the constructor, so that the
same broker runs as a process and inside a simulation.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from functools import partial
from random import Random

from geminga_broker.admin.facade import Services
from geminga_broker.administration import Administration
from geminga_broker.discovery import Discovery
from geminga_broker.figures import BrokerFigures
from geminga_broker.health import HealthCheck
from geminga_broker.log.entry_cache import EntryCache
from geminga_broker.log.logs import Logs
from geminga_broker.metadata.clusters import Clusters
from geminga_broker.metadata.initialize import check_initialized
from geminga_broker.metadata.namespaces import Namespaces
from geminga_broker.metadata.partitioned_topics import PartitionedTopics
from geminga_broker.metadata.persistent_topics import PersistentTopics
from geminga_broker.metadata.policy_follower import PolicyFollower
from geminga_broker.metadata.tenants import Tenants
from geminga_broker.metadata.topic_lists import TopicLists
from geminga_broker.options import BrokerOptions
from geminga_broker.ownership.address import BrokerAddress
from geminga_broker.ownership.brokers import Brokers
from geminga_broker.ownership.bundles import Bundle
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.producer_names import ProducerNames
from geminga_broker.sessions.connection import Connection
from geminga_broker.sessions.context import SessionContext
from geminga_broker.topics.directory import TopicDirectory
from geminga_ledger import Ledgers
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_runtime.network import Network
from geminga_runtime.service import Service
from geminga_server.authorization import Authorizer

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
        # What stores
        self.ledgers = Ledgers(coordination, network, clock, random, options.ledgers)
        self._cache = _cache(options)
        self._logs = self._new_logs()
        # What is known of the cluster, and what of it is ours
        self.namespaces = Namespaces(coordination)
        self.partitioned_topics = PartitionedTopics(coordination)
        self.persistent_topics = PersistentTopics(coordination)
        self.topic_lists = TopicLists(coordination)
        self.address = _address(options)
        self.ownership = Ownership(
            coordination,
            self.namespaces,
            self.address,
            former_broker_ids=options.former_broker_ids,
        )
        # What serves
        self.topics = self._new_topics()
        self.discovery = self._new_discovery()
        self._context = self._session_context()
        self._is_unload_due = False
        # What is told of it, to other brokers and to the REST side
        health = HealthCheck(self.topics, clock, self.address.broker_id)
        self.figures = self._new_figures(health)
        self.brokers = Brokers(
            coordination,
            clock,
            self.address,
            self.figures.load,
            version=options.version,
            former_broker_ids=options.former_broker_ids,
        )
        self.administration = Administration(
            self.topics, self.ledgers, self.ownership, health, self.figures
        )
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
        await stack.enter_async_context(self.topic_lists)
        stack.callback(self._close_connections)
        await stack.enter_async_context(self.brokers)
        self.discovery.open()
        await stack.enter_async_context(self._policy_follower())
        self.spawn(self._renew_figures(), name="renew figures")
        self.spawn(self._enforce_quotas(), name="enforce quotas")
        self.spawn(self._sweep_deduplication(), name="sweep deduplication")
        self.spawn_lasting(self._expire_messages, name="expire messages")
        self.spawn_lasting(self._check_compaction, name="check compaction")
        self.spawn_lasting(self._delete_unused, name="delete unused topics")

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
            stamps=self.options.stamps,
        )

    def _new_topics(self) -> TopicDirectory:
        return TopicDirectory(
            self._logs,
            self._clock,
            owns=self.ownership.owns,
            policies=self.namespaces.policies,
            quotas=self.options.backlog_quotas,
            publishing=self.options.publishing,
            cluster=self.options.cluster,
            unacknowledged=self.options.unacknowledged_limits,
            compaction=self.options.compaction,
            delayed=self.options.delayed,
            expiry=self.options.expiry,
            subscribing=self.options.subscribing,
            inactivity=self.options.inactivity_default,
            dispatching=self.options.dispatching,
            close_budget_s=self.options.close_budget_s,
        )

    def _new_discovery(self) -> Discovery:
        return Discovery(
            self.ownership,
            self.namespaces,
            self.partitioned_topics,
            self.persistent_topics,
            non_persistent_topics=self.topics.non_persistent_in,
            auto_creation=self.options.auto_creation,
        )

    def _new_figures(self, health: HealthCheck) -> BrokerFigures:
        return BrokerFigures(
            self._clock,
            topics=self.topics,
            cache=self._cache,
            ledger_counters=self.ledgers.counters,
            sessions=self._context,
            health=health,
            ownership=self.ownership,
        )

    def _session_context(self) -> SessionContext:
        names = ProducerNames(self._coordination, self.options.cluster)
        return SessionContext(
            topics=self.topics,
            discovery=self.discovery,
            topic_lists=self.topic_lists,
            authorizer=self._authorizer,
            clock=self._clock,
            next_producer_name=names.next,
            max_message_bytes=self.options.max_message_bytes,
            exposes_broker_entries=self.options.exposing_broker_entry_metadata_to_client_enabled,
            matches_patterns=self.options.matches_patterns,
            pattern_length_max=self.options.pattern_length_max,
            keepalive_s=self.options.keepalive_s,
        )

    def _connection(self) -> Connection:
        return Connection(self._context)

    # Ownership

    def _bundle_lost(self, bundle: Bundle) -> None:
        """Somebody else may own it now: stop serving at once. Of many that are lost together the
        topics are looked for once."""
        del bundle
        if not self._is_unload_due:
            self._is_unload_due = True
            self.topics.spawn(self._unload_lost(), name="unload what was lost")

    async def _unload_lost(self) -> None:
        self._is_unload_due = False
        await self.topics.unload_where(lambda topic: not self.ownership.owns(topic))

    async def _bundle_released(self, bundle: Bundle) -> None:
        """Close its topics in order before it is handed on."""
        await self.topics.unload_where(partial(self.ownership.leaves_with, bundle))

    def _close_connections(self) -> None:
        for connection in list(self._context.connections):
            connection.close()

    # Housekeeping

    async def _renew_figures(self) -> None:
        while True:
            await asyncio.sleep(self.options.stats_period_s)
            await self.figures.renew()

    async def _enforce_quotas(self) -> None:
        while True:
            await asyncio.sleep(self.options.backlog_quota_check_s)
            await self.topics.enforce_quotas()

    async def _expire_messages(self) -> None:
        while True:
            await asyncio.sleep(self.options.expiry.check_s)
            await self.topics.expire_messages()

    async def _sweep_deduplication(self) -> None:
        while True:
            await asyncio.sleep(self.options.publishing.deduplication_check_s)
            await self.topics.sweep_deduplication()

    async def _check_compaction(self) -> None:
        while True:
            await asyncio.sleep(self.options.compaction.check_s)
            await self.topics.check_compaction()

    async def _delete_unused(self) -> None:
        while True:
            await asyncio.sleep(self.options.inactivity.check_s)
            await self.topics.delete_unused()

    # What others ask

    async def check_health(self) -> None:
        """Publish one message and read it back. Raises what went wrong."""
        await self.administration.check_health()

    def services(self) -> Services:
        """Everything the REST side works on."""
        return Services(
            cluster=self.options.cluster,
            version=self.options.version,
            broker=self.administration,
            clusters=Clusters(self._coordination),
            tenants=Tenants(self._coordination),
            namespaces=self.namespaces,
            partitioned_topics=self.partitioned_topics,
            persistent_topics=self.persistent_topics,
            ownership=self.ownership,
            brokers=self.brokers,
            authorize=self._authorizer.authorize,
            auto_creation=self.options.auto_creation,
            force_deletes_namespaces=self.options.force_deletes_namespaces,
            force_deletes_tenants=self.options.force_deletes_tenants,
        )


def _address(options: BrokerOptions) -> BrokerAddress:
    host, web_port = options.advertised_host, options.web_port
    return BrokerAddress(
        broker_id=f"{host}:{web_port}",
        broker_url=f"pulsar://{host}:{options.port}",
        http_url=f"http://{host}:{web_port}",
    )


def _cache(options: BrokerOptions) -> EntryCache:
    return EntryCache(
        bytes_max=options.cache_bytes_max,
        watermark=options.cache_watermark,
        age_max_s=options.cache_age_max_s,
        wanted_age_max_s=options.cache_wanted_age_max_s,
    )
