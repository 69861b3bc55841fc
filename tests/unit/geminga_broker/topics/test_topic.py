"""Proves what a persistent topic promises: receipts, kept subscriptions, an orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, Told, consumer_of, producer_of
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers

from geminga_broker.errors import (
    ConsumerNotAssigned,
    InvalidRequest,
    ServiceNotReady,
    SubscriptionNotFound,
    TopicFenced,
)
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.decisions.key_shared_policy import KeySharedPolicy
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.config import TopicsConfig
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.part import TopicPart
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_ledger import LedgerFenced
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import KeySharedMode, SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.topics.cursor import cursor_path
from geminga_runtime.coordination import Coordination

NAME = TopicName.parse("persistent://t/n/topic")
EXCLUSIVE = SubscribeRequest("sub", SubscriptionType.EXCLUSIVE)
PAYLOAD = encode_payload(
    api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"body"
)


@pytest.fixture
async def topic(topics: TopicDirectory) -> Topic:
    """The topic under test."""
    return await topics.get(NAME, create=True)


async def connected(topic: Topic, session: NotedSession) -> Producer:
    """A producer of ``topic``."""
    producer = producer_of(session)
    await topic.publishing.connect(producer)
    return producer


def publish(producer: Producer, *numbers: int) -> None:
    producer.append_all([(PAYLOAD, 1, producer, number, 0) for number in numbers])


def receipts(session: NotedSession) -> list[int]:
    """Sequence ids of the receipts sent so far."""
    return [
        command.send_receipt.sequence_id
        for command in session.commands()
        if command.type == api.BaseCommand.SEND_RECEIPT
    ]


async def test_a_receipt_is_sent_when_the_entry_is_durable_and_then_it_is_delivered(
    topic: Topic, ledgers: MemoryLedgers
) -> None:
    ledgers.is_prompt = False
    producing, consuming = NotedSession(), NotedSession()
    producer = await connected(topic, producing)
    subscription = await topic.subscribing.subscribe(EXCLUSIVE)
    consumer = consumer_of(consuming)
    subscription.connected(consumer)
    subscription.flow(consumer, 10)
    publish(producer, 7, 8)
    assert receipts(producing) == []
    assert consuming.positions() == []
    ledgers.writers[0].confirm()
    assert receipts(producing) == [7, 8]
    assert [entry_id for _, entry_id in consuming.positions()] == [0, 1]
    assert topic.publishing.messages_in == 2
    assert topic.publishing.bytes_in == 2 * len(PAYLOAD)


async def test_a_durable_subscription_is_kept_and_a_readers_ends_with_it(
    topic: Topic, topics: TopicDirectory
) -> None:
    reading = SubscribeRequest("reader", SubscriptionType.EXCLUSIVE, is_durable=False)
    for request in (EXCLUSIVE, reading):
        subscription = await topic.subscribing.subscribe(request)
        consumer = consumer_of(NotedSession())
        subscription.connected(consumer)
        await subscription.disconnect(consumer)
    assert not topic.connected_count
    assert list(topic.subscribing.subscriptions) == ["sub"]
    with pytest.raises(SubscriptionNotFound, match="reader not found"):
        topic.part(PersistentSubscriptions).named("reader")
    await topics.unload(NAME)
    again = await topics.get(NAME, create=False)
    assert list(again.subscribing.subscriptions) == ["sub"]


async def test_a_fenced_topic_closes_its_consumers_and_refuses_new_ones(
    topic: Topic, topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    subscription = await topic.subscribing.subscribe(EXCLUSIVE)
    told = Told()
    subscription.connected(consumer_of(NotedSession(), told=told))
    ledgers.writers[0].fail(LedgerFenced(0))
    with pytest.raises(TopicFenced):
        await topic.subscribing.subscribe(EXCLUSIVE)
    await asyncio.sleep(1)
    assert told.closures == 1
    assert topics.loaded.get(NAME) is None


async def test_a_topic_whose_cursor_another_broker_took_is_let_go(
    topic: Topic,
    topics: TopicDirectory,
    coordination: Coordination,
    meddle: Callable[[str, bytes], None],
) -> None:
    subscription = await topic.part(PersistentSubscriptions).subscribe(EXCLUSIVE)
    told = Told()
    subscription.connected(consumer_of(NotedSession(), told=told))
    path = cursor_path(NAME.managed_ledger_name, "sub")
    meddle(path, (await coordination.get(path))[0])
    with pytest.raises(ServiceNotReady, match="nothing was saved for subscription sub"):
        await subscription.seek(Position(0, 0))
    await asyncio.sleep(1)
    assert told.closures == 1
    assert topics.loaded.get(NAME) is None


async def test_a_broker_that_ends_waits_for_dead_bookies_no_longer_than_its_budget(
    topic: Topic,
    topics: TopicDirectory,
    ledgers: MemoryLedgers,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledgers.is_prompt = False
    publish(await connected(topic, NotedSession()), 1)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await topics.__aexit__(None, None, None)
    assert 0 < loop.time() - began_s <= TopicsConfig().close_budget_s
    assert not ledgers.writers[0].is_closed
    assert "topic left open" in caplog.text


async def test_a_part_that_cannot_close_keeps_neither_the_others_nor_the_log_open(
    topic: Topic,
    topics: TopicDirectory,
    ledgers: MemoryLedgers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: TopicPart) -> None:
        raise ValueError("a bug")

    await topic.subscribing.create("sub")
    publish(await connected(topic, NotedSession()), 1, 2)
    await asyncio.sleep(0)
    cursor = topic.part(PersistentSubscriptions).named("sub").cursor
    cursor.acknowledged.acknowledge_upto(Position(0, 0))
    cursor.changed()
    monkeypatch.setattr(TopicCompaction, "close", fail)
    await topics.unload(NAME)
    assert [record.message for record in caplog.records] == ["part not closed"]
    assert ledgers.writers[0].is_closed
    again = await topics.get(NAME, create=False)
    assert again.part(PersistentSubscriptions).named("sub").cursor.mark_delete == Position(0, 0)


async def test_an_unloaded_topic_waits_for_what_is_on_its_way(
    topic: Topic, topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    ledgers.is_prompt = False
    publish(await connected(topic, NotedSession()), 1)
    unloading = asyncio.ensure_future(topics.unload(NAME))
    await asyncio.sleep(10 * TopicsConfig().close_budget_s)
    assert not unloading.done()
    ledgers.writers[0].confirm()
    await unloading
    assert ledgers.writers[0].is_closed


@pytest.mark.parametrize("is_durable", [True, False])
async def test_a_consumer_that_asks_for_no_keys_leaves_no_subscription(
    topic: Topic, *, is_durable: bool
) -> None:
    keys = KeySharedPolicy(KeySharedMode.STICKY)
    with pytest.raises(ConsumerNotAssigned, match="must not be empty"):
        await topic.subscribing.subscribe(
            SubscribeRequest(
                "sub", SubscriptionType.KEY_SHARED, is_durable=is_durable, key_shared=keys
            )
        )
    assert topic.subscribing.subscriptions == {}


async def test_a_consumer_that_unsubscribes_while_another_comes_is_refused_and_stays(
    topic: Topic,
) -> None:
    shared = SubscribeRequest("sub", SubscriptionType.SHARED)
    first, second = consumer_of(NotedSession(), "first"), consumer_of(NotedSession(), "second")
    subscription = await topic.subscribing.subscribe(shared)
    subscription.connected(first)

    async def come() -> None:
        (await topic.subscribing.subscribe(shared)).connected(second)

    # Both wait for a third subscription; the order is that of waiting.
    creating = asyncio.ensure_future(topic.subscribing.create("third"))
    await asyncio.sleep(0)
    coming = asyncio.ensure_future(come())
    await asyncio.sleep(0)
    with pytest.raises(InvalidRequest, match="shared consumer"):
        await subscription.unsubscribe(first, force=False)
    await asyncio.gather(creating, coming)
    assert topic.part(PersistentSubscriptions).named("sub").consumers == [first, second]


async def test_a_consumer_that_comes_while_another_unsubscribes_gets_a_new_subscription(
    topic: Topic,
) -> None:
    shared = SubscribeRequest("sub", SubscriptionType.SHARED)
    first, second = consumer_of(NotedSession(), "first"), consumer_of(NotedSession(), "second")
    subscription = await topic.subscribing.subscribe(shared)
    subscription.connected(first)
    leaving = asyncio.ensure_future(subscription.unsubscribe(first, force=False))
    await asyncio.sleep(0)
    (await topic.subscribing.subscribe(shared)).connected(second)
    await leaving
    assert topic.part(PersistentSubscriptions).named("sub") is not subscription
    assert topic.part(PersistentSubscriptions).named("sub").consumers == [second]
