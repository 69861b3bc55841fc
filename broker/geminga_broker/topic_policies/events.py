"""A topic's policies as an event of ``__change_events``, and back. Pure.

A message's key names the topic, and its value is an event with all policies of the topic; a message
without a value removes them. Policies for all clusters have a key of their own, with ``GLOBAL`` in
front of the topic's name. An event for one cluster names it in ``replicate_to``, in the event and
in the message's metadata, so that replicators skip it.

Sources: ``PulsarEvent``, ``TopicPoliciesEvent`` and ``SystemTopicBasedTopicPoliciesService`` of
Apache Pulsar 4.0; ``tests/golden/records/change-events.jsonl``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from geminga_broker.schemas.avro_binary import decode_avro, encode_avro
from geminga_broker.schemas.rules.avro import AvroType, parse_avro
from geminga_broker.topic_policies.event_schema import DEFINITION, PROPERTIES
from geminga_protocol.pulsar.system_topics import CHANGE_EVENTS
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.topic_policies import TopicPolicies
from geminga_protocol.records.encodings.json_records import of_document, to_document

# The prefix of the keys of policies for all clusters.
GLOBAL = "__G__"

# The type of events about policies; others are about transactions.
TOPIC_POLICY = "TOPIC_POLICY"

# The event's members for delayed delivery, and their names in a namespace's policies, where they
# are members of one object.
_DELAYED = {
    "delayedDeliveryEnabled": "active",
    "delayedDeliveryTickTimeMillis": "tickTime",
    "delayedDeliveryMaxDelayInMillis": "maxDeliveryDelayInMillis",
}


def events_topic(namespace: NamespaceName) -> TopicName:
    """The topic that stores the events about a namespace's topics."""
    return TopicName.of("persistent", namespace.tenant, namespace.local, CHANGE_EVENTS)


def key_of(topic: TopicName, *, is_global: bool = False) -> str:
    """The key of the events about ``topic``; of a partition, that of the partitioned topic."""
    return f"{GLOBAL if is_global else ''}{topic.base}"


@dataclass(frozen=True, slots=True, eq=False)
class EventSchema:
    """A schema that events are written with: as it is registered, and what it means."""

    definition: bytes
    properties: Mapping[str, str]
    type: AvroType


# Parsing the schema takes some milliseconds.
@cache
def own_schema() -> EventSchema:
    """The schema of this broker, with which the first events of a namespace are written."""
    return EventSchema(DEFINITION, PROPERTIES, parse_avro(DEFINITION))


def decode_event(written_with: AvroType, payload: bytes) -> TopicPolicies | None:
    """The policies in an event; None for an event that is about something else. Raises
    ``WireError``."""
    event = decode_avro(written_with, payload)
    if not isinstance(event, dict) or event.get("eventType") != TOPIC_POLICY:
        return None
    # Members that are not set are null in Avro, and missing in the record.
    about = event.get("topicPoliciesEvent") or {}
    members: dict[str, Any] = _without_none(about.get("policies") or {})
    members.pop("isGlobal", None)  # the key says it
    delayed = {name: members.pop(member, None) for member, name in _DELAYED.items()}
    if delayed["active"] is not None:
        members["delayedDelivery"] = _without_none(delayed)
    # Members that this broker does not know are kept in the record, so that writing it back loses
    # none.
    return of_document(TopicPolicies, members)


def encode_event(
    schema: AvroType, topic: TopicName, policies: TopicPolicies, *, cluster: str | None
) -> bytes:
    """The event with all ``policies`` of ``topic``, which is no partition: for ``cluster`` alone,
    or, with None, for all. Raises ``ValueError`` where ``schema`` has no place for some of them."""
    # The record has delayed delivery as one object, as namespaces have.
    members = to_document(policies)
    delayed = members.pop("delayedDelivery", None)
    # Written as ``decode_event`` reads it: three members of their own.
    if isinstance(delayed, Mapping):
        members |= {member: delayed.get(name) for member, name in _DELAYED.items()}
    event = {
        "actionType": "UPDATE",
        "eventType": TOPIC_POLICY,
        # Without it, other clusters would apply policies that are meant for this one.
        "replicateTo": None if cluster is None else [cluster],
        "topicPoliciesEvent": {
            "domain": topic.domain,
            "tenant": topic.tenant,
            "namespace": topic.namespace_local,
            "topic": topic.local,
            "policies": members | {"isGlobal": cluster is None},
        },
    }
    return encode_avro(schema, event)


def _without_none(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
