"""Proves that subscriptions pass what is too old, and nothing else, also what a consumer holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    NotedSession,
    consumer_of,
    maintain,
    producer_of,
    resolver_over,
)
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.errors import StorageUnavailable
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader
from geminga_broker.policies.expiry import ExpiryConfig
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.cursor_moves import expiry_monitor
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.backlog import MessageExpiry
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import DelayedDelivery, Policies
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop

NAME = TopicName.parse("persistent://t/n/topic")
TTL_S = 60
OLD, YOUNG = 2 * TTL_S, TTL_S // 2
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = SubscriptionType


def clock_now() -> SimulatedClock:
    """The clock of the test that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return SimulatedClock(loop)


class Namespace:
    """Whose policies hold."""

    def __init__(self) -> None:
        self.policies = Policies(message_ttl_s=TTL_S)

    async def of(self, _: NamespaceName) -> Policies:
        return self.policies


@pytest.fixture
def namespace() -> Namespace:
    """The topic's."""
    return Namespace()


@pytest.fixture
def ledgers() -> MemoryLedgers:
    """The cluster's ledgers."""
    return MemoryLedgers()


@pytest.fixture
def expiry() -> ExpiryConfig:
    """The broker's own settings."""
    return ExpiryConfig()


@pytest.fixture
async def topics(
    coordination: Coordination, ledgers: MemoryLedgers, namespace: Namespace, expiry: ExpiryConfig
) -> AsyncIterator[TopicDirectory]:
    """Where the topic under test is opened, with small ledgers."""
    factory = logs_over(
        coordination,
        ledgers,
        config=ManagedLedgerConfig(ledger_entries_max=5, ledger_age_min_s=0),
        clock=clock_now(),
    )
    async with TopicDirectory(
        factory,
        clock_now(),
        owns=lambda _: True,
        policies=resolver_over(factory, namespace.of, expiry=expiry),
    ) as topics:
        yield topics


@pytest.fixture
async def topic(topics: TopicDirectory) -> Topic:
    """The topic under test, with one subscription."""
    topic = await topics.get(NAME, create=True)
    await topic.subscribing.create("sub")
    return topic


async def publish(topic: Topic, *ages_s: int, due_in_s: int | None = None) -> None:
    """Messages of these ages, each to be delivered so long after now."""
    now_ms = clock_now().wall_ms()
    producer = producer_of(NotedSession())
    await topic.publishing.connect(producer)
    for age_s in ages_s:
        metadata = api.MessageMetadata(
            producer_name="p", sequence_id=0, publish_time=now_ms - age_s * 1000
        )
        if due_in_s is not None:
            metadata.deliver_at_time = now_ms + due_in_s * 1000
        producer.append_all([(encode_payload(metadata, b"m"), 1, producer, 0, 0)])
        await asyncio.sleep(0.1)
    producer.disconnect()


async def connected(
    topic: Topic, kind: SubscriptionType, permits: int
) -> tuple[Consumer, NotedSession]:
    session = NotedSession()
    consumer = consumer_of(session)
    subscription = await topic.subscribing.subscribe(SubscribeRequest("sub", kind))
    subscription.connected(consumer)
    subscription.flow(consumer, permits)
    await asyncio.sleep(0.1)
    return consumer, session


def sub(topic: Topic) -> Subscription:
    return topic.part(PersistentSubscriptions).named("sub")


async def test_what_is_older_is_passed_and_counted(topics: TopicDirectory, topic: Topic) -> None:
    await publish(topic, *[OLD] * 12, *[YOUNG] * 3)
    await maintain(topics, MessageExpiry)
    skipping = sub(topic).skipping
    assert (sub(topic).cursor.backlog_entries, skipping.expired) == (3, 12)
    assert skipping.last_expired_ms == pytest.approx(clock_now().wall_ms(), abs=1000)
    topic.tick(clock_now().monotonic())
    assert skipping.expiry_meter is not None
    assert skipping.expiry_meter.rates[0] == pytest.approx(12 / clock_now().monotonic())


