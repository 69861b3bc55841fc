"""Which Prometheus families a broker shows, and from which field of a snapshot each comes.

The names are Pulsar's, for existing dashboards ask for them; the order is ours. Rendering is in
``metrics``. A family is a counter where its value only grows, a gauge otherwise; upstream declares
nearly all as gauges, which makes no difference to a query and one to checkers. What the broker does
not do yet (filters) or does not count has no family:
one that always says 0 would be taken for a measurement.
"""

from __future__ import annotations

from typing import NamedTuple

# How many there are now, whatever its name.
DELAYED_BUCKETS = "pulsar_delayed_message_index_bucket_total"


class Family(NamedTuple):
    """One family per topic or subscription: its name and the snapshot's field."""

    name: str
    field: str

    @property
    def type(self) -> str:
        """Prometheus's word for it."""
        only_grows = self.name.endswith("_total") and self.name != DELAYED_BUCKETS
        return "counter" if only_grows else "gauge"


class BucketFamily(NamedTuple):
    """A family of gauges per bucket: ``<name>_le_X``…, one per bound, then overflow, count, sum."""

    name: str
    field: str
    suffixes: tuple[str, ...]


TOPIC_FAMILIES = (
    Family("pulsar_producers_count", "producers"),
    Family("pulsar_consumers_count", "consumers"),
    Family("pulsar_rate_in", "rate_in"),
    Family("pulsar_rate_out", "rate_out"),
    Family("pulsar_throughput_in", "throughput_in"),
    Family("pulsar_throughput_out", "throughput_out"),
    Family("pulsar_in_messages_total", "messages_in_total"),
    Family("pulsar_in_bytes_total", "bytes_in_total"),
    Family("pulsar_average_msg_size", "average_message_bytes"),
    Family("pulsar_publish_rate_limit_times", "publish_pauses"),
    Family("pulsar_msg_backlog", "backlog"),
    Family("pulsar_storage_size", "storage_bytes"),
    Family("pulsar_storage_logical_size", "storage_logical_bytes"),
    Family("pulsar_storage_backlog_size", "backlog_bytes"),
    Family("pulsar_storage_backlog_quota_limit", "backlog_quota_bytes"),
    Family("pulsar_storage_backlog_quota_limit_time", "backlog_quota_age_s"),
    Family("pulsar_storage_backlog_age_seconds", "backlog_age_s"),
    Family("pulsar_storage_write_rate", "storage_write_rate"),
    Family("pulsar_storage_read_rate", "storage_read_rate"),
    Family("pulsar_storage_read_cache_misses_rate", "storage_read_cache_misses_rate"),
    Family("pulsar_consumer_msg_ack_rate", "ack_rate"),
    Family("pulsar_delayed_message_index_size_bytes", "delayed_index_bytes"),
)

# Only of topics and subscriptions that have an index of delayed messages.
DELAYED_FAMILIES = (
    Family(DELAYED_BUCKETS, "delayed_buckets"),
    Family("pulsar_delayed_message_index_loaded", "delayed_loaded"),
)

# Only of topics that were compacted, or asked to be, since they were loaded.
_COMPACTION = "pulsar_compaction_"
COMPACTION_FAMILIES = (
    Family(f"{_COMPACTION}removed_event_count", "removed_total"),
    Family(f"{_COMPACTION}succeed_count", "succeeded_total"),
    Family(f"{_COMPACTION}failed_count", "failed_total"),
    Family(f"{_COMPACTION}duration_time_in_mills", "last_duration_ms"),
    Family(f"{_COMPACTION}read_throughput", "read_bytes_rate"),
    Family(f"{_COMPACTION}write_throughput", "write_bytes_rate"),
    Family(f"{_COMPACTION}compacted_entries_count", "entries_left"),
    Family(f"{_COMPACTION}compacted_entries_size", "bytes_left"),
)

# Evictions from a topic's backlog and from all of a broker's: one sample per quota.
TOPIC_EVICTIONS = "pulsar_storage_backlog_quota_exceeded_evictions_total"
BROKER_EVICTIONS = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"
# The label ``quota_type``, and the topics' field.
EVICTIONS_BY_QUOTA = (("size", "size_evictions_total"), ("time", "age_evictions_total"))

_LATENCY_SUFFIXES = (
    "le_0_5",
    "le_1",
    "le_5",
    "le_10",
    "le_20",
    "le_50",
    "le_100",
    "le_200",
    "le_1000",
    "overflow",
)
BUCKET_FAMILIES = (
    BucketFamily("pulsar_storage_write_latency", "write_latency_ms", _LATENCY_SUFFIXES),
)
COMPACTION_LATENCY = BucketFamily(f"{_COMPACTION}latency", "write_latency_ms", _LATENCY_SUFFIXES)

