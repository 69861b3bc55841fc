"""Proves that the broker publishes to any topic, whatever holds for clients, and learns what became
of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of, producer_of
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers

from geminga_broker.errors import NotAllowed, StorageUnavailable, TopicFenced, TopicTerminated
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.producers import internal_publisher
from geminga_broker.topics.producers.topic_deduplication import TopicDeduplication
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import AccessMode, SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import Policies, PublishRate

Settle = Callable[[], Awaitable[None]]
NAME = TopicName.parse("persistent://t/n/topic")
PAYLOAD = encode_payload(
    api.MessageMetadata(producer_name="broker", sequence_id=0, publish_time=1), b"body"
)
# What keeps clients from publishing in the clear, at once, and twice.
STRICT = Policies(
    encryption_required=True,
    producers_per_topic_max=1,
    deduplication_enabled=True,
    publish_max_message_rate={"standalone": PublishRate(messages=1)},
)


@pytest.fixture
async def topic(topics: TopicDirectory) -> Topic:
    """The topic under test."""
    return await topics.get(NAME, create=True)


async def test_what_was_published_is_where_it_is_said_to_be(
    topic: Topic, ledgers: MemoryLedgers
) -> None:
    publish = topic.publishing.internal.publish
    first, second = await asyncio.gather(publish(PAYLOAD), publish(PAYLOAD + b"2", 7))
    assert (first, second) == (Position(0, 0), Position(0, 1))
    assert ledgers.entries[0] == [PAYLOAD, PAYLOAD + b"2"]
    assert (topic.publishing.messages_in, topic.publishing.bytes_in) == (8, 2 * len(PAYLOAD) + 1)


async def test_no_policy_and_no_exclusive_producer_keeps_the_broker_out(
    topics: TopicDirectory, topic: Topic, settle: Settle
) -> None:
    topics.apply_policies(NAME.namespace, STRICT)
    await settle()
    exclusive = producer_of(
        NotedSession(), access_mode=AccessMode.EXCLUSIVE_WITH_FENCING, is_encrypting=True
    )
    await topic.publishing.connect(exclusive)
    for _ in range(5):
        await topic.publishing.internal.publish(PAYLOAD)
    assert list(topic.publishing.producers.by_name.values()) == [exclusive]
    assert topic.publishing.gate.pauses == 0
    (cursor,) = topic.part(TopicDeduplication).cursors()
    await topics.unload(NAME)
    assert cursor.mark_delete == Position(0, 4), "the snapshot is of the end"
    assert cursor.position_properties == {}, "no number of the broker's own is kept"


async def test_consumers_of_a_topic_that_keeps_nothing_are_sent_it(topics: TopicDirectory) -> None:
    topic = await topics.get(TopicName.parse("non-persistent://t/n/topic"), create=True)
    session = NotedSession()
    subscription = await topic.subscribing.subscribe(
        SubscribeRequest("sub", SubscriptionType.SHARED)
    )
    consumer = consumer_of(session)
    subscription.connected(consumer)
    subscription.flow(consumer, 10)
    assert await topic.publishing.internal.publish(PAYLOAD) == Position(0, 0)
    assert len(session.messages()) == 1


async def test_what_the_log_refuses_is_told_and_forgotten(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internal_publisher, "PENDING_MAX", 1)
    with pytest.raises(NotAllowed):
        await topic.publishing.internal.publish(bytes(6 * 1024 * 1024))
    await topic.publishing.internal.publish(PAYLOAD)
    await topic.terminate()
    with pytest.raises(TopicTerminated):
        await topic.publishing.internal.publish(PAYLOAD)


async def test_while_bookies_are_away_so_many_wait_and_no_more(
    topic: Topic, ledgers: MemoryLedgers, monkeypatch: pytest.MonkeyPatch, settle: Settle
) -> None:
    monkeypatch.setattr(internal_publisher, "PENDING_MAX", 3)
    ledgers.is_prompt = False
    publish = topic.publishing.internal.publish
    waiting = [asyncio.ensure_future(publish(PAYLOAD)) for _ in range(3)]
    await settle()
    with pytest.raises(StorageUnavailable, match="3 messages before it are not stored yet"):
        await publish(PAYLOAD)
    waiting[0].cancel()
    await settle()
    ledgers.writers[0].confirm()
    assert await asyncio.gather(*waiting[1:]) == [Position(0, 1), Position(0, 2)]
    ledgers.is_prompt = True
    assert await publish(PAYLOAD) == Position(0, 3)


async def test_where_the_topic_ends_first_that_is_told(
    topics: TopicDirectory, topic: Topic, ledgers: MemoryLedgers, settle: Settle
) -> None:
    ledgers.is_prompt = False
    publisher = topic.publishing.internal
    waiting = asyncio.ensure_future(publisher.publish(PAYLOAD))
    await settle()
    closing = asyncio.ensure_future(topics.unload(NAME))
    with pytest.raises(TopicFenced):
        await waiting
    with pytest.raises(TopicFenced):
        await publisher.publish(PAYLOAD)
    ledgers.writers[0].confirm()
    await closing
