"""Proves that stats and metrics of a topic say what happened on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    KeyedLog,
    NotedSession,
    consumer_of,
    cursor_over,
    producer_of,
)
from tests.unit.geminga_broker.clients_and_logs import publish as publish_batches
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.admin.documents.subscription_stats import (
    SubscriptionStats,
    new_consumer_stats,
    new_subscription_stats,
)
from geminga_broker.admin.topics.stats import StatsQuery, add_earliest, add_key_shared, topic_stats
from geminga_broker.metrics.collector import topic_snapshot
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT
from geminga_broker.subscriptions.dispatch.key_shared_dispatcher import KeySharedDispatcher
from geminga_broker.subscriptions.dispatch.rate_limiter import LimitOf
from geminga_broker.subscriptions.distribution.hash_ring import HASHES
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.maintenance import TopicMaintenance
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import AccessMode, SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import DispatchRate, Policies, PublishRate
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

PAYLOAD = encode_payload(
    api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), bytes(100)
)
EVERYTHING = StatsQuery()
PERIOD_S = 10.0


@pytest.fixture
async def topics(coordination: Coordination) -> AsyncIterator[TopicDirectory]:
    """The broker's topics."""
    factory = logs_over(coordination, MemoryLedgers())
    async with TopicDirectory(factory, SimulatedClock(), owns=lambda _: True) as topics:
        yield topics


async def opened(topics: TopicDirectory, domain: str) -> Topic:
    return await topics.get(TopicName.parse(f"{domain}://t/n/topic"), create=True)


async def publish(topic: Topic, count: int) -> None:
    producer = producer_of(NotedSession(), metadata={"a": "b"})
    await topic.publishing.connect(producer)
    producer.messages_in = count
    producer.append_all([(PAYLOAD, 1, producer, number, 0) for number in range(count)])
    await asyncio.sleep(1)


async def subscribed(topic: Topic, permits: int) -> Consumer:
    subscription = await topic.subscribing.subscribe(
        SubscribeRequest("sub", SubscriptionType.SHARED)
    )
    consumer = consumer_of(NotedSession())
    subscription.connected(consumer)
    subscription.flow(consumer, permits)
    return consumer


async def test_what_was_published_delivered_and_left_is_counted(topics: TopicDirectory) -> None:
    topic = await opened(topics, "persistent")
    await subscribed(topic, permits=7)
    await publish(topic, 10)
    stats = topic_stats(topic, EVERYTHING, "here:8080")
    assert (stats["msgInCounter"], stats["bytesInCounter"]) == (10, 10 * len(PAYLOAD))
    assert (stats["msgOutCounter"], stats["bytesOutCounter"]) == (7, 7 * len(PAYLOAD))
    assert stats["storageSize"] == 10 * len(PAYLOAD)
    subscription = stats["subscriptions"]["sub"]
    assert (subscription["msgBacklog"], subscription["unackedMessages"]) == (10, 7)
    assert subscription["lastConsumedTimestamp"] >= stats["topicCreationTimeStamp"] > 0
    assert [each["metadata"] for each in stats["publishers"]] == [{"a": "b"}]
    assert stats["ownerBroker"] == "here:8080"


async def test_publishers_and_consumers_are_left_out_on_request(topics: TopicDirectory) -> None:
    topic = await opened(topics, "persistent")
    await subscribed(topic, permits=1)
    await publish(topic, 1)
    query = StatsQuery(exclude_publishers=True, exclude_consumers=True)
    stats = topic_stats(topic, query, "here:8080")
    assert stats["publishers"] == []
    assert stats["subscriptions"]["sub"]["consumers"] == []


async def test_rates_are_those_of_the_period_before(topics: TopicDirectory) -> None:
    topic = await opened(topics, "persistent")
    await TopicMaintenance(topics, SimulatedClock()).renew_rates()
    await subscribed(topic, permits=50)
    await publish(topic, 100)
    await asyncio.sleep(PERIOD_S - 1)
    maintenance = TopicMaintenance(topics, SimulatedClock())
    await maintenance.renew_rates()
    snapshot = topic_snapshot(topic)
    assert snapshot.rate_in == pytest.approx(100 / PERIOD_S, rel=0.01)
    assert snapshot.average_message_bytes == pytest.approx(len(PAYLOAD))
    stats = topic_stats(topic, EVERYTHING, "here:8080")
    assert stats["averageMsgSize"] == pytest.approx(len(PAYLOAD))
    assert snapshot.rate_out == pytest.approx(50 / PERIOD_S, rel=0.01)
    assert snapshot.storage_write_rate == pytest.approx(100 / PERIOD_S, rel=0.01)
    assert snapshot.storage_read_rate == pytest.approx(50 / PERIOD_S, rel=0.01)
    assert snapshot.storage_read_cache_misses_rate == 0
    assert snapshot.write_latency_ms.count == 100
    assert snapshot.backlog_bytes == 100 * len(PAYLOAD)
    totals = maintenance.totals
    assert (totals.producers, totals.consumers) == (1, 1)
    assert totals.rate_in == snapshot.rate_in
    await asyncio.sleep(PERIOD_S)
    await TopicMaintenance(topics, SimulatedClock()).renew_rates()
    assert topic_snapshot(topic).rate_in == 0
    assert topic_snapshot(topic).write_latency_ms.count == 0