_SUBSCRIPTION = "pulsar_subscription_"
SUBSCRIPTION_FAMILIES = (
    Family(f"{_SUBSCRIPTION}back_log", "backlog"),
    Family(f"{_SUBSCRIPTION}back_log_no_delayed", "backlog_no_delayed"),
    Family(f"{_SUBSCRIPTION}delayed", "delayed"),
    Family(f"{_SUBSCRIPTION}delayed_message_index_size_bytes", "delayed_index_bytes"),
    Family(f"{_SUBSCRIPTION}in_replay", "in_replay"),
    Family(f"{_SUBSCRIPTION}msg_rate_out", "rate_out"),
    Family(f"{_SUBSCRIPTION}msg_throughput_out", "throughput_out"),
    Family(f"{_SUBSCRIPTION}msg_rate_redeliver", "rate_redeliver"),
    Family(f"{_SUBSCRIPTION}msg_ack_rate", "ack_rate"),
    Family(f"{_SUBSCRIPTION}msg_rate_expired", "rate_expired"),
    Family(f"{_SUBSCRIPTION}total_msg_expired", "expired_total"),
    Family(f"{_SUBSCRIPTION}msg_drop_rate", "drop_rate"),
    Family(f"{_SUBSCRIPTION}unacked_messages", "unacked"),
    Family(f"{_SUBSCRIPTION}blocked_on_unacked_messages", "is_blocked_on_unacked"),
    Family(f"{_SUBSCRIPTION}consumers_count", "consumers"),
    Family(f"{_SUBSCRIPTION}last_expire_timestamp", "last_expired_ms"),
    Family(f"{_SUBSCRIPTION}last_acked_timestamp", "last_acked_ms"),
    Family(f"{_SUBSCRIPTION}last_consumed_flow_timestamp", "last_consumed_flow_ms"),
    Family(f"{_SUBSCRIPTION}last_consumed_timestamp", "last_consumed_ms"),
    Family(f"{_SUBSCRIPTION}last_mark_delete_advanced_timestamp", "last_mark_delete_advanced_ms"),
    Family("pulsar_out_bytes_total", "bytes_out_total"),
    Family("pulsar_out_messages_total", "messages_out_total"),
)

# Only of subscriptions that a dispatch rate limits: one sample for each limit (label ``reason``).
STALLED_BY_MESSAGES = f"{_SUBSCRIPTION}dispatch_throttled_msg_events"
STALLED_BY_BYTES = f"{_SUBSCRIPTION}dispatch_throttled_bytes_events"

# Sums over all topics of a broker: the family, and the topics' field.
BROKER_SUMS = (
    Family("pulsar_broker_producers_count", "producers"),
    Family("pulsar_broker_consumers_count", "consumers"),
    Family("pulsar_broker_rate_in", "rate_in"),
    Family("pulsar_broker_rate_out", "rate_out"),
    Family("pulsar_broker_throughput_in", "throughput_in"),
    Family("pulsar_broker_throughput_out", "throughput_out"),
    Family("pulsar_broker_storage_size", "storage_bytes"),
    Family("pulsar_broker_storage_logical_size", "storage_logical_bytes"),
    Family("pulsar_broker_storage_write_rate", "storage_write_rate"),
    Family("pulsar_broker_storage_read_rate", "storage_read_rate"),
    Family("pulsar_broker_storage_read_cache_misses_rate", "storage_read_cache_misses_rate"),
    Family("pulsar_broker_msg_backlog", "backlog"),
)

LOOKUP_FAMILIES = (
    Family("pulsar_broker_lookup_answers_total", "answers_total"),
    Family("pulsar_broker_lookup_redirects_total", "redirects_total"),
    Family("pulsar_broker_lookup_failures_total", "failures_total"),
    Family("pulsar_broker_lookup_pending_requests", "pending"),
    Family("pulsar_broker_topic_load_pending_requests", "topic_loads_pending"),
)

CONNECTION_FAMILIES = (
    Family("pulsar_active_connections", "active"),
    Family("pulsar_connection_created_total_count", "created_total"),
    Family("pulsar_connection_create_success_count", "created_successfully"),
    Family("pulsar_connection_create_fail_count", "failed"),
    Family("pulsar_connection_closed_total_count", "closed_total"),
)

# What a broker's client of BookKeeper counts has this before its own name (``BOOKKEEPER_CLIENT``).
LEDGER_CLIENT_PREFIX = "pulsar_managedLedger_client_"
BOOKKEEPER_CLIENT = "bookkeeper_client_"

CACHE_FAMILIES = (
    Family("pulsar_ml_count", "managed_ledgers"),
    Family("pulsar_ml_cache_used_size", "used_bytes"),
    Family("pulsar_ml_cache_entries", "entries"),
    Family("pulsar_ml_cache_hits_rate", "hits_rate"),
    Family("pulsar_ml_cache_hits_throughput", "hits_throughput"),
    Family("pulsar_ml_cache_misses_rate", "misses_rate"),
    Family("pulsar_ml_cache_misses_throughput", "misses_throughput"),
    Family("pulsar_ml_cache_evictions", "evictions"),
    Family("pulsar_ml_cache_inserted_entries_total", "inserted_entries_total"),
    Family("pulsar_ml_cache_evicted_entries_total", "evicted_entries_total"),
)

# Per namespace's managed ledgers: the family, and the persistent topics' field that is added up.
LEDGER_SUMS = (
    Family("pulsar_ml_AddEntryBytesRate", "throughput_in"),
    Family("pulsar_ml_AddEntryMessagesRate", "storage_write_rate"),
    Family("pulsar_ml_ReadEntriesRate", "storage_read_rate"),
    Family("pulsar_ml_ReadEntriesOpsCacheMissesRate", "storage_read_cache_misses_rate"),
    Family("pulsar_ml_NumberOfMessagesInBacklog", "backlog"),
    Family("pulsar_ml_StoredMessagesSize", "storage_bytes"),
)
