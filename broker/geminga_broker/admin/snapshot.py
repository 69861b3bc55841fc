"""What a broker counts, as plain values: the input of ``metrics``, filled by the topics.

One ``BrokerSnapshot`` is taken per scrape. Counters only grow while a topic stays loaded, rates are
averages over the stats period, and buckets count since the previous refresh (upstream's
sum-then-reset), so whoever fills a snapshot need not know Prometheus.
Nothing here imports a web framework or prometheus_client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from geminga_broker.compaction.report import CompactionReport
from geminga_broker.managed_ledger.write_latency import write_latency_histogram
from geminga_broker.subscriptions.dispatch_throttle import Stalls
from geminga_server.connection_limits import Limit
from geminga_server.metrics import Durations, Histogram, Summary

SUMMARY_QUANTILES = (0.0, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)
# Of what never happened.
NO_SUMMARY = Durations().summary(SUMMARY_QUANTILES)


@dataclass(slots=True, kw_only=True)
class SubscriptionSnapshot:
    """One subscription. Sizes in bytes, timestamps in ms since 1970, rates per second.

    ``stalls`` is None where nothing ever limited how fast it is served.
    """

    name: str
    backlog: int = 0
    backlog_no_delayed: int = 0
    delayed: int = 0
    delayed_index_bytes: int = 0
    delayed_buckets: int = 0
    delayed_loaded: int = 0
    in_replay: int = 0
    rate_out: float = 0.0
    throughput_out: float = 0.0
    rate_redeliver: float = 0.0
    ack_rate: float = 0.0
    rate_expired: float = 0.0
    expired_total: int = 0
    drop_rate: float = 0.0
    unacked: int = 0
    is_blocked_on_unacked: bool = False
    consumers: int = 0
    last_expired_ms: int = 0
    last_acked_ms: int = 0
    last_consumed_flow_ms: int = 0
    last_consumed_ms: int = 0
    last_mark_delete_advanced_ms: int = 0
    bytes_out_total: int = 0
    messages_out_total: int = 0
    stalls: Stalls | None = None


@dataclass(slots=True, kw_only=True)
class TopicSnapshot:
    """One loaded topic. ``namespace`` is ``tenant/ns``, ``name`` the full name.

    ``compaction`` is None where none was tried.
    A limit of -1 is none; the age of a backlog that was not looked at, or is empty, is -1.
    """

    namespace: str
    name: str
    producers: int = 0
    consumers: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    throughput_in: float = 0.0
    throughput_out: float = 0.0
    messages_in_total: int = 0
    bytes_in_total: int = 0
    average_message_bytes: float = 0.0
    publish_pauses: int = 0
    backlog: int = 0
    storage_bytes: int = 0
    storage_logical_bytes: int = 0
    backlog_bytes: int = 0
    backlog_quota_bytes: int = -1
    backlog_quota_age_s: int = -1
    backlog_age_s: int = -1
    size_evictions_total: int = 0
    age_evictions_total: int = 0
    storage_write_rate: float = 0.0
    storage_read_rate: float = 0.0
    storage_read_cache_misses_rate: float = 0.0
    ack_rate: float = 0.0
    delayed_index_bytes: int = 0
    delayed_buckets: int = 0
    delayed_loaded: int = 0
    write_latency_ms: Histogram = field(default_factory=write_latency_histogram)
    subscriptions: list[SubscriptionSnapshot] = field(default_factory=list)
    compaction: CompactionReport | None = None


@dataclass(slots=True, kw_only=True)
class CacheSnapshot:
    """The entry cache and the managed ledgers behind it."""

    managed_ledgers: int = 0
    used_bytes: int = 0
    entries: int = 0
    hits_rate: float = 0.0
    hits_throughput: float = 0.0
    misses_rate: float = 0.0
    misses_throughput: float = 0.0
    evictions: int = 0
    inserted_entries_total: int = 0
    evicted_entries_total: int = 0


@dataclass(slots=True, kw_only=True)
class ConnectionsSnapshot:
    """Client connections of the binary protocol."""

    active: int = 0
    created_total: int = 0
    created_successfully: int = 0
    failed: int = 0
    closed_total: int = 0
    connections_max: int = 0
    # By the limit that they exceeded.
    refused: Mapping[Limit, int] = field(default_factory=dict[Limit, int])


@dataclass(slots=True, kw_only=True)
class LookupsSnapshot:
    """Answers to lookups, and topic loads."""

    answers_total: int = 0
    redirects_total: int = 0
    failures_total: int = 0
    pending: int = 0
    topic_loads_pending: int = 0
    topic_loads_failed: int = 0


@dataclass(slots=True, kw_only=True)
class BrokerSnapshot:
    """The whole broker at one moment. ``is_healthy`` is None until a health check ran.

    ``ledger_counts`` are by the names of their metrics (``LedgerCounters.by_metric``).
    """

    topics: list[TopicSnapshot] = field(default_factory=list)
    cache: CacheSnapshot = field(default_factory=CacheSnapshot)
    ledger_counts: Mapping[str, int] = field(default_factory=dict)
    connections: ConnectionsSnapshot = field(default_factory=ConnectionsSnapshot)
    lookups: LookupsSnapshot = field(default_factory=LookupsSnapshot)
    publish_latency_ms: Summary = NO_SUMMARY
    lookup_ms: Summary = NO_SUMMARY
    topic_load_ms: Summary = NO_SUMMARY
    is_healthy: bool | None = None
