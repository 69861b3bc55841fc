"""A topic's policies as an event of ``__change_events``, and back. Pure.

A message's key names the topic, and its value is an event with all that the topic says; a message
without a value takes that away. What a topic says to all clusters has a key of its own, with
``GLOBAL`` in front of the name. Events that are for one cluster name it in ``replicate_to``, in the
event and in the message's metadata, so that replicators pass over them.

Facts: ``PulsarEvent``, ``TopicPoliciesEvent`` and ``SystemTopicBasedTopicPoliciesService`` of
Apache Pulsar 4.0; ``tests/golden/records/change-events.jsonl``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from geminga_broker.schemas.avro_binary import decode_avro, encode_avro
from geminga_broker.schemas.judging.avro import AvroType, parse_avro
from geminga_broker.topic_policies.event_schema import DEFINITION, PROPERTIES
from geminga_protocol.pulsar.system_topics import CHANGE_EVENTS
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_protocol.records.json_records import of_document, to_document
from geminga_protocol.records.topic_policies import TopicPolicies

GLOBAL = "__G__"

TOPIC_POLICY = "TOPIC_POLICY"

# The event's members for delayed delivery, and what they are called in a namespace's policies.
_DELAYED = {
    "delayedDeliveryEnabled": "active",
    "delayedDeliveryTickTimeMillis": "tickTime",
    "delayedDeliveryMaxDelayInMillis": "maxDeliveryDelayInMillis",
}


def events_topic(namespace: NamespaceName) -> TopicName:
    """The topic in which the events of a namespace's topics stand."""
    return TopicName.of("persistent", namespace.tenant, namespace.local, CHANGE_EVENTS)


def key_of(topic: TopicName, *, is_global: bool = False) -> str:
    """The key of the events about ``topic``; those about a partition are about the whole topic."""
    return f"{GLOBAL if is_global else ''}{topic.base}"


@dataclass(frozen=True, slots=True, eq=False)
class EventSchema:
    """A schema that events are written with: as it is registered, and what it means."""

    definition: bytes
    properties: Mapping[str, str]
    type: AvroType


@cache
def own_schema() -> EventSchema:
    """The one that events are written with where there are none yet."""
    return EventSchema(DEFINITION, PROPERTIES, parse_avro(DEFINITION))


def decode_event(written_with: AvroType, payload: bytes) -> TopicPolicies | None:
    """What the topic says in this event; None for one that is about something else. Raises
    ``WireError``."""
    event = decode_avro(written_with, payload)
    if not isinstance(event, dict) or event.get("eventType") != TOPIC_POLICY:
        return None
    about = event.get("topicPoliciesEvent") or {}
    members: dict[str, Any] = _said(about.get("policies") or {})
    members.pop("isGlobal", None)  # the key says it
    delayed = {name: members.pop(member, None) for member, name in _DELAYED.items()}
    if delayed["active"] is not None:
        members["delayedDelivery"] = _said(delayed)
    return of_document(TopicPolicies, members)


def encode_event(
    schema: AvroType, topic: TopicName, policies: TopicPolicies, *, cluster: str | None
) -> bytes:
    """The event in which ``topic``, which is no partition, says all this: to ``cluster`` alone, or,
    with None, to all. Raises ``ValueError`` where ``schema`` has no place for some of it."""
    members = to_document(policies)
    delayed = members.pop("delayedDelivery", None)
    if isinstance(delayed, Mapping):
        members |= {member: delayed.get(name) for member, name in _DELAYED.items()}
    event = {
        "actionType": "UPDATE",
        "eventType": TOPIC_POLICY,
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


def _said(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
