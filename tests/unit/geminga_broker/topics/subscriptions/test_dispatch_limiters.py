"""Proves, for each type of subscription, that consumers get as much as the dispatch rates of their
subscription, topic and broker let pass, no more and no less.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    NotedSession,
    consumer_of,
    publish,
    resolver_over,
)
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.policies.dispatch import DispatchConfig
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import DispatchRate, Policies
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop

NAME = TopicName.parse("persistent://t/n/topic")
OTHER = TopicName.parse("persistent://t/n/other")
RATE = 10
Follow = Callable[[Policies], None]


@pytest.fixture
def config() -> DispatchConfig:
    """The broker's settings."""
    return DispatchConfig()


@pytest.fixture
async def topics(
    coordination: Coordination, config: DispatchConfig
) -> AsyncIterator[TopicDirectory]:
    """The broker's topics, on virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    factory = logs_over(coordination, MemoryLedgers())
    async with TopicDirectory(
        factory,
        SimulatedClock(loop),
        owns=lambda _: True,
        policies=resolver_over(factory, dispatching=config),
    ) as topics:
        yield topics


@pytest.fixture
def follow(topics: TopicDirectory) -> Follow:
    """Let the namespace have these policies."""
    return lambda policies: topics.apply_policies(NAME.namespace, policies)


async def opened(topics: TopicDirectory, name: TopicName = NAME) -> Topic:
    topic = await topics.get(name, create=True)
    await topic.subscribing.create("sub")
    return topic


async def joined(
    topic: Topic, kind: SubscriptionType, permits: int = 10_000, name: str = "sub"
) -> Consumer:
    subscription = await topic.subscribing.subscribe(SubscribeRequest(name, kind))
    consumer = consumer_of(NotedSession(), f"c{len(subscription.consumers)}")
    subscription.connected(consumer)
    subscription.flow(consumer, permits)
    return consumer


def of_topic(rate: DispatchRate) -> Policies:
    return Policies(topic_dispatch_rate={"standalone": rate})


def of_subscription(rate: DispatchRate) -> Policies:
    return Policies(subscription_dispatch_rate={"standalone": rate})


async def counts(topic: Topic, *at_s: float, name: str = "sub") -> list[int]:
    """How many messages the subscription's consumers had been sent after so long."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    found = []
    for each in at_s:
        await asyncio.sleep(begin_s + each - loop.time())
        found.append(topic.subscribing.subscriptions[name].sent().messages)
    return found


@pytest.mark.parametrize(
    "policies",
    [of_topic(DispatchRate(messages=RATE)), of_subscription(DispatchRate(messages=RATE))],
)
@pytest.mark.parametrize("kind", SubscriptionType)
async def test_consumers_get_so_many_messages_a_second(
    topics: TopicDirectory, follow: Follow, kind: SubscriptionType, policies: Policies
) -> None:
    topic = await opened(topics)
    follow(policies)
    await publish(topic, *[1] * 55)
    await joined(topic, kind)
    assert await counts(topic, 0.01, 1.05, 2.05, 3.05, 4.05, 9) == [10, 20, 30, 40, 50, 55]


@pytest.mark.parametrize("kind", SubscriptionType)
async def test_consumers_get_so_many_bytes_in_a_period(
    topics: TopicDirectory, follow: Follow, kind: SubscriptionType
) -> None:
    topic = await opened(topics)
    await publish(topic, *[1] * 20)
    size_bytes = topic.managed_ledger.chain.total_bytes // 20
    follow(of_subscription(DispatchRate(size_bytes=4 * size_bytes, period_s=10)))
    await joined(topic, kind)
    assert await counts(topic, 0.01, 9, 10.1, 50) == pytest.approx([4, 7, 8, 20], abs=1)


@pytest.mark.parametrize("kind", SubscriptionType)
async def test_a_batch_comes_whole_and_what_follows_waits_for_it(
    topics: TopicDirectory, follow: Follow, kind: SubscriptionType
) -> None:
    topic = await opened(topics)
    follow(of_topic(DispatchRate(messages=RATE)))
    await publish(topic, 5 * RATE, 1, 1)
    await joined(topic, kind)
    assert await counts(topic, 0.01, 3.9, 5.2) == [50, 50, 52]


@pytest.mark.parametrize("config", [DispatchConfig(counts_batches=True)])
@pytest.mark.parametrize("kind", SubscriptionType)
async def test_batches_may_count_as_one_message(
    topics: TopicDirectory, follow: Follow, kind: SubscriptionType
) -> None:
    topic = await opened(topics)
    follow(of_topic(DispatchRate(messages=RATE)))
    await publish(topic, *[7] * 25)
    await joined(topic, kind)
    assert await counts(topic, 0.01, 1.05, 3) == [70, 140, 175]


