"""Reads what the parts of the broker count: for ``/metrics`` and for the broker's load report.

Rates are averages over the stats period, at whose end ``renew`` is called; everything else is read
at the moment of the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest

from geminga_broker.compaction.report import CompactionStatus
from geminga_broker.health import HealthCheck
from geminga_broker.load_manager.balancing.cluster_load import cost_of
from geminga_broker.load_manager.load_manager import LoadCounts
from geminga_broker.load_manager.process_usage import Usage
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.metrics.exposition import render
from geminga_broker.metrics.snapshot import (
    SUMMARY_QUANTILES,
    BrokerSnapshot,
    BundleSnapshot,
    CacheSnapshot,
    ConnectionsSnapshot,
    LoadSnapshot,
    LookupsSnapshot,
    ReplicatorSnapshot,
    SubscriptionSnapshot,
    TopicSnapshot,
)
from geminga_broker.ownership.assignment.load_report import used_share
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.replication.replicator import Replicator
from geminga_broker.sessions.context import SessionContext
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.backlog import Backlog
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.maintenance import TopicMaintenance
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.subscriptions.non_persistent_subscriptions import (
    NonPersistentSubscriptions,
)
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.subscriptions.subscription_registry import TopicSubscription
from geminga_broker.topics.topic import Topic
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_broker.topics.topic_replication import TopicReplication
from geminga_ledger import LedgerCounters
from geminga_protocol.records.cluster.brokers import BundleStats, LocalBrokerData
from geminga_runtime.clock import Clock
from geminga_server.metrics import Meter

# A node of ZooKeeper holds 1 MB: the names of 10,000 bundles, and the stats of the 2,000 busiest of
# them, take that much. The leader counts the others as idle.
REPORTED_BUNDLES_MAX = 2_000


class BrokerMetrics:
    """The figures of one broker, collected from its parts."""

    def __init__(
        self,
        clock: Clock,
        *,
        topics: TopicDirectory,
        maintenance: TopicMaintenance,
        cache: EntryCache,
        ledger_counters: LedgerCounters,
        sessions: SessionContext,
        health: HealthCheck,
        ownership: Ownership,
        usage: Usage | None = None,
        load_counts: LoadCounts | None = None,
        shows_bundles: bool = False,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._maintenance = maintenance
        self._cache = cache
        self._ledger_counters = ledger_counters
        self._sessions = sessions
        self._health = health
        self._ownership = ownership
        self._usage = usage or Usage()
        self._load_counts = load_counts or LoadCounts()
        self._shows_bundles = shows_bundles
        # Hits and misses of the entry cache: entries, then bytes, of both. The meter turns these
        # running sums into rates, once a period.
        self._cache_meter = Meter(clock.monotonic(), 0, 0, 0, 0)
        # How often the cache's bound was exceeded: in all, at the last ``renew``; and in the last
        # period, which is what upstream shows.
        self._evictions = 0
        self._evictions_in_period = 0

    async def renew(self) -> None:
        """Begin a new stats period."""
        # In this order, so that the load report that is made from now on has rates and usage of one
        # period.
        self._usage.renew()
        await self._maintenance.renew_rates()
        self._sessions.counts.lookup_durations.renew()
        self._topics.services.schemas.counts.renew()
        cache = self._cache
        self._cache_meter.tick(
            self._clock.monotonic(), cache.hits, cache.hit_bytes, cache.misses, cache.missed_bytes
        )
        self._evictions_in_period = cache.evictions - self._evictions
        self._evictions = cache.evictions

    def load(self) -> LocalBrokerData:
        """The load report; connections and rates are those of the last stats period."""
        totals = self._maintenance.totals
        owned = list(self._ownership.owned.generations)
        bundles = tuple(sorted(map(str, owned)))
        # Replaced as a whole at the end of each period, so that totals and bundles belong together.
        by_bundle = self._maintenance.totals_by_bundle
        # A bundle that was acquired since the last period has no totals yet.
        stats = {
            str(bundle): BundleStats(
                msg_rate_in=each.rate_in,
                msg_throughput_in=each.throughput_in,
                msg_rate_out=each.rate_out,
                msg_throughput_out=each.throughput_out,
                consumer_count=each.consumers,
                producer_count=each.producers,
                topics=each.topics,
            )
            for bundle in owned
            if (each := by_bundle.get(bundle)) is not None
        }
        # Names of all bundles are reported in any case: the leader must see which broker has which.
        if len(stats) > REPORTED_BUNDLES_MAX:
            busiest = nlargest(REPORTED_BUNDLES_MAX, stats, key=lambda name: cost_of(stats[name]))
            stats = {name: stats[name] for name in busiest}
        return LocalBrokerData(
            num_topics=len(self._topics.loaded),
            num_bundles=len(bundles),
            bundles=bundles,
            num_producers=totals.producers,
            num_consumers=totals.consumers,
            msg_rate_in=totals.rate_in,
            msg_throughput_in=totals.throughput_in,
            msg_rate_out=totals.rate_out,
            msg_throughput_out=totals.throughput_out,
            # Sorted, so that two reports of the same load are the same bytes, whatever order
            # bundles came in.
            last_stats=dict(sorted(stats.items())),
            cpu=self._usage.cpu,
            memory=self._usage.memory,
            # The leader compares brokers by it.
            max_resource_usage=used_share(self._usage.cpu),
        )

    def text(self, *, cluster: str, version: str, host: str) -> Iterator[str]:
        """What ``/metrics`` shows, in pieces; ``host`` is this broker's address without a port."""
        # The figures are taken before the first piece is asked for: what is written later is of the
        # same moment.
        return render(self.snapshot(), cluster=cluster, version=version, host=host)

    def snapshot(self) -> BrokerSnapshot:
        """All figures as they are now. Nothing is awaited, so that they are of one moment."""
        topics = self._topics
        counts = self._sessions.counts
        return BrokerSnapshot(
            # One pass over all topics. It blocks the loop for as long as it takes; ``render`` does
            # not.
            topics=[topic_snapshot(topic) for topic in topics.loaded.values()],
            cache=self._cache_snapshot(),
            ledger_counts=self._ledger_counters.by_metric(),
            connections=ConnectionsSnapshot(
                active=len(self._sessions.sessions),
                created_total=counts.connections_made,
                created_successfully=counts.connections_greeted,
                failed=counts.connections_refused,
                closed_total=counts.connections_closed,
                connections_max=self._sessions.limits.connections_max,
                refused=self._sessions.limits.refused,
            ),
            lookups=LookupsSnapshot(
                answers_total=counts.lookups_answered,
                redirects_total=counts.lookups_redirected,
                failures_total=counts.lookups_failed,
                pending=counts.lookups_pending,
                topic_loads_pending=len(topics.loading),
                topic_loads_failed=topics.loads_failed,
            ),
            publish_latency_ms=topics.services.publish_durations.summary(SUMMARY_QUANTILES),
            lookup_ms=counts.lookup_durations.summary(SUMMARY_QUANTILES),
            topic_load_ms=topics.load_durations.summary(SUMMARY_QUANTILES),
            is_healthy=self._health.is_healthy,
            load=LoadSnapshot(
                cpu_percent=used_share(self._usage.cpu) * 100,
                memory_percent=used_share(self._usage.memory) * 100,
                moves=self._load_counts.moves.total(),
                shed_brokers=len(self._load_counts.moves),
                splits=self._load_counts.splits.total(),
            ),
            # A series per bundle and figure: only where the broker's settings ask for it.
            bundles=self._bundle_snapshots() if self._shows_bundles else [],
            schemas=topics.services.schemas.counts.by_namespace,
        )

    def _bundle_snapshots(self) -> list[BundleSnapshot]:
        by_bundle = self._maintenance.totals_by_bundle
        return [
            BundleSnapshot(
                name=str(bundle),
                msg_rate_in=totals.rate_in,
                msg_rate_out=totals.rate_out,
                msg_throughput_in=totals.throughput_in,
                msg_throughput_out=totals.throughput_out,
                topics=totals.topics,
                consumers=totals.consumers,
                producers=totals.producers,
            )
            for bundle in self._ownership.owned.generations
            # None for a bundle that was acquired since the last stats period.
            if (totals := by_bundle.get(bundle)) is not None
        ]

    def _cache_snapshot(self) -> CacheSnapshot:
        cache = self._cache
        hits_rate, hits_throughput, misses_rate, misses_throughput = self._cache_meter.rates
        return CacheSnapshot(
            # Non-persistent topics have no log.
            managed_ledgers=sum(each.name.is_persistent for each in self._topics.loaded.values()),
            used_bytes=cache.used_bytes,
            # Both only grow: what was put in, less what was taken out, is in the cache now.
            entries=cache.inserted - cache.evicted,
            hits_rate=hits_rate,
            hits_throughput=hits_throughput,
            misses_rate=misses_rate,
            misses_throughput=misses_throughput,
            evictions=self._evictions_in_period,
            inserted_entries_total=cache.inserted,
            evicted_entries_total=cache.evicted,
        )


