"""Pulsar's own topics are told from users' by their names."""

from __future__ import annotations

import pytest

from geminga_protocol.pulsar.system_topics import is_system_topic
from geminga_protocol.pulsar.topics.topic_names import TopicName


@pytest.mark.parametrize(
    "name",
    [
        "__change_events",
        "__change_events-partition-0",
        "__transaction_buffer_snapshot",
        "persistent://pulsar/system/transaction_coordinator_assign-partition-3",
        "persistent://pulsar/system/__transaction_log_0",
        "orders-sub__transaction_pending_ack",
    ],
)
def test_brokers_topics_are_recognised(name: str) -> None:
    assert is_system_topic(TopicName.parse(name))


@pytest.mark.parametrize("name", ["orders", "__changes", "change_events", "orders-partition-0"])
def test_users_topics_are_left_alone(name: str) -> None:
    assert not is_system_topic(TopicName.parse(name))