async def test_time_makes_messages_old(topics: TopicDirectory, topic: Topic) -> None:
    await publish(topic, *[YOUNG] * 3)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 3
    await asyncio.sleep(TTL_S - YOUNG)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 0


async def test_without_a_time_to_live_nothing_is_looked_at(
    topics: TopicDirectory, topic: Topic, namespace: Namespace
) -> None:
    namespace.policies = Policies()
    topics.apply_policies(NAME.namespace, namespace.policies)
    await publish(topic, OLD)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 1


@pytest.mark.parametrize("expiry", [ExpiryConfig(ttl_default_s=TTL_S)])
@pytest.mark.parametrize(("policy", "left"), [(None, 0), (-1, 0), (0, 1), (2 * OLD, 1)])
async def test_the_namespace_s_word_goes_before_the_broker_s(
    topics: TopicDirectory,
    topic: Topic,
    namespace: Namespace,
    policy: int | None,
    left: int,
) -> None:
    namespace.policies = replace(namespace.policies, message_ttl_s=policy)
    topics.apply_policies(NAME.namespace, namespace.policies)
    await publish(topic, OLD)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == left


async def test_topics_of_the_brokers_themselves_keep_everything(topics: TopicDirectory) -> None:
    name = TopicName.parse("persistent://t/n/__change_events")
    topic = await topics.get(name, create=True)
    await topic.subscribing.create("sub")
    await publish(topic, OLD)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 1


async def test_compaction_s_cursor_stays_where_it_is(topics: TopicDirectory, topic: Topic) -> None:
    await publish(topic, OLD, OLD)
    await topic.part(TopicCompaction).trigger()
    await asyncio.sleep(10)
    (cursor,) = topic.part(TopicCompaction).cursors()
    await publish(topic, OLD)
    before = cursor.mark_delete
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 0
    assert cursor.mark_delete == before


async def test_a_subscription_that_is_not_durable_passes_them_too(
    topics: TopicDirectory, topic: Topic
) -> None:
    await publish(topic, OLD, YOUNG)
    request = SubscribeRequest("reader", EXCLUSIVE, is_durable=False, starts_at_earliest=True)
    reader = await topic.part(PersistentSubscriptions).subscribe(request)
    await maintain(topics, MessageExpiry)
    assert reader.cursor.backlog_entries == 1


@pytest.mark.parametrize("kind", SubscriptionType)
async def test_what_consumers_hold_counts_against_them_no_more(
    topics: TopicDirectory, topic: Topic, kind: SubscriptionType
) -> None:
    await publish(topic, *[OLD] * 4, YOUNG)
    consumer, session = await connected(topic, kind, 2)
    await maintain(topics, MessageExpiry)
    assert (consumer.unacknowledged, consumer.pending) == (0, {})
    sub(topic).flow(consumer, 5)
    await asyncio.sleep(0.1)
    assert len(session.positions()) == 3, "the two sent before, and the one that is young"


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_the_time_of_a_delayed_message_begins_with_its_delivery(
    topics: TopicDirectory, topic: Topic, kind: SubscriptionType
) -> None:
    due_s = 3 * TTL_S
    await publish(topic, OLD)
    await publish(topic, *[OLD] * 7, due_in_s=due_s)
    await publish(topic, *[OLD] * 7)
    consumer, session = await connected(topic, kind, 0)
    await maintain(topics, MessageExpiry)
    assert (sub(topic).cursor.backlog_entries, sub(topic).skipping.expired) == (7, 8)
    await asyncio.sleep(due_s)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 7, "they are due, and young"
    sub(topic).flow(consumer, 5)
    await asyncio.sleep(1)
    assert len(session.positions()) == 5
    await asyncio.sleep(TTL_S)
    await maintain(topics, MessageExpiry)
    assert (sub(topic).cursor.backlog_entries, consumer.unacknowledged) == (0, 0)
    assert sub(topic).skipping.expired == 15


async def test_a_young_message_stays_though_old_ones_lie_behind_it(
    topics: TopicDirectory, topic: Topic
) -> None:
    await publish(topic, OLD, YOUNG, OLD, OLD)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 1
    await asyncio.sleep(TTL_S)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 0


