"""Proves what a non-persistent topic does with a message: deliver it now, or count it."""

from __future__ import annotations

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, Told, consumer_of, producer_of

from geminga_broker.errors import ConsumerBusy, ProducerBusy, TopicFenced
from geminga_broker.subscriptions import non_persistent_subscription
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.non_persistent_subscription import NonPersistentSubscription
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.subscriptions.non_persistent_subscriptions import (
    NonPersistentSubscriptions,
)
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import TopicName

EXCLUSIVE, SHARED, FAILOVER = (
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.SHARED,
    SubscriptionType.FAILOVER,
)


@pytest.fixture
async def topic(topics: TopicDirectory) -> Topic:
    """The topic under test."""
    return await topics.get(TopicName.parse("non-persistent://t/n/topic"), create=True)


async def connected(topic: Topic, session: NotedSession) -> Producer:
    producer = producer_of(session)
    await topic.publishing.connect(producer)
    return producer


async def joined(
    topic: Topic,
    kind: SubscriptionType,
    name: str = "c",
    *,
    permits: int = 100,
    told: Told | None = None,
) -> tuple[NonPersistentSubscription, Consumer, NotedSession]:
    session = NotedSession()
    request = SubscribeRequest("sub", kind)
    subscription = await topic.part(NonPersistentSubscriptions).subscribe(request)
    consumer = consumer_of(session, name, told=told)
    subscription.connected(consumer)
    subscription.flow(consumer, permits)
    return subscription, consumer, session


def publish(producer: Producer, count: int) -> None:
    producer.append_all([(b"payload", 1, producer, number, 0) for number in range(count)])


async def test_a_consumer_gets_as_many_messages_as_it_has_permits_and_the_others_are_counted(
    topic: Topic,
) -> None:
    producing = NotedSession()
    subscription, consumer, session = await joined(topic, EXCLUSIVE, permits=3)
    publish(await connected(topic, producing), 5)
    assert len(session.messages()) == 3
    assert subscription.messages_dropped == 2
    assert consumer.last_sent_ms > 0
    ids = [command.send_receipt.message_id for command in producing.commands()]
    assert [(each.ledgerId, each.entryId) for each in ids] == [(0, 0)] * 5


async def test_shared_consumers_take_turns(topic: Topic) -> None:
    sessions = [(await joined(topic, SHARED, name))[2] for name in "abc"]
    publish(await connected(topic, NotedSession()), 9)
    assert [len(session.messages()) for session in sessions] == [3, 3, 3]


async def test_the_active_consumer_is_chosen_when_consumers_come_and_go_not_for_each_message(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = 0

    def choose_last(_topic: str, _partition: int, consumers: object) -> int:
        nonlocal choices
        choices += 1
        assert isinstance(consumers, list)
        return len(consumers) - 1

    monkeypatch.setattr(non_persistent_subscription, "choose_active", choose_last)
    told = Told()
    _, _, first = await joined(topic, FAILOVER, "a", told=told)
    subscription, consumer, second = await joined(topic, FAILOVER, "b")
    producer = await connected(topic, NotedSession())
    publish(producer, 10)
    await subscription.disconnect(consumer)
    publish(producer, 10)
    assert choices == 3
    assert (len(first.messages()), len(second.messages())) == (10, 10)
    assert told.active == [True, False, True]


async def test_an_exclusive_subscription_takes_one_and_types_do_not_mix(
    topic: Topic,
) -> None:
    subscription, consumer, _ = await joined(topic, EXCLUSIVE)
    for kind in (EXCLUSIVE, SHARED):
        with pytest.raises(ConsumerBusy):
            await joined(topic, kind)
    await subscription.disconnect(consumer)
    assert not topic.subscribing.subscriptions
    await joined(topic, SHARED)


async def test_a_producer_whose_client_is_gone_makes_room(topic: Topic) -> None:
    gone = await connected(topic, NotedSession(answers=False))
    later = await connected(topic, NotedSession())
    assert gone.is_closed
    assert list(topic.publishing.producers.by_name.values()) == [later]
    with pytest.raises(ProducerBusy):
        await connected(topic, NotedSession())


async def test_a_deleted_topic_closes_its_clients_and_refuses_new_ones(
    topic: Topic,
) -> None:
    told = Told()
    await joined(topic, EXCLUSIVE, told=told)
    producer = await connected(topic, NotedSession())
    assert topic.connected_count
    await topic.delete()
    assert told.closures == 1
    assert producer.is_closed
    with pytest.raises(TopicFenced):
        await joined(topic, EXCLUSIVE)
