"""Proves what of publishing follows the namespace, and what the broker's settings."""

from __future__ import annotations

import pytest

from geminga_broker.policies.levels import Levels
from geminga_broker.policies.publish import (
    PublishConfig,
    PublishLimits,
    PublishPolicies,
    publish_policies,
)
from geminga_protocol.records.cluster.namespaces import Policies, PublishRate

CLUSTER = "here"
CONFIG = PublishConfig(
    deduplication=True,
    deduplication_snapshot_interval_s=1,
    producers_per_topic_max=2,
    same_address_producers_per_topic_max=3,
    topic_messages_per_s_max=4,
    topic_bytes_per_s_max=5,
    broker_messages_per_s_max=6,
    broker_bytes_per_s_max=7,
)
DEFAULT = PublishPolicies(
    deduplicates=True,
    snapshot_interval_s=1,
    producers_max=2,
    producers_per_host_max=3,
    limits=PublishLimits(4, 5),
)


def held(policies: Policies) -> PublishPolicies:
    return publish_policies(CONFIG, Levels(namespace=policies, cluster=CLUSTER))


def test_without_settings_nothing_is_limited() -> None:
    policies = publish_policies(PublishConfig(), Levels())
    assert policies == PublishPolicies(snapshot_interval_s=120)
    assert policies.limits.is_unlimited


def test_without_policies_the_settings_hold() -> None:
    assert held(Policies()) == DEFAULT


def test_the_namespace_s_word_goes_before_the_settings() -> None:
    policies = Policies(
        deduplication_enabled=False,
        deduplication_snapshot_interval_s=0,
        producers_per_topic_max=0,
        encryption_required=True,
        publish_max_message_rate={CLUSTER: PublishRate(messages=8, size_bytes=-1)},
    )
    assert held(policies) == PublishPolicies(
        snapshot_interval_s=0,
        producers_per_host_max=3,
        requires_encryption=True,
        limits=PublishLimits(8, -1),
    )


@pytest.mark.parametrize(
    "policies",
    [
        Policies(producers_per_topic_max=-1),
        Policies(publish_max_message_rate={CLUSTER: PublishRate()}),
        Policies(publish_max_message_rate={CLUSTER: PublishRate(messages=0, size_bytes=0)}),
        Policies(publish_max_message_rate={"there": PublishRate(messages=5)}),
    ],
)
def test_policies_that_say_nothing_leave_the_settings_in_force(policies: Policies) -> None:
    assert held(policies) == DEFAULT
