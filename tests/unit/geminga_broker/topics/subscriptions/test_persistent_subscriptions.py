"""Proves that subscriptions are created, or not, as the policies of their topic say, and that a
client that was refused leaves none behind.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of

from geminga_broker.errors import ConsumerBusy, NotAllowed, SubscriptionAbsent
from geminga_broker.managed_ledger.positions import LATEST, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.subscribe_request import ConsumerIdentity, SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import (
    AutoSubscriptionCreation,
    Policies,
    SubscribeRate,
)

NAME = TopicName.parse("persistent://t/n/topic")
FLEETING = TopicName.parse("non-persistent://t/n/topic")
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = SubscriptionType


@pytest.fixture
async def topic(topics: TopicDirectory) -> Topic:
    """One that keeps its messages."""
    return await topics.get(NAME, create=True)


@pytest.fixture(params=[NAME, FLEETING], ids=["persistent", "non-persistent"])
async def any_topic(request: pytest.FixtureRequest, topics: TopicDirectory) -> Topic:
    """One that does, and one that does not."""
    return await topics.get(request.param, create=True)


@pytest.fixture
def follow(topics: TopicDirectory) -> Callable[[Policies], None]:
    """Let the namespace have these policies."""
    return lambda policies: topics.apply_policies(NAME.namespace, policies)


async def join(
    topic: Topic,
    name: str = "sub",
    kind: SubscriptionType = SHARED,
    *,
    session: NotedSession | None = None,
    is_durable: bool = True,
) -> Consumer:
    consumer = consumer_of(session or NotedSession(), "c")
    who = ConsumerIdentity("/127.0.0.1", "c", 1)
    request = SubscribeRequest(name, kind, is_durable=is_durable, consumer=who)
    subscription = await topic.subscribing.subscribe(request)
    subscription.connected(consumer)
    return consumer


async def test_a_subscription_takes_so_many_consumers(
    any_topic: Topic, follow: Callable[[Policies], None]
) -> None:
    follow(Policies(consumers_per_subscription_max=1))
    await join(any_topic)
    with pytest.raises(ConsumerBusy, match="Subscription reached max consumers limit"):
        await join(any_topic)
    await join(any_topic, "other")
    follow(Policies())
    await join(any_topic)


async def test_a_topic_takes_so_many_consumers_and_refusals_leave_nothing_behind(
    any_topic: Topic, follow: Callable[[Policies], None]
) -> None:
    follow(Policies(consumers_per_topic_max=2))
    await join(any_topic)
    await join(any_topic, "other")
    with pytest.raises(ConsumerBusy, match="Topic reached max consumers limit"):
        await join(any_topic, "third")
    assert list(any_topic.subscribing.subscriptions) == ["sub", "other"]


async def test_a_topic_has_so_many_subscriptions(
    any_topic: Topic, follow: Callable[[Policies], None]
) -> None:
    follow(Policies(subscriptions_per_topic_max=1))
    await join(any_topic)
    await join(any_topic)
    with pytest.raises(NotAllowed, match="Exceed the maximum number of subscriptions"):
        await join(any_topic, "other", is_durable=False)
    if any_topic.name.is_persistent:
        with pytest.raises(NotAllowed, match="Exceed the maximum number of subscriptions"):
            await any_topic.subscribing.create("other")
        assert not await any_topic.subscribing.create("sub"), "it is there"


async def test_only_durable_subscriptions_need_a_name_that_a_node_can_have(topic: Topic) -> None:
    with pytest.raises(NotAllowed, match="A durable subscription cannot be called"):
        await join(topic, "..")
    await join(topic, "..", is_durable=False)
    assert list(topic.subscribing.subscriptions) == [".."]


async def test_only_types_that_are_enabled(
    any_topic: Topic, follow: Callable[[Policies], None]
) -> None:
    follow(Policies(subscription_types_enabled=("Key_Shared",)))
    with pytest.raises(NotAllowed, match="doesn't support Shared sub type!"):
        await join(any_topic)
    await join(any_topic, kind=KEY_SHARED)
    assert len(any_topic.subscribing.subscriptions) == 1


async def test_subscribing_makes_no_subscription_where_that_is_forbidden(
    topic: Topic, follow: Callable[[Policies], None]
) -> None:
    follow(Policies(auto_subscription_creation_override=AutoSubscriptionCreation(allowed=False)))
    with pytest.raises(SubscriptionAbsent):
        await join(topic)
    await join(topic, "reader", EXCLUSIVE, is_durable=False)
    await topic.subscribing.create("sub")
    await join(topic)


async def test_a_consumer_subscribes_so_often(
    topic: Topic, follow: Callable[[Policies], None]
) -> None:
    rate = SubscribeRate(per_consumer=2, period_s=30)
    follow(Policies(cluster_subscribe_rate={"standalone": rate}))
    await join(topic)
    await join(topic)
    with pytest.raises(NotAllowed, match="Subscribe limited"):
        await join(topic)


async def test_a_name_is_durable_or_it_is_not(topic: Topic) -> None:
    reader = await join(topic, is_durable=False)
    with pytest.raises(NotAllowed, match="NonDurable subscription"):
        await join(topic)
    await topic.subscribing.subscriptions["sub"].disconnect(reader)
    await join(topic)
    with pytest.raises(NotAllowed, match="Durable subscription"):
        await join(topic, is_durable=False)


async def test_a_client_that_reconnects_takes_the_place_of_its_dead_connection(
    topic: Topic, follow: Callable[[Policies], None]
) -> None:
    follow(Policies(consumers_per_subscription_max=1))
    gone = await join(topic, session=NotedSession(answers=False))
    back = await join(topic)
    assert topic.subscribing.subscriptions["sub"].consumers == [back] != [gone]


async def test_a_reader_that_is_refused_leaves_no_subscription(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: object) -> None:
        raise ConsumerBusy("come later")

    with monkeypatch.context() as refusing:
        refusing.setattr(Subscription, "admit", refuses)
        with pytest.raises(ConsumerBusy):
            await join(topic, "reader", EXCLUSIVE, is_durable=False)
        with pytest.raises(ConsumerBusy):
            await join(topic, "kept", EXCLUSIVE)
    assert list(topic.subscribing.subscriptions) == ["kept"]


@pytest.mark.parametrize("start", [LATEST, Position(1 << 40, 0)])
async def test_beyond_the_end_the_initial_position_counts(topic: Topic, start: Position) -> None:
    chain = topic.managed_ledger.chain
    for earliest, mark in ((True, chain.before_first), (False, chain.last_confirmed)):
        request = SubscribeRequest(
            f"reader-{earliest}",
            EXCLUSIVE,
            is_durable=False,
            starts_at_earliest=earliest,
            start_position=start,
        )
        subscription = await topic.part(PersistentSubscriptions).subscribe(request)
        assert subscription.cursor.mark_delete == mark
