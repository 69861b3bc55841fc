"""Proves what of subscribing follows the namespace, and what the broker's settings."""

from __future__ import annotations

import pytest

from geminga_broker.topics.consuming.subscribe_policies import (
    ALL_TYPES,
    DEFAULT_POLICIES,
    SubscribeLimit,
    SubscribeOptions,
    SubscribePolicies,
    subscribe_policies,
)
from geminga_broker.topics.consuming.subscribe_request import SubscribeRequest
from geminga_broker.topics.policies import TopicPolicies, topic_policies
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_protocol.records.namespaces import AutoSubscriptionCreation, Policies, SubscribeRate

CLUSTER = "here"
OPTIONS = SubscribeOptions(
    consumers_per_topic_max=3,
    consumers_per_subscription_max=4,
    subscriptions_per_topic_max=5,
    types_enabled=("Exclusive",),
    auto_creation=False,
    rate_per_consumer=6,
    rate_period_s=7,
)
DEFAULT = SubscribePolicies.default(OPTIONS)


def test_without_settings_everybody_may_subscribe() -> None:
    assert SubscribePolicies.default(SubscribeOptions()) == DEFAULT_POLICIES
    assert DEFAULT_POLICIES.types == ALL_TYPES
    assert SubscribeRequest("s", SubscriptionType.SHARED).type in DEFAULT_POLICIES.types


def test_without_policies_the_settings_hold() -> None:
    assert subscribe_policies(Policies(), DEFAULT, CLUSTER) is DEFAULT
    assert (
        SubscribePolicies(
            consumers_max=3,
            consumers_per_subscription_max=4,
            subscriptions_max=5,
            types=frozenset({SubscriptionType.EXCLUSIVE}),
            auto_creation=False,
            rate=SubscribeLimit(6, 7),
        )
        == DEFAULT
    )


def test_the_namespace_s_word_goes_before_the_settings() -> None:
    policies = Policies(
        consumers_per_topic_max=0,
        consumers_per_subscription_max=9,
        subscriptions_per_topic_max=10,
        subscription_types_enabled=("Shared", "Key_Shared", "of another time"),
        auto_subscription_creation_override=AutoSubscriptionCreation(allowed=True),
        cluster_subscribe_rate={CLUSTER: SubscribeRate(per_consumer=11, period_s=12)},
    )
    assert subscribe_policies(policies, DEFAULT, CLUSTER) == SubscribePolicies(
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
    assert subscribe_policies(policies, DEFAULT, CLUSTER) is DEFAULT


def test_the_brokers_own_topics_are_free_for_all_brokers() -> None:
    name = TopicName.parse("persistent://t/n/__change_events")
    default = TopicPolicies(subscribing=DEFAULT)
    assert topic_policies(name, Policies(), default).subscribing == DEFAULT_POLICIES