@pytest.mark.parametrize("kind", SubscriptionType)
async def test_it_is_shown_how_many_messages_an_entry_has(
    topics: TopicDirectory, kind: SubscriptionType
) -> None:
    topic = await opened(topics, "persistent")
    await topic.subscribing.create("sub")
    await publish_batches(topic, *[3] * 7, 2)
    subscription = await topic.subscribing.subscribe(SubscribeRequest("sub", kind))
    consumer = consumer_of(NotedSession())
    subscription.connected(consumer)
    subscription.flow(consumer, 1000)
    await asyncio.sleep(1)
    assert (consumer.entries_out, consumer.messages_out) == (8, 23)
    (shown,) = topic_stats(topic, EVERYTHING, "here:8080")["subscriptions"]["sub"]["consumers"]
    assert shown["avgMessagesPerEntry"] == 3


async def test_the_epoch_is_shown_once_there_was_an_exclusive_producer(
    topics: TopicDirectory,
) -> None:
    topic = await opened(topics, "persistent")
    assert topic_stats(topic, EVERYTHING, "here:8080")["topicEpoch"] is None
    producer = producer_of(NotedSession(), access_mode=AccessMode.EXCLUSIVE)
    await topic.publishing.connect(producer)
    assert topic_stats(topic, EVERYTHING, "here:8080")["topicEpoch"] == 0


async def test_chunks_of_producers_that_have_disconnected_are_still_counted(
    topics: TopicDirectory,
) -> None:
    topic = await opened(topics, "persistent")
    await TopicMaintenance(topics, SimulatedClock()).renew_rates()
    producer = producer_of(NotedSession())
    await topic.publishing.connect(producer)
    assert not topic_stats(topic, EVERYTHING, "here:8080")["msgChunkPublished"]
    producer.chunks_in = 20
    await asyncio.sleep(PERIOD_S)
    await TopicMaintenance(topics, SimulatedClock()).renew_rates()
    stats = topic_stats(topic, EVERYTHING, "here:8080")
    assert stats["msgChunkPublished"]
    assert stats["publishers"][0]["chunkedMessageRate"] == pytest.approx(20 / PERIOD_S)
    producer.disconnect()
    assert topic_stats(topic, EVERYTHING, "here:8080")["msgChunkPublished"]


@pytest.mark.parametrize(
    ("policies", "member", "reason"),
    [
        (
            Policies(topic_dispatch_rate={"standalone": DispatchRate(messages=10)}),
            "dispatchThrottledMsgEventsByTopicLimit",
            LimitOf.TOPIC,
        ),
        (
            Policies(subscription_dispatch_rate={"standalone": DispatchRate(size_bytes=1000)}),
            "dispatchThrottledBytesEventsBySubscriptionLimit",
            LimitOf.SUBSCRIPTION,
        ),
    ],
)
async def test_a_throttled_subscription_is_shown_with_the_limit_that_throttles_it(
    topics: TopicDirectory, policies: Policies, member: str, reason: LimitOf
) -> None:
    topic = await opened(topics, "persistent")
    topics.apply_policies(topic.name.namespace, policies)
    await subscribed(topic, permits=1000)
    await publish(topic, 30)
    shown = topic_stats(topic, EVERYTHING, "here:8080")["subscriptions"]["sub"]
    counts = {name: value for name, value in shown.items() if name.startswith("dispatchThrottled")}
    assert {name for name, count in counts.items() if count} == {member}
    stalls = topic_snapshot(topic).subscriptions[0].stalls
    assert stalls is not None
    assert counts[member] == stalls.by_messages[reason] + stalls.by_bytes[reason]
    topics.apply_policies(topic.name.namespace, Policies())
    again = topic_stats(topic, EVERYTHING, "here:8080")["subscriptions"]["sub"]
    assert dict(again)[member] == counts[member]


async def test_who_publishes_too_fast_is_counted(topics: TopicDirectory) -> None:
    limit = Policies(publish_max_message_rate={"standalone": PublishRate(messages=5)})
    for domain in ("persistent", "non-persistent"):
        topic = await opened(topics, domain)
        topics.apply_policies(topic.name.namespace, limit)
        await publish(topic, 20)
        assert topic_stats(topic, EVERYTHING, "here:8080")["publishRateLimitedTimes"] == 1
        assert topic_snapshot(topic).publish_pauses == 1


