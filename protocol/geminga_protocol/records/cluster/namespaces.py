"""The policies of a namespace, and the bundles into which its hash ring is divided.

A ``Policies`` in which only ``replication_clusters`` and ``bundles`` are given equals what upstream
writes for a new namespace. Facts: ``Policies``, ``LocalPolicies``, ``BundlesDataImpl`` and the
classes they hold, of Apache Pulsar 4.0. Where a field is None, the
broker's setting applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Self

from geminga_protocol.records.cluster.tenants import POLICIES_PATH
from geminga_protocol.records.encodings.json_records import JsonRecord, Named

# ``Policies`` are in the configuration store, which several clusters may share; local policies are
# in the cluster's own metadata store.
LOCAL_POLICIES_PATH = "/admin/local-policies"

# The hash of a topic's name (``topic_names.topic_hash``) has 32 bits.
HASH_RANGE = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BundlesData(JsonRecord):
    """The borders between the bundles of a namespace."""

    # One more than there are bundles, ascending from ``0x00000000`` to ``0xffffffff``. A border
    # belongs to the bundle above it; the last border belongs to the last bundle. The name of a
    # bundle is ``LOW_HIGH`` of two neighbours, and a node of that name says which broker owns it
    # (``cluster.ownership``). So a border that is written in another way is another bundle.
    boundaries: tuple[str, ...]
    num_bundles: int

    @classmethod
    def equal(cls, count: int) -> Self:
        """``count`` (1 to 2**32) bundles of equal size; the last also takes the remainder."""
        assert 1 <= count <= HASH_RANGE
        size = HASH_RANGE // count
        # Eight digits, in lower case: the names of bundles are made of them.
        inner = (f"0x{index * size:08x}" for index in range(1, count))
        return cls(boundaries=("0x00000000", *inner, "0xffffffff"), num_bundles=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthPolicies(JsonRecord):
    """What each role may do: in the namespace, on a topic, with a subscription."""

    # Actions by role; for a topic or a subscription, below its name.
    namespace_auth: Annotated[Mapping[str, tuple[str, ...]], Named("namespace_auth")] = field(
        default_factory=dict
    )
    topic_auth: Annotated[
        Mapping[str, Mapping[str, tuple[str, ...]]], Named("destination_auth")
    ] = field(default_factory=dict)
    subscription_auth_roles: Annotated[
        Mapping[str, tuple[str, ...]], Named("subscription_auth_roles")
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistencePolicies(JsonRecord):
    """The bookies of each ledger, and how often a second a cursor is stored (0: no limit)."""

    ensemble: Annotated[int, Named("bookkeeperEnsemble")] = 2
    write_quorum: Annotated[int, Named("bookkeeperWriteQuorum")] = 2
    ack_quorum: Annotated[int, Named("bookkeeperAckQuorum")] = 2
    mark_delete_rate_max: Annotated[float, Named("managedLedgerMaxMarkDeleteRate")] = 0.0
    storage_class: Annotated[str | None, Named("managedLedgerStorageClassName")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicies(JsonRecord):
    """How long and how much of the acknowledged messages is kept; -1: without limit, 0: nothing."""

    time_minutes: Annotated[int, Named("retentionTimeInMinutes")] = 0
    size_mib: Annotated[int, Named("retentionSizeInMB")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQuota(JsonRecord):
    """How large (bytes) or old (seconds) a backlog may become, and what happens beyond.

    ``limit`` is the old name of ``limit_size``; upstream writes both.
    """

    limit: int | None = None
    limit_size: int | None = None
    # 0 or less stands for no limit.
    limit_time: int = 0
    # The name of a member of upstream's ``RetentionPolicy``: producer_exception, ...
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRate(JsonRecord):
    """How many messages and bytes may be dispatched in one period; -1 is unlimited."""

    messages: Annotated[int, Named("dispatchThrottlingRateInMsg")] = -1
    size_bytes: Annotated[int, Named("dispatchThrottlingRateInByte")] = -1
    # The limit is added to the rate at which messages are published.
    relative_to_publish_rate: bool = False
    period_s: Annotated[int, Named("ratePeriodInSecond")] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRate(JsonRecord):
    """How often a consumer may subscribe in one period; -1 is unlimited."""

    per_consumer: Annotated[int, Named("subscribeThrottlingRatePerConsumer")] = -1
    period_s: Annotated[int, Named("ratePeriodInSecond")] = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRate(JsonRecord):
    """How many messages and bytes may be published a second; -1 is unlimited."""

    messages: Annotated[int, Named("publishThrottlingRateInMsg")] = -1
    size_bytes: Annotated[int, Named("publishThrottlingRateInByte")] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoTopicCreation(JsonRecord):
    """Whether the first use of a topic creates it, of which type, with how many partitions."""

    allowed: Annotated[bool, Named("allowAutoTopicCreation")] = False
    topic_type: str | None = None
    default_num_partitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoSubscriptionCreation(JsonRecord):
    """Whether the first use of a subscription creates it."""

    allowed: Annotated[bool, Named("allowAutoSubscriptionCreation")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedDelivery(JsonRecord):
    """Whether messages may be delayed, how precisely, and for how long at most (0: no limit)."""

    tick_ms: Annotated[int, Named("tickTime")] = 0
    active: bool = False
    delay_max_ms: Annotated[int, Named("maxDeliveryDelayInMillis")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InactiveTopics(JsonRecord):
    """When an unused topic is deleted."""

    delete_mode: Annotated[str | None, Named("inactiveTopicDeleteMode")] = None
    inactive_s_max: Annotated[int, Named("maxInactiveDurationSeconds")] = 0
    delete_while_inactive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilters(JsonRecord):
    """The names of the filters that entries pass before dispatch, separated by commas."""

    names: Annotated[str | None, Named("entryFilterNames")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies(JsonRecord):
    """The policies of a namespace, in the order in which upstream writes them.

    Rates are by cluster. Offload thresholds of -1 mean never; ``offload_policies`` are kept
    unread.
    """

    auth_policies: Annotated[AuthPolicies, Named("auth_policies")] = field(
        default_factory=AuthPolicies
    )
    replication_clusters: Annotated[tuple[str, ...], Named("replication_clusters")] = ()
    allowed_clusters: Annotated[tuple[str, ...], Named("allowed_clusters")] = ()
    bundles: BundlesData | None = None
    # By kind of quota: destination_storage (bytes), message_age (seconds).
    backlog_quota_map: Annotated[Mapping[str, BacklogQuota], Named("backlog_quota_map")] = field(
        default_factory=dict
    )
    cluster_dispatch_rate: Mapping[str, DispatchRate] = field(default_factory=dict)
    topic_dispatch_rate: Mapping[str, DispatchRate] = field(default_factory=dict)
    subscription_dispatch_rate: Mapping[str, DispatchRate] = field(default_factory=dict)
    replicator_dispatch_rate: Mapping[str, DispatchRate] = field(default_factory=dict)
    cluster_subscribe_rate: Mapping[str, SubscribeRate] = field(default_factory=dict)
    persistence: PersistencePolicies | None = None
    deduplication_enabled: bool | None = None
    auto_topic_creation_override: AutoTopicCreation | None = None
    auto_subscription_creation_override: AutoSubscriptionCreation | None = None
    publish_max_message_rate: Mapping[str, PublishRate] = field(default_factory=dict)
    latency_stats_sample_rate: Annotated[Mapping[str, int], Named("latency_stats_sample_rate")] = (
        field(default_factory=dict)
    )
    message_ttl_s: Annotated[int | None, Named("message_ttl_in_seconds")] = None
    subscription_expiration_minutes: Annotated[
        int | None, Named("subscription_expiration_time_minutes")
    ] = None
    retention: Annotated[RetentionPolicies | None, Named("retention_policies")] = None
    # Set while the namespace is being deleted: its topics cannot be created any more.
    deleted: bool = False
    encryption_required: Annotated[bool, Named("encryption_required")] = False
    delayed_delivery: Annotated[DelayedDelivery | None, Named("delayed_delivery_policies")] = None
    inactive_topics: Annotated[InactiveTopics | None, Named("inactive_topic_policies")] = None
    # "None", or "Prefix": a subscription's name begins with the role.
    subscription_auth_mode: Annotated[str | None, Named("subscription_auth_mode")] = "None"
    producers_per_topic_max: Annotated[int | None, Named("max_producers_per_topic")] = None
    consumers_per_topic_max: Annotated[int | None, Named("max_consumers_per_topic")] = None
    consumers_per_subscription_max: Annotated[
        int | None, Named("max_consumers_per_subscription")
    ] = None
    unacked_per_consumer_max: Annotated[int | None, Named("max_unacked_messages_per_consumer")] = (
        None
    )
    unacked_per_subscription_max: Annotated[
        int | None, Named("max_unacked_messages_per_subscription")
    ] = None
    subscriptions_per_topic_max: Annotated[int | None, Named("max_subscriptions_per_topic")] = None
    compaction_threshold_bytes: Annotated[int | None, Named("compaction_threshold")] = None
    offload_threshold_bytes: Annotated[int, Named("offload_threshold")] = -1
    offload_threshold_s: Annotated[int, Named("offload_threshold_in_seconds")] = -1
    offload_deletion_lag_ms: Annotated[int | None, Named("offload_deletion_lag_ms")] = None
    topics_max: Annotated[int | None, Named("max_topics_per_namespace")] = None
    schema_auto_update_compatibility_strategy: Annotated[
        str | None, Named("schema_auto_update_compatibility_strategy")
    ] = None
    schema_compatibility_strategy: Annotated[str | None, Named("schema_compatibility_strategy")] = (
        "UNDEFINED"
    )
    is_allow_auto_update_schema: Annotated[bool | None, Named("is_allow_auto_update_schema")] = None
    schema_validation_enforced: Annotated[bool, Named("schema_validation_enforced")] = False
    offload_policies: Annotated[object, Named("offload_policies")] = None
    deduplication_snapshot_interval_s: Annotated[
        int | None, Named("deduplicationSnapshotIntervalSeconds")
    ] = None
    # Empty where the policy is not set: the broker's setting applies.
    subscription_types_enabled: Annotated[tuple[str, ...], Named("subscription_types_enabled")] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    resource_group_name: Annotated[str | None, Named("resource_group_name")] = None
    # Of a cluster that is being replaced by another one: clients are sent there.
    migrated: bool = False
    dispatcher_pause_on_ack_state_persistent_enabled: bool | None = None
    entry_filters: EntryFilters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieAffinityGroup(JsonRecord):
    """The groups of bookies that store a namespace's ledgers, separated by commas."""

    primary: Annotated[str | None, Named("bookkeeperAffinityGroupPrimary")] = None
    secondary: Annotated[str | None, Named("bookkeeperAffinityGroupSecondary")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPolicies(JsonRecord):
    """The policies of a namespace in this cluster only: its current bundles, and placement.

    The first use of a namespace creates them. From then on these bundles are valid, not those of
    ``Policies``: a split of a bundle is stored here.
    """

    bundles: BundlesData
    bookie_affinity_group: BookieAffinityGroup | None = None
    namespace_anti_affinity_group: str | None = None
    migrated: bool = False


def policies_path(namespace: str) -> str:
    """The node of a namespace's policies; ``namespace`` is ``tenant/name``."""
    return f"{POLICIES_PATH}/{namespace}"


def local_policies_path(namespace: str) -> str:
    """The node of a namespace's local policies; ``namespace`` is ``tenant/name``."""
    return f"{LOCAL_POLICIES_PATH}/{namespace}"