def topic_snapshot(topic: Topic) -> TopicSnapshot:
    """What the metrics show of ``topic``."""
    # Of the last period; everything below that is called a total counts since the topic was loaded.
    rate_in, throughput_in, rate_out, throughput_out = topic.meter.rates
    if topic.name.is_persistent:
        stored = topic.part(PersistentSubscriptions).subscriptions.values()
        subscriptions = [stored_subscription_snapshot(each) for each in stored]
    else:
        volatile = topic.part(NonPersistentSubscriptions).subscriptions.values()
        subscriptions = []
        for each in volatile:
            shown = _subscription_snapshot(each)
            shown.drop_rate = each.drop_meter.rates[0]
            subscriptions.append(shown)
    snapshot = TopicSnapshot(
        namespace=str(topic.name.namespace),
        name=str(topic.name),
        producers=len(topic.publishing.producers.by_name),
        consumers=sum(each.consumers for each in subscriptions),
        rate_in=rate_in,
        rate_out=rate_out,
        throughput_in=throughput_in,
        throughput_out=throughput_out,
        messages_in_total=topic.publishing.messages_in,
        bytes_in_total=topic.publishing.bytes_in,
        # In the last stats period.
        average_message_bytes=throughput_in / rate_in if rate_in else 0.0,
        publish_pauses=topic.publishing.gate.pauses,
        # The backlog of a topic is that of its slowest subscription.
        backlog=max((each.backlog for each in subscriptions), default=0),
        # The topic's own rates are the sums over its subscriptions, which have been built just now.
        ack_rate=sum(each.ack_rate for each in subscriptions),
        delayed_index_bytes=sum(each.delayed_index_bytes for each in subscriptions),
        delayed_buckets=sum(each.delayed_buckets for each in subscriptions),
        delayed_loaded=sum(each.delayed_loaded for each in subscriptions),
        subscriptions=subscriptions,
    )
    if topic.name.is_persistent:
        _add_storage(snapshot, topic)
    return snapshot


