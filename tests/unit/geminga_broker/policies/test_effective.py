"""The nearest of the three levels holds: the topic's, its namespace's, its broker's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import reduce
from typing import Any

import pytest

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.retention import Retention
from geminga_broker.policies.backlog import BacklogConfig, Quota, QuotaPolicy
from geminga_broker.policies.compaction import CompactionConfig
from geminga_broker.policies.delayed import DelayedConfig
from geminga_broker.policies.dispatch import DispatchConfig, DispatchLimit
from geminga_broker.policies.effective import (
    EffectivePolicies,
    PolicyConfig,
    effective_policies,
    sharing,
)
from geminga_broker.policies.expiry import ExpiryConfig
from geminga_broker.policies.inactivity import Inactivity, InactivityConfig
from geminga_broker.policies.levels import Levels
from geminga_broker.policies.publish import PublishConfig, PublishLimits
from geminga_broker.policies.schemas import SchemaStrategy
from geminga_broker.policies.subscriptions import SubscribeConfig, SubscribeLimit
from geminga_broker.policies.unacknowledged import UnacknowledgedConfig
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.records.cluster.namespaces import (
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
from geminga_protocol.records.cluster.topic_policies import TopicPolicies

CLUSTER = "here"
# Every value of the broker's says 1, or off.
CONFIG = PolicyConfig(
    log=ManagedLedgerConfig(retention_time_ms=60_000, retention_bytes=1024 * 1024),
    publishing=PublishConfig(
        deduplication_snapshot_interval_s=1, producers_per_topic_max=1, topic_messages_per_s_max=1
    ),
    compaction=CompactionConfig(threshold_bytes=1),
    delayed=DelayedConfig(tick_ms=1),
    expiry=ExpiryConfig(ttl_default_s=1),
    subscribing=SubscribeConfig(
        consumers_per_topic_max=1,
        consumers_per_subscription_max=1,
        subscriptions_per_topic_max=1,
        types_enabled=("Exclusive",),
        auto_creation=False,
        rate_per_consumer=1,
    ),
    inactivity=InactivityConfig(unused_s_max=1),
    dispatching=DispatchConfig(
        topic_messages_per_s_max=1,
        subscription_messages_per_s_max=1,
        replicator_messages_per_s_max=1,
    ),
    backlog=BacklogConfig(backlog_quota_bytes=1, backlog_quota_age_s=1),
    unacknowledged=UnacknowledgedConfig(
        max_unacked_messages_per_consumer=1, max_unacked_messages_per_subscription=1
    ),
)
HOLD = QuotaPolicy.HOLD_PRODUCERS


def inactive(seconds: int) -> InactiveTopics:
    return InactiveTopics(
        delete_mode="delete_when_no_subscriptions",
        inactive_s_max=seconds,
        delete_while_inactive=True,
    )


def quotas(limit: int) -> dict[str, BacklogQuota]:
    quota = BacklogQuota(limit_size=limit, limit_time=limit, policy=HOLD.value)
    return {"destination_storage": quota, "message_age": quota}


def persistence(bookies: int) -> PersistencePolicies:
    return PersistencePolicies(ensemble=bookies, write_quorum=1, ack_quorum=1)


# A field of both records; what it says, and what holds then, for 2 (the namespace's) and 3 (the
# topic's); where that is found, and what holds by the broker's word.
ROWS: list[tuple[str, Callable[[int], Any], str, Any]] = [
    ("persistence", persistence, "log.ensemble_size", {1: 1, 2: 2, 3: 3}),
    (
        "retention",
        lambda n: RetentionPolicies(time_minutes=n, size_mib=n),
        "retention",
        {n: Retention(n * 60_000, n * 1024 * 1024) for n in (1, 2, 3)},
    ),
    ("backlog_quota_map", quotas, "quotas.size", {n: Quota(n, HOLD) for n in (1, 2, 3)}),
    ("backlog_quota_map", quotas, "quotas.age", {n: Quota(n, HOLD) for n in (1, 2, 3)}),
    ("deduplication_enabled", lambda n: n == 3, "publishing.deduplicates", {1: 0, 2: 0, 3: 1}),
    ("deduplication_enabled", lambda n: n == 2, "publishing.deduplicates", {1: 0, 2: 1, 3: 0}),
    (
        "deduplication_snapshot_interval_s",
        int,
        "publishing.snapshot_interval_s",
        {1: 1, 2: 2, 3: 3},
    ),
    ("producers_per_topic_max", int, "publishing.producers_max", {1: 1, 2: 2, 3: 3}),
    (
        "publish_max_message_rate",
        lambda n: PublishRate(messages=n, size_bytes=n),
        "publishing.limits",
        {1: PublishLimits(1), 2: PublishLimits(2, 2), 3: PublishLimits(3, 3)},
    ),
    ("unacked_per_consumer_max", int, "unacknowledged.per_consumer", {1: 1, 2: 2, 3: 3}),
    ("unacked_per_subscription_max", int, "unacknowledged.per_subscription", {1: 1, 2: 2, 3: 3}),
    ("compaction_threshold_bytes", int, "compaction.threshold_bytes", {1: 1, 2: 2, 3: 3}),
    (
        "delayed_delivery",
        lambda n: DelayedDelivery(tick_ms=n, active=True),
        "delayed.tick_ms",
        {1: 1, 2: 2, 3: 3},
    ),
    ("message_ttl_s", int, "expiry.ttl_s", {1: 1, 2: 2, 3: 3}),
    ("consumers_per_topic_max", int, "subscribing.consumers_max", {1: 1, 2: 2, 3: 3}),
    (
        "consumers_per_subscription_max",
        int,
        "subscribing.consumers_per_subscription_max",
        {1: 1, 2: 2, 3: 3},
    ),
    ("subscriptions_per_topic_max", int, "subscribing.subscriptions_max", {1: 1, 2: 2, 3: 3}),
    (
        "subscription_types_enabled",
        lambda n: {2: ("Shared",), 3: ("Failover",)}[n],
        "subscribing.types",
        {
            1: {SubscriptionType.EXCLUSIVE},
            2: {SubscriptionType.SHARED},
            3: {SubscriptionType.FAILOVER},
        },
    ),
    (
        "auto_subscription_creation_override",
        lambda n: AutoSubscriptionCreation(allowed=n == 3),
        "subscribing.auto_creation",
        {1: 0, 2: 0, 3: 1},
    ),
    (
        "auto_subscription_creation_override",
        lambda n: AutoSubscriptionCreation(allowed=n == 2),
        "subscribing.auto_creation",
        {1: 0, 2: 1, 3: 0},
    ),
    (
        "cluster_subscribe_rate",
        lambda n: SubscribeRate(per_consumer=n),
        "subscribing.rate",
        {n: SubscribeLimit(n) for n in (1, 2, 3)},
    ),
    (
        "inactive_topics",
        inactive,
        "inactivity",
        {n: Inactivity(is_deleting=True, inactive_s_max=n) for n in (1, 2, 3)},
    ),
    (
        "topic_dispatch_rate",
        lambda n: DispatchRate(messages=n),
        "dispatching.topic",
        {n: DispatchLimit(n) for n in (1, 2, 3)},
    ),
    (
        "subscription_dispatch_rate",
        lambda n: DispatchRate(messages=n),
        "dispatching.subscription",
        {n: DispatchLimit(n) for n in (1, 2, 3)},
    ),
    (
        "replicator_dispatch_rate",
        lambda n: DispatchRate(messages=n),
        "replication.limit",
        {n: DispatchLimit(n) for n in (1, 2, 3)},
    ),
    (
        "schema_compatibility_strategy",
        lambda n: ("FULL", "BACKWARD", "FORWARD")[n - 1],
        "schemas.strategy",
        {1: SchemaStrategy.FULL, 2: SchemaStrategy.BACKWARD, 3: SchemaStrategy.FORWARD},
    ),
    (
        "schema_validation_enforced",
        lambda n: n == 2,
        "schemas.is_validation_enforced",
        {1: False, 2: True, 3: False},
    ),
    (
        "replication_clusters",
        lambda n: (CLUSTER, f"c{n}"),
        "replication.remotes",
        {1: None, 2: {"c2"}, 3: {"c3"}},
    ),
]
RATES = {
    "publish_max_message_rate",
    "cluster_subscribe_rate",
    "topic_dispatch_rate",
    "subscription_dispatch_rate",
    "replicator_dispatch_rate",
}


def held(where: str, said: Levels) -> Any:
    return reduce(getattr, where.split("."), effective_policies(CONFIG, said))


@pytest.mark.parametrize(("field", "make", "where", "values"), ROWS)
def test_the_nearest_word_holds(
    field: str, make: Any, where: str, values: dict[int, object]
) -> None:
    of_namespace = {CLUSTER: make(2)} if field in RATES else make(2)
    namespace: Any = {field: of_namespace}
    topic: Any = {field: make(3)}
    by_broker = Levels(cluster=CLUSTER)
    by_namespace = Levels(namespace=Policies(**namespace), cluster=CLUSTER)
    by_topic = Levels(topic=TopicPolicies(**topic), cluster=CLUSTER)
    by_both = Levels(topic=TopicPolicies(**topic), namespace=Policies(**namespace), cluster=CLUSTER)
    assert [held(where, said) for said in (by_broker, by_namespace, by_topic, by_both)] == [
        values[1],
        values[2],
        values[3],
        values[3],
    ]


def test_every_word_of_a_topic_is_heard() -> None:
    not_heard = {"other", "subscription_policies"}
    assert {each.name for each in fields(TopicPolicies)} - not_heard == {row[0] for row in ROWS}


def test_what_says_nothing_does_not_hide_the_next_level() -> None:
    limits = {row[0]: -1 for row in ROWS if row[1] is int and row[0] not in NOT_LIMITS}
    nothing: Any = {
        **limits,
        "publish_max_message_rate": PublishRate(),
        "cluster_subscribe_rate": SubscribeRate(),
        "topic_dispatch_rate": DispatchRate(),
        "subscription_dispatch_rate": DispatchRate(),
        "replicator_dispatch_rate": DispatchRate(),
        "inactive_topics": InactiveTopics(),
        "persistence": PersistencePolicies(ensemble=0),
    }
    said = Levels(topic=TopicPolicies(**nothing), cluster=CLUSTER)
    assert effective_policies(CONFIG, said) == effective_policies(CONFIG, Levels())


NOT_LIMITS = {"deduplication_snapshot_interval_s", "compaction_threshold_bytes"}


def test_a_topic_s_quota_by_age_leaves_its_namespace_s_by_size_in_force() -> None:
    by_age = {"message_age": quotas(3)["message_age"]}
    said = Levels(
        topic=TopicPolicies(backlog_quota_map=by_age),
        namespace=Policies(backlog_quota_map=quotas(2)),
    )
    assert held("quotas.size", said) == Quota(2, HOLD)
    assert held("quotas.age", said) == Quota(3, HOLD)


def test_what_brokers_write_to_themselves_is_neither_limited_nor_deleted() -> None:
    own = effective_policies(CONFIG, Levels(), is_system=True)
    free = EffectivePolicies()
    for name in ("quotas", "expiry", "publishing", "subscribing", "inactivity", "dispatching"):
        assert getattr(own, name) == getattr(free, name)
    assert own.retention == Retention(60_000, 1024 * 1024)


def test_what_is_the_same_for_all_is_one_object() -> None:
    common = effective_policies(CONFIG, Levels())
    other = sharing(effective_policies(CONFIG, Levels(namespace=Policies(message_ttl_s=2))), common)
    assert other.expiry.ttl_s == 2
    for each in fields(other):
        if each.name != "expiry":
            assert getattr(other, each.name) is getattr(common, each.name)
