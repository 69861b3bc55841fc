"""Proves which dispatch rates follow the namespace, and which the broker's settings."""

from __future__ import annotations

import pytest

from geminga_broker.policies.dispatch import (
    DISPATCH_FREELY,
    Counting,
    DispatchConfig,
    DispatchLimit,
    DispatchPolicies,
    dispatch_policies,
)
from geminga_broker.policies.levels import Levels
from geminga_protocol.records.cluster.namespaces import DispatchRate, Policies

CLUSTER = "here"
CONFIG = DispatchConfig(
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
DEFAULT = DispatchPolicies(
    topic=DispatchLimit(3, 4, 1, is_relative=True),
    subscription=DispatchLimit(5, 6, 1, is_relative=True),
    counting=Counting(of_those_keeping_up=False, batches_as_one=True),
)


def held(policies: Policies) -> DispatchPolicies:
    return dispatch_policies(CONFIG, Levels(namespace=policies, cluster=CLUSTER))


def test_without_settings_nothing_is_limited() -> None:
    assert dispatch_policies(DispatchConfig(), Levels()) == DISPATCH_FREELY
    assert DISPATCH_FREELY.topic.is_unlimited
    assert DISPATCH_FREELY.subscription.is_unlimited


def test_without_policies_the_settings_hold() -> None:
    assert held(Policies()) == DEFAULT


def test_the_namespace_s_word_goes_before_the_settings() -> None:
    policies = Policies(
        topic_dispatch_rate={CLUSTER: DispatchRate(messages=7, period_s=8)},
        subscription_dispatch_rate={
            CLUSTER: DispatchRate(size_bytes=9, relative_to_publish_rate=True)
        },
    )
    assert held(policies) == DispatchPolicies(
        topic=DispatchLimit(7, 0, 8),
        subscription=DispatchLimit(0, 9, 1, is_relative=True),
        counting=DEFAULT.counting,
    )


def test_a_rate_of_topics_counts_under_its_old_name_too() -> None:
    old = {CLUSTER: DispatchRate(messages=7)}
    assert held(Policies(cluster_dispatch_rate=old)).topic == DispatchLimit(7)
    both = Policies(
        cluster_dispatch_rate=old, topic_dispatch_rate={CLUSTER: DispatchRate(messages=8)}
    )
    assert held(both).topic == DispatchLimit(8)


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
    assert held(policies) == DEFAULT
