"""Proves that consumers learn of a topic's end whatever came last: a marker, or a compacted one."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    NotedSession,
    Told,
    consumer_of,
    producer_of,
)
from tests.unit.geminga_broker.compaction.compacted_topics import (
    DURABLE,
    NAME,
    READER,
    Rig,
    compact,
    loaded,
    publish,
    single,
)

from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload

MARKER = encode_payload(
    api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, marker_type=20), b""
)


async def publish_marker(topic: Topic) -> None:
    producer = producer_of(NotedSession(), "broker")
    await topic.publishing.connect(producer)
    producer.append_all([(MARKER, 0, producer, 0, 0)])
    await asyncio.sleep(0.1)
    topic.publishing.producers.remove(producer)


class Reading:
    """A consumer that reads on."""

    def __init__(self) -> None:
        self.session = NotedSession()
        self.told = Told()

    async def begin(self, topic: Topic, request: SubscribeRequest) -> Subscription:
        self.subscription = await topic.part(PersistentSubscriptions).subscribe(request)
        self.consumer = consumer_of(
            self.session, told=self.told, reads_compacted=request.reads_compacted
        )
        self.subscription.connected(self.consumer)
        self.subscription.flow(self.consumer, 1000)
        await asyncio.sleep(1)
        return self.subscription

    async def acknowledge_upto_last(self) -> None:
        last = Position(*self.session.positions()[-1])
        self.subscription.acknowledger.upto(self.consumer, last, (), None)
        await asyncio.sleep(1)


@pytest.mark.parametrize("kind", SubscriptionType)
async def test_a_marker_at_the_end_does_not_delay_the_end_of_topic(kind: SubscriptionType) -> None:
    rig = Rig()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"))
        await topic.subscribing.create("sub")
        await publish_marker(topic)
        await topic.terminate()
        await topics.unload(NAME)  # what is read next is not in memory
        reading = Reading()
        await reading.begin(await loaded(topics), SubscribeRequest("sub", kind))
        assert (reading.session.positions(), reading.told.ends) == ([], 1)


@pytest.mark.parametrize("kind", SubscriptionType)
async def test_the_end_of_topic_is_told_when_the_last_message_is_acknowledged(
    kind: SubscriptionType,
) -> None:
    rig = Rig()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await topic.subscribing.create("sub")
        await publish(topic, single("a", b"1"))
        await publish_marker(topic)
        await topic.terminate()
        await topics.unload(NAME)
        reading = Reading()
        subscription = await reading.begin(await loaded(topics), SubscribeRequest("sub", kind))
        (first,) = reading.session.positions()
        assert reading.told.ends == 0
        subscription.acknowledger.entries(reading.consumer, [first])
        assert reading.told.ends == 1


@pytest.mark.parametrize("request_", [READER, DURABLE])
async def test_the_end_is_told_though_the_last_message_was_compacted_away(
    request_: SubscribeRequest,
) -> None:
    rig = Rig()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"), single("b", b"1"), single("b", b""))
        await topic.terminate()
        await compact(topic)
        reading = Reading()
        await reading.begin(topic, request_)
        assert (len(reading.session.positions()), reading.told.ends) == (1, 0)
        await reading.acknowledge_upto_last()
        assert reading.told.ends == 1


@pytest.mark.parametrize("request_", [READER, DURABLE])
async def test_the_end_is_told_though_everything_was_compacted_away(
    request_: SubscribeRequest,
) -> None:
    rig = Rig()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("b", b"1"), single("b", b""))
        await topic.terminate()
        await compact(topic)
        reading = Reading()
        await reading.begin(topic, request_)
        assert (reading.session.positions(), reading.told.ends) == ([], 1)
