"""Proves which dispatch rates follow the namespace, and which the broker's settings."""

from __future__ import annotations

import pytest

from geminga_broker.subscriptions.dispatch_rate import Counting, DispatchLimit
from geminga_broker.topics.consuming.dispatch_policies import (
    DEFAULT_POLICIES,
    DispatchOptions,
    DispatchPolicies,
    dispatch_policies,
)
from geminga_broker.topics.policies import TopicPolicies, topic_policies
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_protocol.records.namespaces import DispatchRate, Policies

CLUSTER = "here"
OPTIONS = DispatchOptions(
    broker_messages_per_s_max=1,
    broker_bytes_per_s_max=2,
    topic_messages_per_s_max=3,
    topic_bytes_per_s_max=4,
    subscription_messages_per_s_max=5,
    subscription_bytes_per_s_max=6,
    relative_to_publish_rate=True,
    throttles_non_backlog=False,
    counts_batches=True,
)
DEFAULT = DispatchPolicies.default(OPTIONS)


def test_without_settings_nothing_is_limited() -> None:
    assert DispatchPolicies.default(DispatchOptions()) == DEFAULT_POLICIES
    assert DEFAULT_POLICIES.topic.is_unlimited
    assert DEFAULT_POLICIES.subscription.is_unlimited
    assert DispatchOptions().broker_limit.is_unlimited


def test_without_policies_the_settings_hold() -> None:
    assert dispatch_policies(Policies(), DEFAULT, CLUSTER) is DEFAULT
    assert OPTIONS.broker_limit == DispatchLimit(1, 2)
    assert (
        DispatchPolicies(
            topic=DispatchLimit(3, 4, 1, is_relative=True),
            subscription=DispatchLimit(5, 6, 1, is_relative=True),
            counting=Counting(of_those_keeping_up=False, batches_as_one=True),
        )
        == DEFAULT
    )


def test_the_namespace_s_word_goes_before_the_settings() -> None:
    policies = Policies(
        topic_dispatch_rate={CLUSTER: DispatchRate(messages=7, period_s=8)},
        subscription_dispatch_rate={
            CLUSTER: DispatchRate(size_bytes=9, relative_to_publish_rate=True)
        },
    )
    held = dispatch_policies(policies, DEFAULT, CLUSTER)
    assert held.topic == DispatchLimit(7, 0, 8)
    assert held.subscription == DispatchLimit(0, 9, 1, is_relative=True)
    assert held.counting == DEFAULT.counting


@pytest.mark.parametrize(
    "rates",
    [
        {},
        {CLUSTER: DispatchRate()},
        {CLUSTER: DispatchRate(messages=5, period_s=0)},
        {"there": DispatchRate(messages=5)},
    ],
)
def test_rates_that_limit_nothing_leave_the_settings_in_force(
    rates: dict[str, DispatchRate],
) -> None:
    policies = Policies(topic_dispatch_rate=rates, subscription_dispatch_rate=rates)
    assert dispatch_policies(policies, DEFAULT, CLUSTER) is DEFAULT


def test_the_brokers_own_topics_are_not_held_back() -> None:
    name = TopicName.parse("persistent://t/n/__change_events")
    default = TopicPolicies(dispatching=DEFAULT)
    assert topic_policies(name, Policies(), default).dispatching == DEFAULT_POLICIES
