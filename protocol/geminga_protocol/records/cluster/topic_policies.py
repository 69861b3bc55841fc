"""The policies of one topic, each of which overrides the policy of its namespace.

Fields have the names of the fields of ``Policies`` that they override; in JSON, upstream's names
for the two differ. Topic policies are stored in Avro, in events of the system topic
``__change_events``, where three members make up the delayed delivery
(``geminga_broker.topic_policies.events``). Facts: ``TopicPolicies`` of Apache Pulsar 4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from geminga_protocol.records.cluster.namespaces import (
    AutoSubscriptionCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    PersistencePolicies,
    PublishRate,
    RetentionPolicies,
    SubscribeRate,
)
from geminga_protocol.records.encodings.json_records import JsonRecord, Named


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicies(JsonRecord):
    """The policies of a topic. A field that is None or empty overrides nothing.

    ``other`` has the policies without a field; they are kept as they are.
    """

    backlog_quota_map: Annotated[Mapping[str, BacklogQuota], Named("backLogQuotaMap")] = field(
        default_factory=dict
    )
    topic_dispatch_rate: Annotated[DispatchRate | None, Named("dispatchRate")] = None
    subscription_dispatch_rate: DispatchRate | None = None
    replicator_dispatch_rate: DispatchRate | None = None
    cluster_subscribe_rate: Annotated[SubscribeRate | None, Named("subscribeRate")] = None
    publish_max_message_rate: Annotated[PublishRate | None, Named("publishRate")] = None
    persistence: PersistencePolicies | None = None
    retention: Annotated[RetentionPolicies | None, Named("retentionPolicies")] = None
    deduplication_enabled: bool | None = None
    deduplication_snapshot_interval_s: Annotated[
        int | None, Named("deduplicationSnapshotIntervalSeconds")
    ] = None
    auto_subscription_creation_override: AutoSubscriptionCreation | None = None
    message_ttl_s: Annotated[int | None, Named("messageTTLInSeconds")] = None
    delayed_delivery: DelayedDelivery | None = None
    inactive_topics: Annotated[InactiveTopics | None, Named("inactiveTopicPolicies")] = None
    producers_per_topic_max: Annotated[int | None, Named("maxProducerPerTopic")] = None
    consumers_per_topic_max: Annotated[int | None, Named("maxConsumerPerTopic")] = None
    consumers_per_subscription_max: Annotated[int | None, Named("maxConsumersPerSubscription")] = (
        None
    )
    subscriptions_per_topic_max: Annotated[int | None, Named("maxSubscriptionsPerTopic")] = None
    subscription_types_enabled: tuple[str, ...] = ()
    unacked_per_consumer_max: Annotated[int | None, Named("maxUnackedMessagesOnConsumer")] = None
    unacked_per_subscription_max: Annotated[
        int | None, Named("maxUnackedMessagesOnSubscription")
    ] = None
    compaction_threshold_bytes: Annotated[int | None, Named("compactionThreshold")] = None
    schema_compatibility_strategy: str | None = None
    schema_validation_enforced: bool | None = None
    replication_clusters: tuple[str, ...] | None = None
    # By subscription; Geminga does not interpret them. Upstream's brokers need the member even
    # where it is empty.
    subscription_policies: Mapping[str, object] = field(default_factory=dict)


NO_TOPIC_POLICIES = TopicPolicies()


def nearer(local: TopicPolicies, for_all: TopicPolicies) -> TopicPolicies:
    """Merge the policies of a topic in this cluster with its global ones; local ones win, each."""
    if for_all == NO_TOPIC_POLICIES:
        return local
    # Fields with a value; None and empty ones override nothing. A field of ``local`` that is None
    # says nothing, so the value of ``for_all`` stays.
    said: dict[str, Any] = {
        each.name: value
        for each in fields(TopicPolicies)
        if each.name != "other" and (value := getattr(local, each.name)) not in (None, (), {})
    }
    return replace(for_all, **said, other={**for_all.other, **local.other})