@pytest.mark.parametrize(
    ("policies", "each"),
    [
        (of_topic(DispatchRate(messages=100)), 500),
        (of_subscription(DispatchRate(messages=100)), 1000),
    ],
)
async def test_subscriptions_of_a_topic_share_its_rate_and_have_their_own(
    topics: TopicDirectory, follow: Follow, policies: Policies, each: int
) -> None:
    topic = await opened(topics)
    await topic.subscribing.create("other")
    follow(policies)
    await publish(topic, *[1] * 2000)
    for name in topic.subscribing.subscriptions:
        await joined(topic, SubscriptionType.SHARED, name=name)
    await asyncio.sleep(9)
    subscriptions = topic.subscribing.subscriptions.values()
    sent = [subscription.sent().messages for subscription in subscriptions]
    assert sent == pytest.approx([each, each], rel=0.15)


@pytest.mark.parametrize("config", [DispatchConfig(broker_messages_per_s_max=100)])
async def test_topics_of_a_broker_share_its_rate_and_none_starves(topics: TopicDirectory) -> None:
    opened_topics = [await opened(topics, name) for name in (NAME, OTHER)]
    for topic in opened_topics:
        await publish(topic, *[1] * 1000)
    for topic in opened_topics:
        await joined(topic, SubscriptionType.EXCLUSIVE)
    await asyncio.sleep(9)
    sent = [topic.subscribing.subscriptions["sub"].sent().messages for topic in opened_topics]
    assert sent == pytest.approx([500, 500], rel=0.15)


async def test_what_is_given_back_counts_again(topics: TopicDirectory, follow: Follow) -> None:
    topic = await opened(topics)
    follow(of_subscription(DispatchRate(messages=RATE)))
    await publish(topic, *[1] * 10)
    consumer = await joined(topic, SubscriptionType.SHARED)
    subscription = topic.subscribing.subscriptions["sub"]
    subscription.redeliver(consumer, None)
    assert subscription.sent().messages == 10
    await asyncio.sleep(1.05)
    assert subscription.sent().messages == 20
    assert consumer.unacknowledged == 10


async def test_permits_and_rates_hold_both(topics: TopicDirectory, follow: Follow) -> None:
    topic = await opened(topics)
    follow(of_subscription(DispatchRate(messages=RATE)))
    await publish(topic, *[1] * 50)
    consumer = await joined(topic, SubscriptionType.SHARED, permits=15)
    assert await counts(topic, 0.01, 5) == [10, 15]
    topic.subscribing.subscriptions["sub"].flow(consumer, 10_000)
    assert await counts(topic, 0.01, 1.05) == [25, 35]


@pytest.mark.parametrize("config", [DispatchConfig(throttles_non_backlog=False)])
async def test_subscriptions_without_a_backlog_may_be_left_unlimited(
    topics: TopicDirectory, follow: Follow
) -> None:
    topic = await opened(topics)
    follow(of_subscription(DispatchRate(messages=RATE)))
    await publish(topic, *[1] * 1200)
    await joined(topic, SubscriptionType.EXCLUSIVE)
    found = await counts(topic, 0.01, 5, 30)
    assert found[0] == 10
    assert found[1] == pytest.approx(60, abs=2)
    assert found[2] == 1200, "less than a thousand were left"


async def test_a_limit_that_is_lifted_lets_all_through_at_once(
    topics: TopicDirectory, follow: Follow
) -> None:
    topic = await opened(topics)
    follow(of_topic(DispatchRate(messages=1, period_s=1000)))
    await publish(topic, *[1] * 50)
    await joined(topic, SubscriptionType.KEY_SHARED)
    assert await counts(topic, 5) == [1]
    follow(Policies())
    assert await counts(topic, 0.01) == [50]


async def test_a_rate_may_follow_what_is_published(topics: TopicDirectory, follow: Follow) -> None:
    topic = await opened(topics)
    rate = DispatchRate(messages=RATE, relative_to_publish_rate=True)
    follow(Policies(topic_dispatch_rate={"standalone": rate}))
    await publish(topic, *[1] * 500)
    await asyncio.sleep(10)
    topic.tick(asyncio.get_running_loop().time())
    assert topic.meter.rates[0] > RATE
    faster = topic.meter.rates[0] + RATE
    await joined(topic, SubscriptionType.EXCLUSIVE)
    found = await counts(topic, 0.01, 2)
    assert found[1] - found[0] == pytest.approx(2 * faster, rel=0.1)


async def test_nothing_is_made_where_nothing_is_limited(topics: TopicDirectory) -> None:
    topic = await opened(topics)
    await joined(topic, SubscriptionType.SHARED)
    dispatcher = topic.part(PersistentSubscriptions).named("sub").membership.dispatcher
    assert dispatcher is not None
    assert dispatcher._throttle is None


async def test_nothing_is_left_of_a_subscription_that_is_gone(
    topics: TopicDirectory, follow: Follow
) -> None:
    topic = await opened(topics)
    follow(of_topic(DispatchRate(messages=1, period_s=1000)))
    await publish(topic, *[1] * 5)
    consumer = await joined(topic, SubscriptionType.SHARED)
    subscription = topic.subscribing.subscriptions["sub"]
    await subscription.unsubscribe(consumer, force=True)
    await topic.subscribing.create("next", from_earliest=True)
    await joined(topic, SubscriptionType.SHARED, name="next")
    follow(Policies())
    assert await counts(topic, 0.01, name="next") == [5]
    assert isinstance(subscription, Subscription)
    assert subscription.sent().messages == 1
