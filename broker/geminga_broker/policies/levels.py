"""Who says something of a topic: the topic itself, its namespace, its broker. Pure.

The nearest word holds: the topic's before the namespace's before the broker's, each policy for
itself (upstream's ``HierarchyTopicPolicies`` of ``PolicyHierarchyValue``s). What no level can mean,
as a limit below 0, is as good as not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from geminga_protocol.records.namespaces import (
    AutoSubscriptionCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    PersistencePolicies,
    Policies,
    PublishRate,
    RetentionPolicies,
    SubscribeRate,
)

# Numbers are bounded as Java's are (``int``, ``long``): a larger one would make a record unreadable
# for a Java broker of the same cluster.
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

SaidT = TypeVar("SaidT")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicies:
    """What a topic says of itself; None, or nothing in it, is not said.

    Fields are called as those of ``Policies`` which they go before. Facts: ``TopicPolicies`` of
    Apache Pulsar 4.0. How it is stored is not said here.
    """

    backlog_quota_map: Mapping[str, BacklogQuota] = field(default_factory=dict)
    topic_dispatch_rate: DispatchRate | None = None
    subscription_dispatch_rate: DispatchRate | None = None
    replicator_dispatch_rate: DispatchRate | None = None
    cluster_subscribe_rate: SubscribeRate | None = None
    publish_max_message_rate: PublishRate | None = None
    persistence: PersistencePolicies | None = None
    retention: RetentionPolicies | None = None
    deduplication_enabled: bool | None = None
    deduplication_snapshot_interval_s: int | None = None
    auto_subscription_creation_override: AutoSubscriptionCreation | None = None
    message_ttl_s: int | None = None
    delayed_delivery: DelayedDelivery | None = None
    inactive_topics: InactiveTopics | None = None
    producers_per_topic_max: int | None = None
    consumers_per_topic_max: int | None = None
    consumers_per_subscription_max: int | None = None
    subscriptions_per_topic_max: int | None = None
    subscription_types_enabled: tuple[str, ...] = ()
    unacked_per_consumer_max: int | None = None
    unacked_per_subscription_max: int | None = None
    compaction_threshold_bytes: int | None = None
    schema_compatibility_strategy: str | None = None
    schema_validation_enforced: bool | None = None
    replication_clusters: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """What is said above the broker's config. Rates are a namespace's for each cluster: that of
    ``cluster``, which the broker belongs to, counts."""

    topic: TopicPolicies = field(default_factory=TopicPolicies)
    namespace: Policies = field(default_factory=Policies)
    cluster: str = "standalone"


def nearest(topic: SaidT | None, namespace: SaidT | None, broker: SaidT) -> SaidT:
    """What holds, of what the three levels say."""
    if topic is not None:
        return topic
    return broker if namespace is None else namespace


def nearest_limit(topic: int | None, namespace: int | None, broker: int) -> int:
    """The same for a limit, which says nothing where it is below 0."""
    above = (each for each in (topic, namespace) if each is not None and each >= 0)
    return next(above, broker)
