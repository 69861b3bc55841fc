"""The names of system topics, in which brokers keep data of their own.

Lists of topics leave them out unless a client asks for them.
"""

from __future__ import annotations

from geminga_protocol.pulsar.topics.topic_names import TopicName

# Holds the policies of the topics in its namespace.
CHANGE_EVENTS = "__change_events"

_NAMES = frozenset(
    {
        CHANGE_EVENTS,
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_segments",
        "__transaction_buffer_snapshot_indexes",
        "transaction_coordinator_assign",
    }
)
_PREFIX = "__transaction_log_"
_SUFFIX = "__transaction_pending_ack"


def is_system_topic(topic: TopicName) -> bool:
    """Whether brokers, not users, write to ``topic`` (upstream's ``SystemTopicNames``)."""
    # Of the topic, not of the partition: the partitions of a system topic are system topics too.
    local = topic.base.local
    return local in _NAMES or local.startswith(_PREFIX) or local.endswith(_SUFFIX)


def is_change_events(topic: TopicName) -> bool:
    """Whether ``topic`` (or its partition) holds the topic policies of its namespace."""
    return topic.base.local == CHANGE_EVENTS
