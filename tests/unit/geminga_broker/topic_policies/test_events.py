"""Events of topics' policies are read and written as a real broker writes them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.project_files import GOLDEN

from geminga_broker.schemas.rules.avro import parse_avro
from geminga_broker.topic_policies.event_schema import DEFINITION, PROPERTIES
from geminga_broker.topic_policies.events import (
    GLOBAL,
    decode_event,
    encode_event,
    events_topic,
    key_of,
    own_schema,
)
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.messages.payload import open_payload
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import (
    AutoSubscriptionCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    PersistencePolicies,
    PublishRate,
    RetentionPolicies,
    SubscribeRate,
)
from geminga_protocol.records.cluster.topic_policies import TopicPolicies

RECORDED = GOLDEN / "records" / "change-events.jsonl"
SCHEMA, *ENTRIES = map(json.loads, RECORDED.read_text().splitlines())
CLUSTER = "standalone"
OWN = own_schema().type

FULL = TopicPolicies(
    backlog_quota_map={
        "destination_storage": BacklogQuota(
            limit=1_000_000, limit_size=1_000_000, limit_time=-1, policy="producer_request_hold"
        )
    },
    topic_dispatch_rate=DispatchRate(messages=10, size_bytes=1000),
    subscription_dispatch_rate=DispatchRate(messages=11, size_bytes=1001, period_s=2),
    replicator_dispatch_rate=DispatchRate(messages=12, size_bytes=1002, period_s=3),
    cluster_subscribe_rate=SubscribeRate(per_consumer=14, period_s=30),
    publish_max_message_rate=PublishRate(messages=13, size_bytes=1003),
    persistence=PersistencePolicies(
        ensemble=1, write_quorum=1, ack_quorum=1, mark_delete_rate_max=0.5
    ),
    deduplication_enabled=True,
    deduplication_snapshot_interval_s=120,
    auto_subscription_creation_override=AutoSubscriptionCreation(allowed=False),
    message_ttl_s=60,
    delayed_delivery=DelayedDelivery(tick_ms=1500, active=True, delay_max_ms=5000),
    inactive_topics=InactiveTopics(
        delete_mode="delete_when_no_subscriptions", inactive_s_max=600, delete_while_inactive=True
    ),
    producers_per_topic_max=3,
    consumers_per_topic_max=4,
    consumers_per_subscription_max=5,
    subscriptions_per_topic_max=6,
    subscription_types_enabled=("Key_Shared", "Exclusive"),
    unacked_per_consumer_max=7,
    unacked_per_subscription_max=8,
    compaction_threshold_bytes=123_456,
    schema_compatibility_strategy="FORWARD",
    schema_validation_enforced=True,
)
# Policies that this broker does not know, of which it writes back what it read.
OTHERS = {"maxMessageSize", "offloadPolicies", "dispatcherPauseOnAckStatePersistentEnabled"}


def stored() -> list[tuple[str, bytes | None, list[str]]]:
    """Key, value and clusters of the messages there are."""
    found: list[tuple[str, bytes | None, list[str]]] = []
    for entry in ENTRIES:
        payload = bytes.fromhex(entry["hex"])
        metadata, start = open_payload(payload, 0, len(payload))
        assert metadata.schema_version == bytes(8)
        value = None if metadata.null_value else payload[start:]
        found.append((metadata.partition_key, value, list(metadata.replicate_to)))
    return found


def newest() -> dict[str, TopicPolicies]:
    """What the topics say in the end, and have not taken back."""
    said: dict[str, TopicPolicies] = {}
    for key, value, _ in stored():
        policies = None if value is None else decode_event(OWN, value)
        if policies is None:
            said.pop(key, None)
        else:
            said[key] = policies
    return said


def test_the_schema_is_that_of_a_real_broker_byte_for_byte() -> None:
    assert SCHEMA["schema"].encode() == DEFINITION
    assert SCHEMA["properties"] == PROPERTIES


def test_each_event_comes_back_as_the_same_bytes() -> None:
    values = 0
    for key, value, clusters in stored():
        if value is None:
            continue
        values += 1
        is_global = key.startswith(GLOBAL)
        topic = TopicName.parse(key.removeprefix(GLOBAL))
        assert key_of(topic, is_global=is_global) == key
        policies = decode_event(OWN, value)
        assert policies is not None
        cluster = None if is_global else CLUSTER
        assert encode_event(OWN, topic, policies, cluster=cluster) == value
        assert clusters == ([] if is_global else [CLUSTER])
    assert values == 29


def test_every_policy_that_a_real_broker_wrote_is_known() -> None:
    said = newest()
    topic = "persistent://acme/policies/full"
    full = said[topic]
    assert set(full.other) == OTHERS
    assert replace(full, other={}) == FULL
    assert said[f"{GLOBAL}{topic}"] == TopicPolicies(message_ttl_s=99)
    kept = said["persistent://acme/policies/kept"]
    assert kept == TopicPolicies(retention=RetentionPolicies(time_minutes=7, size_mib=20_000))
    assert len(said) == 3


def test_replication_clusters_stand_in_the_first_event() -> None:
    _, value, _ = stored()[0]
    assert value is not None
    assert decode_event(OWN, value) == TopicPolicies(replication_clusters=("standalone", "other"))


def test_a_policy_of_a_later_version_survives_a_change() -> None:
    later = json.loads(DEFINITION)
    policies = later["fields"][3]["type"][1]["fields"][2]["type"][1]
    policies["fields"].append({"name": "zone", "type": ["null", "string"], "default": None})
    schema = parse_avro(json.dumps(later).encode())
    topic = TopicName.parse("persistent://t/n/a")
    said = TopicPolicies(message_ttl_s=1, other={"zone": "b"})
    read = decode_event(schema, encode_event(schema, topic, said, cluster=CLUSTER))
    assert read is not None
    assert read == said
    changed = encode_event(schema, topic, replace(read, message_ttl_s=2), cluster=CLUSTER)
    assert decode_event(schema, changed) == TopicPolicies(message_ttl_s=2, other={"zone": "b"})
    with pytest.raises(ValueError, match="zone"):
        encode_event(OWN, topic, said, cluster=CLUSTER)


def test_events_about_something_else_are_left_out() -> None:
    _, value, _ = stored()[0]
    assert value is not None
    assert value[:4] == b"\x02\x04\x02\x00"
    assert decode_event(OWN, value[:3] + b"\x02" + value[4:]) is None


@given(st.binary(max_size=64), st.integers(0, 10), st.integers(0, 400))
def test_garbage_gives_wire_errors_and_nothing_else(garbage: bytes, which: int, cut: int) -> None:
    value = stored()[which][1]
    assert value is not None
    for payload in (garbage, value[:cut], value[:cut] + garbage + value[cut + len(garbage) :]):
        with suppress(WireError):
            decode_event(OWN, payload)


def test_events_stand_in_one_topic_for_each_namespace() -> None:
    namespace = NamespaceName("acme", "shop")
    assert str(events_topic(namespace)) == "persistent://acme/shop/__change_events"
    assert key_of(TopicName.parse("persistent://acme/shop/a-partition-7")) == (
        "persistent://acme/shop/a"
    )
