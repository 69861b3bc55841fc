"""Which topics are Pulsar's own: they are left out of lists unless asked for."""

from __future__ import annotations

from geminga_protocol.pulsar.topics.topic_names import TopicName

# Where the policies of a namespace's topics stand.
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
    local = topic.base.local
    return local in _NAMES or local.startswith(_PREFIX) or local.endswith(_SUFFIX)


def is_change_events(topic: TopicName) -> bool:
    """Whether ``topic`` is the one in which the policies of its namespace's topics stand."""
    return topic.base.local == CHANGE_EVENTS