async def test_delayed_messages_are_spared_before_the_first_consumer_comes(
    topics: TopicDirectory, topic: Topic
) -> None:
    await publish(topic, OLD, due_in_s=TTL_S)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 1


async def test_delayed_messages_are_looked_at_once_not_each_time(
    topics: TopicDirectory, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(topic, *[OLD] * 8, due_in_s=10 * TTL_S)
    await maintain(topics, MessageExpiry)
    looked: list[object] = []
    honest = LogReader.read

    async def noted(reader: LogReader, position: Position, count: int) -> list[Entry]:
        looked.append(position)
        return await honest(reader, position, count)

    monkeypatch.setattr(LogReader, "read", noted)
    for _ in range(5):
        await maintain(topics, MessageExpiry)
    assert looked == []


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_where_nothing_is_held_back_the_time_begins_with_publishing(
    topics: TopicDirectory, topic: Topic, kind: SubscriptionType
) -> None:
    await connected(topic, kind, 0)
    await publish(topic, OLD, due_in_s=TTL_S)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 0


@pytest.mark.parametrize("expiry", [ExpiryConfig(delayed_from_delivery=False)])
async def test_as_upstream_where_the_broker_is_told_so(
    topics: TopicDirectory, topic: Topic
) -> None:
    await connected(topic, SHARED, 0)
    await publish(topic, OLD, due_in_s=TTL_S)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 0


async def test_where_the_namespace_delays_nothing_the_time_begins_with_publishing(
    topics: TopicDirectory, topic: Topic, namespace: Namespace
) -> None:
    await connected(topic, SHARED, 0)
    await publish(topic, OLD, due_in_s=TTL_S)
    off = replace(namespace.policies, delayed_delivery=DelayedDelivery(active=False, tick_ms=1))
    topics.apply_policies(NAME.namespace, off)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 0


async def test_after_a_seek_back_everything_is_looked_at_again(
    topics: TopicDirectory, topic: Topic
) -> None:
    await publish(topic, OLD, due_in_s=TTL_S)
    await publish(topic, *[OLD] * 4)
    await topic.subscribing.subscribe(SubscribeRequest("keeps", SHARED))
    await maintain(topics, MessageExpiry)
    first = topic.managed_ledger.chain.readable_from(topic.managed_ledger.chain.before_first)
    await sub(topic).seek(first)
    assert sub(topic).cursor.backlog_entries == 5
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 1


async def test_a_seek_while_entries_are_read_ends_the_look(
    topics: TopicDirectory, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(topic, OLD, due_in_s=TTL_S)
    await publish(topic, *[OLD] * 3)
    log = topic.managed_ledger
    first = log.chain.readable_from(log.chain.before_first)
    honest = LogReader.read

    async def slowly(reader: LogReader, position: Position, count: int) -> list[Entry]:
        await asyncio.sleep(1)
        return await honest(reader, position, count)

    monkeypatch.setattr(LogReader, "read", slowly)
    monkeypatch.setattr(expiry_monitor, "CHECKED_ENTRIES_MAX", 1)
    looking = asyncio.ensure_future(maintain(topics, MessageExpiry))
    for _ in range(100):
        await asyncio.sleep(1.1)
        if sub(topic).skipping.expired == 2:
            break
    await sub(topic).seek(first)
    await looking
    assert sub(topic).cursor.backlog_entries == 4
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 1


async def test_bookies_that_do_not_answer_for_one_topic_do_not_stop_others(
    topics: TopicDirectory, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await topics.get(TopicName.parse("persistent://t/n/other"), create=True)
    await other.subscribing.create("sub")
    await publish(topic, OLD)
    await publish(other, OLD)

    honest, away = LogReader.read, topic.managed_ledger.reader

    async def fails(reader: LogReader, position: Position, count: int) -> list[Entry]:
        if reader is away:
            raise StorageUnavailable("away")
        return await honest(reader, position, count)

    monkeypatch.setattr(LogReader, "read", fails)
    await maintain(topics, MessageExpiry)
    assert sub(topic).cursor.backlog_entries == 1
    assert sub(other).cursor.backlog_entries == 0
