"""Proves what of subscribing follows the namespace, and what the broker's settings."""

from __future__ import annotations

import pytest

from geminga_broker.policies.levels import Levels
from geminga_broker.policies.subscriptions import (
    ALL_TYPES,
    LABELS,
    SUBSCRIBE_FREELY,
    SubscribeConfig,
    SubscribeLimit,
    SubscribePolicies,
    subscribe_policies,
)
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.records.cluster.namespaces import (
    AutoSubscriptionCreation,
    Policies,
    SubscribeRate,
)

CLUSTER = "here"
CONFIG = SubscribeConfig(
    consumers_per_topic_max=3,
    consumers_per_subscription_max=4,
    subscriptions_per_topic_max=5,
    types_enabled=("Exclusive",),
    auto_creation=False,
    rate_per_consumer=6,
    rate_period_s=7,
)
DEFAULT = SubscribePolicies(
    consumers_max=3,
    consumers_per_subscription_max=4,
    subscriptions_max=5,
    types=frozenset({SubscriptionType.EXCLUSIVE}),
    auto_creation=False,
    rate=SubscribeLimit(6, 7),
)


def held(policies: Policies) -> SubscribePolicies:
    return subscribe_policies(CONFIG, Levels(namespace=policies, cluster=CLUSTER))


def test_without_settings_every_consumer_may_subscribe() -> None:
    assert subscribe_policies(SubscribeConfig(), Levels()) == SUBSCRIBE_FREELY
    assert SUBSCRIBE_FREELY.types == ALL_TYPES
    assert [each.label for each in SubscriptionType] == list(LABELS)


def test_without_policies_the_settings_hold() -> None:
    assert held(Policies()) == DEFAULT


def test_the_namespace_s_word_goes_before_the_settings() -> None:
    policies = Policies(
        consumers_per_topic_max=0,
        consumers_per_subscription_max=9,
        subscriptions_per_topic_max=10,
        subscription_types_enabled=("Shared", "Key_Shared", "of another time"),
        auto_subscription_creation_override=AutoSubscriptionCreation(allowed=True),
        cluster_subscribe_rate={CLUSTER: SubscribeRate(per_consumer=11, period_s=12)},
    )
    assert held(policies) == SubscribePolicies(
        consumers_max=0,
        consumers_per_subscription_max=9,
        subscriptions_max=10,
        types=frozenset({SubscriptionType.SHARED, SubscriptionType.KEY_SHARED}),
        auto_creation=True,
        rate=SubscribeLimit(11, 12),
    )


@pytest.mark.parametrize(
    "policies",
    [
        Policies(consumers_per_topic_max=-1, consumers_per_subscription_max=-1),
        Policies(subscription_types_enabled=()),
        Policies(cluster_subscribe_rate={CLUSTER: SubscribeRate(per_consumer=-1)}),
        Policies(cluster_subscribe_rate={CLUSTER: SubscribeRate(per_consumer=1, period_s=0)}),
        Policies(cluster_subscribe_rate={"there": SubscribeRate(per_consumer=1)}),
    ],
)
def test_policies_that_say_nothing_leave_the_settings_in_force(policies: Policies) -> None:
    assert held(policies) == DEFAULT
