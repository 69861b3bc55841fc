"""Proves that a SEND may lie as it likes: what it really has is counted, or it is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import TOPIC, FrameClient, send_frame, sends

from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import (
    encode_batch,
    encode_broker_entry,
    encode_payload,
)
from geminga_protocol.pulsar.topics.topic_names import TopicName

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]

TYPES = [
    api.CommandSubscribe.Exclusive,
    api.CommandSubscribe.Failover,
    api.CommandSubscribe.Shared,
    api.CommandSubscribe.Key_Shared,
]
BATCH = encode_batch([(api.SingleMessageMetadata(), b"x")] * 20)


def metadata_of(sequence_id: int, **fields: Any) -> api.MessageMetadata:
    return api.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1, **fields)


def consumer_of(topics: TopicDirectory) -> Consumer:
    """The one consumer of ``sub``."""
    topic = topics.loaded.get(TopicName.parse(TOPIC))
    assert topic is not None
    (consumer,) = topic.subscribing.subscriptions["sub"].consumers
    return consumer


@pytest.mark.parametrize("claimed", [-1, 0, 1, 1000, 2**31 - 1])
@pytest.mark.parametrize(("told", "counted"), [(None, 1), (20, 20)])
@pytest.mark.parametrize("kind", TYPES)
async def test_permits_and_stats_count_what_the_metadata_says_whatever_the_send_claims(
    connect: Connect,
    settle: Settle,
    topics: TopicDirectory,
    claimed: int,
    told: int | None,
    counted: int,
    kind: api.CommandSubscribe.SubType.ValueType,
) -> None:
    client, other = connect(), connect()
    client.open_producer()
    other.subscribe(subType=kind)
    await settle()
    other.say("flow", consumer_id=1, messagePermits=30)
    fields = {} if told is None else {"num_messages_in_batch": told}
    payload = encode_payload(metadata_of(0, **fields), BATCH)
    send = api.CommandSend(producer_id=1, sequence_id=0, num_messages=claimed)
    client.connection.data_received(send_frame(send, payload))
    await settle()
    assert len(client.all_of("send_receipt")) == len(other.all_of("message")) == 1
    assert consumer_of(topics).permits == 30 - counted
    topic = topics.loaded.get(TopicName.parse(TOPIC))
    assert topic is not None
    assert topic.publishing.messages_in == counted


GARBAGE = b"\x00\x00\x00\x01\xff\x00"
STAMP = encode_broker_entry(api.BrokerEntryMetadata(broker_timestamp=1, index=2))


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (b"", api.MetadataError),
        (b"\x0e\x01", api.MetadataError),
        (b"\x0e\x02\x00", api.MetadataError),
        (GARBAGE * 5, api.MetadataError),
        (encode_payload(metadata_of(0), b"one")[:-4], api.ChecksumError),
        (encode_payload(metadata_of(0, num_messages_in_batch=0), BATCH), api.MetadataError),
        (encode_payload(metadata_of(0, num_messages_in_batch=-1), BATCH), api.MetadataError),
        (encode_payload(metadata_of(0, num_messages_in_batch=2**31 - 1), BATCH), api.MetadataError),
        (STAMP + encode_payload(metadata_of(0), b"one"), api.MetadataError),
    ],
)
@pytest.mark.parametrize("is_unusual", [False, True])
async def test_what_no_consumer_could_use_is_refused_and_what_comes_with_it_stored(
    connect: Connect,
    settle: Settle,
    payload: bytes,
    error: api.ServerError.ValueType,
    *,
    is_unusual: bool,
) -> None:
    client, other = connect(), connect()
    client.open_producer()
    other.subscribe()
    await settle()
    other.say("flow", consumer_id=1, messagePermits=10)
    send = api.CommandSend(producer_id=1, sequence_id=7, num_messages=1)
    if is_unusual:
        send.marker = True
    first, second = sends(b"a", b"b")
    client.connection.data_received(first + send_frame(send, payload) + second)
    await settle()
    (refused,) = client.all_of("send_error")
    assert (refused.sequence_id, refused.error) == (7, error)
    assert [each.sequence_id for each in client.all_of("send_receipt")] == [0, 1]
    assert len(other.all_of("message")) == 2
    assert client.is_read()
    client.ask("close_producer", producer_id=1)
    await settle()
    assert client.heard[-1] == "success"


@pytest.mark.parametrize("kind", TYPES)
async def test_a_marker_of_a_client_gets_its_receipt_and_no_consumer_gets_the_marker(
    connect: Connect,
    settle: Settle,
    topics: TopicDirectory,
    kind: api.CommandSubscribe.SubType.ValueType,
) -> None:
    client, other = connect(), connect()
    client.open_producer()
    other.subscribe(subType=kind)
    await settle()
    other.say("flow", consumer_id=1, messagePermits=10)
    for number in range(3):
        payload = encode_payload(metadata_of(number, marker_type=10), b"for brokers")
        send = api.CommandSend(producer_id=1, sequence_id=number)
        client.connection.data_received(send_frame(send, payload))
    await settle()
    assert len(client.all_of("send_receipt")) == 3
    assert other.all_of("message") == []
    consumer = consumer_of(topics)
    assert (consumer.permits, consumer.unacknowledged, len(consumer.pending)) == (10, 0, 0)
    topic = topics.loaded.get(TopicName.parse(TOPIC))
    assert topic is not None
    assert topic.part(PersistentSubscriptions).named("sub").cursor.backlog_entries == 0
    client.publish(b"a")
    await settle()
    assert len(other.all_of("message")) == 1