def _add_storage(snapshot: TopicSnapshot, topic: Topic) -> None:
    """Add what only a topic with a log has."""
    stored_bytes = topic.managed_ledger.chain.total_bytes
    # As upstream, all replicas of an entry count as one in both. The log counts each entry once,
    # however many bookies have it.
    snapshot.storage_bytes = snapshot.storage_logical_bytes = stored_bytes
    stored = topic.part(PersistentSubscriptions)
    snapshot.backlog_bytes = max((each.backlog_bytes for each in stored.cursors()), default=0)
    # The quotas, and what was found when the age of the backlog was last checked.
    backlog = topic.part(Backlog)
    size, age, oldest = topic.policies.quotas.size, topic.policies.quotas.age, backlog.oldest
    if size is not None:
        snapshot.backlog_quota_bytes = size.limit
    if age is not None:
        snapshot.backlog_quota_age_s = age.limit
    if oldest is not None:
        snapshot.backlog_age_s = backlog.age_s(oldest)
    snapshot.size_evictions_total = backlog.size_evictions
    snapshot.age_evictions_total = backlog.age_evictions
    report = topic.part(TopicCompaction).report
    # Topics that were never compacted have no families of it.
    if report.status is not CompactionStatus.NOT_RUN:
        snapshot.compaction = report
    (
        snapshot.storage_write_rate,
        snapshot.storage_read_rate,
        snapshot.storage_read_cache_misses_rate,
    ) = stored.entry_meter.rates
    replicators = topic.part(TopicReplication).replicators
    if replicators:
        # The replicator of the other cluster publishes here as an ordinary producer, under a name
        # by which it is recognized (``Replicator.opposite``).
        producers = topic.publishing.producers.by_name
        snapshot.replicators = [
            replicator_snapshot(remote, each, producers.get(each.opposite))
            for remote, each in replicators.items()
        ]
    # None until something is published.
    if topic.publishing.write_latency is not None:
        snapshot.write_latency_ms = topic.publishing.write_latency.shown


