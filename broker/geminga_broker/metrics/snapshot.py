"""What a broker shows, as plain values, each with the Prometheus families that it is shown in.

The names are Pulsar's, as existing dashboards ask for them; the order is ours. A family is a
counter where its value only grows, a gauge otherwise. Upstream declares nearly all as gauges: that
makes no difference to a query, but to tools that check the format. What the broker does not do yet
(filters) or does not count has no family: one that always shows 0 would be taken for a measurement.

One ``BrokerSnapshot`` is taken per scrape. Counters only grow while a topic stays loaded, rates are
averages over the stats period, and histograms count since the previous refresh (upstream's
sum-then-reset). Nothing here imports a web framework or prometheus_client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from geminga_broker.compaction.report import CompactionReport
from geminga_broker.managed_ledger.writing.write_latency import write_latency_histogram
from geminga_broker.schemas.counts import NamespaceCounts
from geminga_broker.subscriptions.dispatch.dispatch_throttle import Stalls
from geminga_server.connection_limits import Limit
from geminga_server.metrics import Durations, Histogram, Summary
from geminga_server.metrics.exposition import Buckets, Counter, Family, Gauge

# Upstream's quantiles; 0 and 1 are the least and the greatest value of the period.
SUMMARY_QUANTILES = (0.0, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)
# The summary of something that never happened.
NO_SUMMARY = Durations().summary(SUMMARY_QUANTILES)


class BrokerSum(Family):
    """The sum over all topics of the broker."""

    kind = "gauge"


class NamespaceSum(Family):
    """The sum over the persistent topics of a namespace."""

    kind = "gauge"


class DelayedIndexGauge(Family):
    """Shown only of topics and subscriptions that have an index of delayed messages."""

    kind = "gauge"


@dataclass(slots=True, kw_only=True)
class SubscriptionSnapshot:
    """One subscription. Sizes in bytes, timestamps in ms since 1970, rates per second."""

    name: str
    # Entries that are not acknowledged; then without those that wait for their delivery time, and
    # those.
    backlog: Annotated[int, Gauge("pulsar_subscription_back_log")] = 0
    backlog_no_delayed: Annotated[int, Gauge("pulsar_subscription_back_log_no_delayed")] = 0
    delayed: Annotated[int, Gauge("pulsar_subscription_delayed")] = 0
    # Their index: its bytes of memory, its buckets, and how many messages of it are in memory.
    delayed_index_bytes: Annotated[
        int, Gauge("pulsar_subscription_delayed_message_index_size_bytes")
    ] = 0
    delayed_buckets: Annotated[
        int, DelayedIndexGauge("pulsar_delayed_message_index_bucket_total")
    ] = 0
    delayed_loaded: Annotated[int, DelayedIndexGauge("pulsar_delayed_message_index_loaded")] = 0
    # Messages that are to be sent again.
    in_replay: Annotated[int, Gauge("pulsar_subscription_in_replay")] = 0
    # Messages sent, their bytes, those among them that were sent before, and acknowledged ones.
    rate_out: Annotated[float, Gauge("pulsar_subscription_msg_rate_out")] = 0.0
    throughput_out: Annotated[float, Gauge("pulsar_subscription_msg_throughput_out")] = 0.0
    rate_redeliver: Annotated[float, Gauge("pulsar_subscription_msg_rate_redeliver")] = 0.0
    ack_rate: Annotated[float, Gauge("pulsar_subscription_msg_ack_rate")] = 0.0
    rate_expired: Annotated[float, Gauge("pulsar_subscription_msg_rate_expired")] = 0.0
    expired_total: Annotated[int, Gauge("pulsar_subscription_total_msg_expired")] = 0
    # Of non-persistent topics: messages that no consumer could take.
    drop_rate: Annotated[float, Gauge("pulsar_subscription_msg_drop_rate")] = 0.0
    # Sent to consumers that are connected, and not acknowledged.
    unacked: Annotated[int, Gauge("pulsar_subscription_unacked_messages")] = 0
    # A consumer has reached its limit of them, and is sent nothing.
    is_blocked_on_unacked: Annotated[
        bool, Gauge("pulsar_subscription_blocked_on_unacked_messages")
    ] = False
    consumers: Annotated[int, Gauge("pulsar_subscription_consumers_count")] = 0
    # 0 for what never happened.
    last_expired_ms: Annotated[int, Gauge("pulsar_subscription_last_expire_timestamp")] = 0
    last_acked_ms: Annotated[int, Gauge("pulsar_subscription_last_acked_timestamp")] = 0
    last_consumed_flow_ms: Annotated[
        int, Gauge("pulsar_subscription_last_consumed_flow_timestamp")
    ] = 0
    last_consumed_ms: Annotated[int, Gauge("pulsar_subscription_last_consumed_timestamp")] = 0
    last_mark_delete_advanced_ms: Annotated[
        int, Gauge("pulsar_subscription_last_mark_delete_advanced_timestamp")
    ] = 0
    # Since the topic was loaded.
    bytes_out_total: Annotated[int, Counter("pulsar_out_bytes_total")] = 0
    messages_out_total: Annotated[int, Counter("pulsar_out_messages_total")] = 0
    # How often a dispatch rate stopped it, by limit; None where no limit ever applied. Labels, and
    # not families, tell the limits apart, so this has no annotation of its own.
    stalls: Stalls | None = None


@dataclass(slots=True, kw_only=True)
class ReplicatorSnapshot:
    """The replication of one topic to one remote cluster, and what comes from there."""

    remote: str
    # What the remote cluster's replicator publishes here.
    rate_in: Annotated[float, Gauge("pulsar_replication_rate_in")] = 0.0
    throughput_in: Annotated[float, Gauge("pulsar_replication_throughput_in")] = 0.0
    # What is published there.
    rate_out: Annotated[float, Gauge("pulsar_replication_rate_out")] = 0.0
    throughput_out: Annotated[float, Gauge("pulsar_replication_throughput_out")] = 0.0
    rate_expired: Annotated[float, Gauge("pulsar_replication_rate_expired")] = 0.0
    # Entries that the remote cluster has not confirmed.
    backlog: Annotated[int, Gauge("pulsar_replication_backlog")] = 0
    # One is 1, the other 0: dashboards sum them over topics.
    connected: Annotated[int, Gauge("pulsar_replication_connected_count")] = 0
    disconnected: Annotated[int, Gauge("pulsar_replication_disconnected_count")] = 0
    delay_s: Annotated[int, Gauge("pulsar_replication_delay_in_seconds")] = 0
    # How often the remote cluster confirmed nothing for the stall timeout.
    stalls_total: Annotated[int, Counter("geminga_replication_stalls_total")] = 0


@dataclass(slots=True, kw_only=True)
class TopicSnapshot:
    """One loaded topic. ``namespace`` is ``tenant/ns``, ``name`` the full name.

    A limit of -1 is none; the age of a backlog that was not checked yet, or is empty, is -1.
    """

    namespace: str
    name: str
    producers: Annotated[
        int, Gauge("pulsar_producers_count"), BrokerSum("pulsar_broker_producers_count")
    ] = 0
    consumers: Annotated[
        int, Gauge("pulsar_consumers_count"), BrokerSum("pulsar_broker_consumers_count")
    ] = 0
    # Messages, then bytes.
    rate_in: Annotated[float, Gauge("pulsar_rate_in"), BrokerSum("pulsar_broker_rate_in")] = 0.0
    rate_out: Annotated[float, Gauge("pulsar_rate_out"), BrokerSum("pulsar_broker_rate_out")] = 0.0
    throughput_in: Annotated[
        float,
        Gauge("pulsar_throughput_in"),
        BrokerSum("pulsar_broker_throughput_in"),
        NamespaceSum("pulsar_ml_AddEntryBytesRate"),
    ] = 0.0
    throughput_out: Annotated[
        float, Gauge("pulsar_throughput_out"), BrokerSum("pulsar_broker_throughput_out")
    ] = 0.0
    # Since the topic was loaded.
    messages_in_total: Annotated[int, Counter("pulsar_in_messages_total")] = 0
    bytes_in_total: Annotated[int, Counter("pulsar_in_bytes_total")] = 0
    average_message_bytes: Annotated[float, Gauge("pulsar_average_msg_size")] = 0.0
    # How often a publish rate stopped producers.
    publish_pauses: Annotated[int, Gauge("pulsar_publish_rate_limit_times")] = 0
    # Of the slowest subscription, as is its size in bytes below.
    backlog: Annotated[
        int,
        Gauge("pulsar_msg_backlog"),
        BrokerSum("pulsar_broker_msg_backlog"),
        NamespaceSum("pulsar_ml_NumberOfMessagesInBacklog"),
    ] = 0
    # Bytes with all replicas and without; both are the same here.
    storage_bytes: Annotated[
        int,
        Gauge("pulsar_storage_size"),
        BrokerSum("pulsar_broker_storage_size"),
        NamespaceSum("pulsar_ml_StoredMessagesSize"),
    ] = 0
    storage_logical_bytes: Annotated[
        int, Gauge("pulsar_storage_logical_size"), BrokerSum("pulsar_broker_storage_logical_size")
    ] = 0
    backlog_bytes: Annotated[int, Gauge("pulsar_storage_backlog_size")] = 0
    backlog_quota_bytes: Annotated[int, Gauge("pulsar_storage_backlog_quota_limit")] = -1
    backlog_quota_age_s: Annotated[int, Gauge("pulsar_storage_backlog_quota_limit_time")] = -1
    backlog_age_s: Annotated[int, Gauge("pulsar_storage_backlog_age_seconds")] = -1
    # Evictions from backlogs, by quota: one family with a label shows both. As these have labels of
    # their own, ``exposition`` shows them.
    size_evictions_total: int = 0
    age_evictions_total: int = 0
    # Entries: written, sent to consumers, and of these read from bookies, not from the cache.
    storage_write_rate: Annotated[
        float,
        Gauge("pulsar_storage_write_rate"),
        BrokerSum("pulsar_broker_storage_write_rate"),
        NamespaceSum("pulsar_ml_AddEntryMessagesRate"),
    ] = 0.0
    storage_read_rate: Annotated[
        float,
        Gauge("pulsar_storage_read_rate"),
        BrokerSum("pulsar_broker_storage_read_rate"),
        NamespaceSum("pulsar_ml_ReadEntriesRate"),
    ] = 0.0
    storage_read_cache_misses_rate: Annotated[
        float,
        Gauge("pulsar_storage_read_cache_misses_rate"),
        BrokerSum("pulsar_broker_storage_read_cache_misses_rate"),
        NamespaceSum("pulsar_ml_ReadEntriesOpsCacheMissesRate"),
    ] = 0.0
    ack_rate: Annotated[float, Gauge("pulsar_consumer_msg_ack_rate")] = 0.0
    delayed_index_bytes: Annotated[int, Gauge("pulsar_delayed_message_index_size_bytes")] = 0
    delayed_buckets: Annotated[
        int, DelayedIndexGauge("pulsar_delayed_message_index_bucket_total")
    ] = 0
    delayed_loaded: Annotated[int, DelayedIndexGauge("pulsar_delayed_message_index_loaded")] = 0
    # How long entries took to be stored, since the last refresh.
    write_latency_ms: Annotated[Histogram, Buckets("pulsar_storage_write_latency")] = field(
        default_factory=write_latency_histogram
    )
    subscriptions: list[SubscriptionSnapshot] = field(default_factory=list)
    replicators: Sequence[ReplicatorSnapshot] = ()
    # None where no compaction was tried.
    compaction: CompactionReport | None = None


@dataclass(slots=True, kw_only=True)
class CacheSnapshot:
    """The entry cache and the managed ledgers behind it."""

    managed_ledgers: Annotated[int, Gauge("pulsar_ml_count")] = 0
    used_bytes: Annotated[int, Gauge("pulsar_ml_cache_used_size")] = 0
    entries: Annotated[int, Gauge("pulsar_ml_cache_entries")] = 0
    # Entries, and their bytes, that readers found here; then those that they did not find.
    hits_rate: Annotated[float, Gauge("pulsar_ml_cache_hits_rate")] = 0.0
    hits_throughput: Annotated[float, Gauge("pulsar_ml_cache_hits_throughput")] = 0.0
    misses_rate: Annotated[float, Gauge("pulsar_ml_cache_misses_rate")] = 0.0
    misses_throughput: Annotated[float, Gauge("pulsar_ml_cache_misses_throughput")] = 0.0
    # How often the bound of the cache was exceeded in the last stats period.
    evictions: Annotated[int, Gauge("pulsar_ml_cache_evictions")] = 0
    inserted_entries_total: Annotated[int, Counter("pulsar_ml_cache_inserted_entries_total")] = 0
    evicted_entries_total: Annotated[int, Counter("pulsar_ml_cache_evicted_entries_total")] = 0


@dataclass(slots=True, kw_only=True)
class ConnectionsSnapshot:
    """Client connections of the binary protocol."""

    active: Annotated[int, Gauge("pulsar_active_connections")] = 0
    # Since the start, as all counts below.
    created_total: Annotated[int, Gauge("pulsar_connection_created_total_count")] = 0
    # Connections that finished the handshake, and those that ended before.
    created_successfully: Annotated[int, Gauge("pulsar_connection_create_success_count")] = 0
    failed: Annotated[int, Gauge("pulsar_connection_create_fail_count")] = 0
    closed_total: Annotated[int, Gauge("pulsar_connection_closed_total_count")] = 0
    # The bound on connections, with a name of our own.
    connections_max: int = 0
    # Connections refused since the start, by the limit that they exceeded.
    refused: Mapping[Limit, int] = field(default_factory=dict[Limit, int])


@dataclass(slots=True, kw_only=True)
class LookupsSnapshot:
    """Answers to lookups, and topic loads."""

    answers_total: Annotated[int, Counter("pulsar_broker_lookup_answers_total")] = 0
    redirects_total: Annotated[int, Counter("pulsar_broker_lookup_redirects_total")] = 0
    failures_total: Annotated[int, Counter("pulsar_broker_lookup_failures_total")] = 0
    pending: Annotated[int, Gauge("pulsar_broker_lookup_pending_requests")] = 0
    topic_loads_pending: Annotated[int, Gauge("pulsar_broker_topic_load_pending_requests")] = 0
    # Shown with a label of its own.
    topic_loads_failed: int = 0


@dataclass(slots=True, kw_only=True)
class LoadSnapshot:
    """How busy the broker is, and how many bundles it had moved and split as the leader."""

    # Of what the broker may use.
    cpu_percent: Annotated[float, Gauge("pulsar_lb_cpu_usage")] = 0.0
    memory_percent: Annotated[float, Gauge("pulsar_lb_memory_usage")] = 0.0
    # Bundles moved, brokers that some were moved from, and bundles split. Shown in groups of their
    # own, with other labels than the two above.
    moves: int = 0
    shed_brokers: int = 0
    splits: int = 0


@dataclass(slots=True, kw_only=True)
class BundleSnapshot:
    """One bundle of this broker's, as its load report says it; ``name`` is
    ``tenant/namespace/0x…_0x…``."""

    name: str
    # In the last stats period, as all rates.
    msg_rate_in: Annotated[float, Gauge("pulsar_bundle_msg_rate_in")] = 0.0
    msg_rate_out: Annotated[float, Gauge("pulsar_bundle_msg_rate_out")] = 0.0
    msg_throughput_in: Annotated[float, Gauge("pulsar_bundle_msg_throughput_in")] = 0.0
    msg_throughput_out: Annotated[float, Gauge("pulsar_bundle_msg_throughput_out")] = 0.0
    topics: Annotated[int, Gauge("pulsar_bundle_topics_count")] = 0
    consumers: Annotated[int, Gauge("pulsar_bundle_consumer_count")] = 0
    producers: Annotated[int, Gauge("pulsar_bundle_producer_count")] = 0


@dataclass(slots=True, kw_only=True)
class BrokerSnapshot:
    """The whole broker at one moment."""

    topics: list[TopicSnapshot] = field(default_factory=list)
    cache: CacheSnapshot = field(default_factory=CacheSnapshot)
    # By the names of their metrics (``LedgerCounters.by_metric``).
    ledger_counts: Mapping[str, int] = field(default_factory=dict)
    connections: ConnectionsSnapshot = field(default_factory=ConnectionsSnapshot)
    lookups: LookupsSnapshot = field(default_factory=LookupsSnapshot)
    load: LoadSnapshot = field(default_factory=LoadSnapshot)
    bundles: list[BundleSnapshot] = field(default_factory=list[BundleSnapshot])
    # How long it took to publish, to answer lookups and to load topics.
    publish_latency_ms: Summary = NO_SUMMARY
    lookup_ms: Summary = NO_SUMMARY
    topic_load_ms: Summary = NO_SUMMARY
    # At the last health check; None before the first.
    is_healthy: bool | None = None
    schemas: Mapping[str, NamespaceCounts] = field(default_factory=dict[str, NamespaceCounts])
