"""Proves which topics go for want of use: what holds where, and when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga_broker.topics.inactivity import (
    NEVER,
    Inactivity,
    InactivityOptions,
    inactivity,
    is_over,
)
from geminga_protocol.records.namespaces import AutoTopicCreation, InactiveTopics, Policies

DEFAULT = Inactivity.default(InactivityOptions(), is_made_by_use=True)
POLICY = InactiveTopics(
    delete_mode="delete_when_subscriptions_caught_up",
    inactive_s_max=5,
    delete_while_inactive=True,
)


def test_by_default_they_go_after_a_minute_if_they_have_no_subscription() -> None:
    assert Inactivity(is_deleting=True, takes_subscriptions=False, inactive_s_max=60) == DEFAULT
    assert inactivity(Policies(), DEFAULT) == DEFAULT


def test_the_brokers_settings_may_say_otherwise() -> None:
    options = InactivityOptions(
        mode="delete_when_subscriptions_caught_up",
        unused_s_max=7,
    )
    assert Inactivity.default(options, is_made_by_use=True) == Inactivity(
        is_deleting=True, takes_subscriptions=True, inactive_s_max=7
    )
    off = InactivityOptions(deletes_topics=False)
    assert not Inactivity.default(off, is_made_by_use=True).is_deleting


def test_what_use_does_not_make_goes_only_where_a_policy_says_so() -> None:
    assert not Inactivity.default(InactivityOptions(), is_made_by_use=False).is_deleting
    by_hand = Policies(auto_topic_creation_override=AutoTopicCreation(allowed=False))
    assert inactivity(by_hand, DEFAULT) == NEVER
    assert inactivity(replace(by_hand, inactive_topics=POLICY), DEFAULT).is_deleting
    by_use = Policies(auto_topic_creation_override=AutoTopicCreation(allowed=True))
    assert inactivity(by_use, DEFAULT) == DEFAULT


def test_a_namespace_may_have_a_policy_of_its_own() -> None:
    assert inactivity(Policies(inactive_topics=POLICY), DEFAULT) == Inactivity(
        is_deleting=True, takes_subscriptions=True, inactive_s_max=5
    )
    never = replace(POLICY, delete_while_inactive=False)
    assert not inactivity(Policies(inactive_topics=never), DEFAULT).is_deleting


@pytest.mark.parametrize(
    "odd", [replace(POLICY, delete_mode=None), replace(POLICY, inactive_s_max=0)]
)
def test_a_policy_that_nobody_checked_counts_for_nothing(odd: InactiveTopics) -> None:
    assert inactivity(Policies(inactive_topics=odd), DEFAULT) == DEFAULT


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
