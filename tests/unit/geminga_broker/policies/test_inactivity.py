"""Proves which topics go for want of use: what holds where, and when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga_broker.policies.auto_creation import AutoCreationConfig
from geminga_broker.policies.inactivity import (
    NEVER,
    Inactivity,
    InactivityConfig,
    inactivity,
    is_over,
)
from geminga_broker.policies.levels import Levels
from geminga_protocol.records.cluster.namespaces import AutoTopicCreation, InactiveTopics, Policies

POLICY = InactiveTopics(
    delete_mode="delete_when_subscriptions_caught_up",
    inactive_s_max=5,
    delete_while_inactive=True,
)


DEFAULT = Inactivity(is_deleting=True, takes_subscriptions=False, inactive_s_max=60)


def held(
    policies: Policies, config: InactivityConfig | None = None, *, is_made_by_use: bool = True
) -> Inactivity:
    creation = AutoCreationConfig(auto_topic_creation=is_made_by_use)
    return inactivity(config or InactivityConfig(), creation, Levels(namespace=policies))


def test_by_default_they_go_after_a_minute_if_they_have_no_subscription() -> None:
    assert held(Policies()) == DEFAULT


def test_the_broker_may_be_told_otherwise() -> None:
    config = InactivityConfig(mode="delete_when_subscriptions_caught_up", unused_s_max=7)
    assert held(Policies(), config) == Inactivity(
        is_deleting=True, takes_subscriptions=True, inactive_s_max=7
    )
    assert not held(Policies(), InactivityConfig(deletes_topics=False)).is_deleting


def test_what_use_does_not_make_goes_only_where_a_policy_says_so() -> None:
    assert not held(Policies(), is_made_by_use=False).is_deleting
    by_hand = Policies(auto_topic_creation_override=AutoTopicCreation(allowed=False))
    assert held(by_hand) == NEVER
    assert held(replace(by_hand, inactive_topics=POLICY)).is_deleting
    by_use = Policies(auto_topic_creation_override=AutoTopicCreation(allowed=True))
    assert held(by_use) == DEFAULT


def test_a_namespace_may_have_a_policy_of_its_own() -> None:
    assert held(Policies(inactive_topics=POLICY)) == Inactivity(
        is_deleting=True, takes_subscriptions=True, inactive_s_max=5
    )
    never = replace(POLICY, delete_while_inactive=False)
    assert not held(Policies(inactive_topics=never)).is_deleting


@pytest.mark.parametrize(
    "odd", [replace(POLICY, delete_mode=None), replace(POLICY, inactive_s_max=0)]
)
def test_an_impossible_policy_counts_as_not_set(odd: InactiveTopics) -> None:
    assert held(Policies(inactive_topics=odd)) == DEFAULT


@pytest.mark.parametrize(
    ("idle_s", "retention_ms", "is_it"),
    [
        (59.9, 0, False),
        (60.0, 0, True),
        (61.0, 120_000, False),
        (120.0, 120_000, True),
        (1e9, -1, False),
    ],
)
def test_a_topic_goes_after_that_time_and_after_its_retention(
    idle_s: float, retention_ms: int, *, is_it: bool
) -> None:
    assert is_over(DEFAULT, idle_s=idle_s, retention_ms=retention_ms) is is_it