async def test_messages_that_no_consumer_could_take_are_a_drop_rate(topics: TopicDirectory) -> None:
    topic = await opened(topics, "non-persistent")
    await TopicMaintenance(topics, SimulatedClock()).renew_rates()
    await subscribed(topic, permits=40)
    await publish(topic, 100)
    await asyncio.sleep(PERIOD_S - 1)
    await TopicMaintenance(topics, SimulatedClock()).renew_rates()
    stats = topic_stats(topic, EVERYTHING, "here:8080")
    drop_rate = stats["subscriptions"]["sub"]["msgDropRate"]
    assert drop_rate == pytest.approx(60 / PERIOD_S, rel=0.01)
    assert topic_snapshot(topic).subscriptions[0].drop_rate == drop_rate
    # No publisher was told that the broker was too busy, which is what these say (as upstream).
    assert stats["msgDropRate"] == stats["publishers"][0]["msgDropRate"] == 0


def stats_of(dispatcher: KeySharedDispatcher) -> SubscriptionStats:
    stats = new_subscription_stats()
    stats["consumers"] = [new_consumer_stats() for _ in dispatcher.consumers]
    add_key_shared(stats, dispatcher.distribution)
    return stats


def joined(dispatcher: KeySharedDispatcher, name: str) -> Consumer:
    consumer = consumer_of(NotedSession(), name)
    consumer.permits = 100
    dispatcher.add(consumer)
    dispatcher.dispatch()
    return consumer


def test_one_consumer_has_all_keys_and_drains_none() -> None:
    log = KeyedLog("abcd", (1, 4))
    dispatcher = KeySharedDispatcher(log, cursor_over(log.chain), [], AUTO_SPLIT)  # type: ignore[arg-type]  # a stand-in
    joined(dispatcher, "x")
    stats = stats_of(dispatcher)
    assert stats["keySharedMode"] == "AUTO_SPLIT"
    assert not stats["allowOutOfOrderDelivery"]
    assert stats["consumers"][0]["keyHashRangeArrays"] == [(1, HASHES)]
    assert stats["consumers"][0]["drainingHashes"] == []
    assert stats["drainingHashesCount"] == 0


def test_keys_that_drain_for_a_new_consumer_are_shown_at_the_former_one() -> None:
    log = KeyedLog("abcdefgh", (1, 8))
    dispatcher = KeySharedDispatcher(log, cursor_over(log.chain), [], AUTO_SPLIT)  # type: ignore[arg-type]  # a stand-in
    joined(dispatcher, "x")
    joined(dispatcher, "y")
    stats = stats_of(dispatcher)
    first, second = stats["consumers"]
    draining = first["drainingHashes"]
    assert draining
    assert second["drainingHashes"] == []
    assert {each["unackMsgs"] for each in draining} == {1}
    count = len(draining)
    assert first["drainingHashesCount"] == first["drainingHashesUnackedMessages"] == count
    assert stats["drainingHashesCount"] == stats["drainingHashesUnackedMessages"] == count
    for entry_id in range(8):
        dispatcher.acknowledged_all([(1, entry_id)], ())
    assert stats_of(dispatcher)["drainingHashesClearedTotal"] == count
    assert stats_of(dispatcher)["consumers"][0]["drainingHashesClearedTotal"] == count


def test_key_shared_stats_without_consumers_show_the_subscription_alone() -> None:
    log = KeyedLog("a", (1, 1))
    dispatcher = KeySharedDispatcher(log, cursor_over(log.chain), [], AUTO_SPLIT)  # type: ignore[arg-type]  # a stand-in
    joined(dispatcher, "x")
    stats = new_subscription_stats()
    add_key_shared(stats, dispatcher.distribution)
    assert stats["consumers"] == []


async def earliest(topic: Topic) -> tuple[int, dict[str, int]]:
    """What is told of the topic, and of its subscriptions."""
    stats = topic_stats(topic, StatsQuery(), "here:8080")
    await add_earliest(stats, topic)
    return stats["earliestMsgPublishTimeInBacklogs"], {
        name: each["earliestMsgPublishTimeInBacklog"]
        for name, each in stats["subscriptions"].items()
    }


async def test_the_oldest_message_is_shown_of_each_subscription_and_of_the_slowest_one(
    topics: TopicDirectory,
) -> None:
    topic = await topics.get(TopicName.parse("t"), create=True)
    await topic.subscribing.create("slow")
    await topic.subscribing.create("fast")
    assert await earliest(topic) == (0, {"slow": -1, "fast": -1})
    await publish_batches(topic, 1, age_s=3600)
    await publish_batches(topic, 1, age_s=60)
    await topic.part(PersistentSubscriptions).named("fast").skipping.entries(1)
    of_topic, of_each = await earliest(topic)
    assert of_topic == of_each["slow"]
    assert 3500 < (of_each["fast"] - of_each["slow"]) / 1000 < 3600
    for name in of_each:
        await topic.part(PersistentSubscriptions).named(name).skipping.everything()
    assert await earliest(topic) == (0, {"slow": -1, "fast": -1})