def replicator_snapshot(
    remote: str, replicator: Replicator, inbound: Producer | None
) -> ReplicatorSnapshot:
    """What the metrics show of the replication to one cluster, and from there.

    ``inbound`` is the producer of the remote cluster's replicator, if it is connected.
    """
    rate_out, throughput_out, rate_expired = replicator.meter.rates
    # Not connected: nothing comes from there at present.
    rate_in, throughput_in, _ = (0.0, 0.0, 0.0) if inbound is None else inbound.meter.rates
    return ReplicatorSnapshot(
        remote=remote,
        rate_in=rate_in,
        throughput_in=throughput_in,
        rate_out=rate_out,
        throughput_out=throughput_out,
        rate_expired=rate_expired,
        backlog=replicator.cursor.backlog_entries,
        connected=int(replicator.is_connected),
        disconnected=int(not replicator.is_connected),
        delay_s=replicator.delay_s,
        stalls_total=replicator.stalls,
    )


def _subscription_snapshot(subscription: TopicSubscription) -> SubscriptionSnapshot:
    """What subscriptions of all topics have in common."""
    # Consumers that are connected now. What those that are gone were sent is in ``sent``.
    consumers, sent = subscription.consumers, subscription.sent()
    rates = [each.meter.rates for each in consumers]
    return SubscriptionSnapshot(
        name=subscription.name,
        consumers=len(consumers),
        unacked=sum(each.unacknowledged for each in consumers),
        is_blocked_on_unacked=any(each.is_blocked_on_unacknowledged for each in consumers),
        rate_out=sum(each[0] for each in rates),
        throughput_out=sum(each[1] for each in rates),
        rate_redeliver=sum(each[2] for each in rates),
        ack_rate=sum(each[3] for each in rates),
        last_consumed_ms=max((each.last_sent_ms for each in consumers), default=0),
        bytes_out_total=sent.size_bytes,
        messages_out_total=sent.messages,
    )


def stored_subscription_snapshot(subscription: Subscription) -> SubscriptionSnapshot:
    """What the metrics show of a subscription with a cursor."""
    snapshot = _subscription_snapshot(subscription)
    dispatcher, figures = subscription.membership.dispatcher, subscription.figures()
    snapshot.backlog = subscription.cursor.backlog_entries
    snapshot.delayed = figures.delayed
    snapshot.backlog_no_delayed = max(0, snapshot.backlog - snapshot.delayed)
    snapshot.delayed_index_bytes = figures.delayed_bytes
    snapshot.delayed_buckets = figures.delayed_buckets
    snapshot.delayed_loaded = figures.delayed_loaded
    # None while no consumer has subscribed since the topic was loaded: nothing waits for a
    # redelivery.
    snapshot.in_replay = dispatcher.redelivery_backlog if dispatcher else 0
    snapshot.stalls = subscription.membership.stalls
    snapshot.expired_total = figures.expired
    snapshot.last_expired_ms = figures.last_expired_ms
    snapshot.rate_expired = figures.expiry_rate
    snapshot.last_acked_ms = figures.last_acknowledged_ms
    snapshot.last_consumed_flow_ms = figures.last_flow_ms
    snapshot.last_mark_delete_advanced_ms = subscription.cursor.last_mark_delete_ms
    return snapshot
