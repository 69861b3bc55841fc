"""Proves that a topic's consumers cost about as many bytes from the bookies as they are sent.

A topic's whole broker side reads from bookies in memory: nothing of it is cached. What the bookies
gave is compared with what consumers were sent, at any mix of entry sizes, whatever they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of, producer_of
from tests.unit.geminga_broker.compaction.compacted_topics import READER, compact, loaded
from tests.unit.geminga_ledger.entry_sizes import KIB, MIB, mixes
from tests.unit.geminga_ledger.world import World

from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.config import CacheConfig, ManagedLedgerConfig
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.ledger_chain.retention import FOR_EVER
from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_ledger import Ledgers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import parse_command
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_simulation.conditions import INSTANT
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop
from geminga_simulation.zookeeper.server import SimulatedZooKeeper

KEYS = 16
# What is published in an example of a property test at most.
BYTES_MAX = 8 * MIB
RATIO_MAX = 1.5
# So long a topic is looked at: more steps than any test here takes.
STEPS_MAX = 5_000


class Reading:
    """A topic whose entries are only on bookies, and who reads it."""

    def __init__(self, topic: Topic, ledgers: Ledgers, payloads: list[bytes]) -> None:
        self.topic = topic
        self.payloads = payloads
        self.consumers: list[tuple[Subscription, Consumer, NotedSession]] = []
        self._counters = ledgers.counters
        self._before = ledgers.counters.bytes_read

    async def subscribe(
        self, kind: SubscriptionType, count: int = 1, name: str = "sub"
    ) -> list[tuple[Subscription, Consumer, NotedSession]]:
        request = SubscribeRequest(name, kind, starts_at_earliest=True)
        come: list[tuple[Subscription, Consumer, NotedSession]] = []
        for number in range(count):
            subscription = await self.topic.part(PersistentSubscriptions).subscribe(request)
            session = NotedSession()
            consumer = consumer_of(session, f"c{number}")
            subscription.connected(consumer)
            come.append((subscription, consumer, session))
        self.consumers += come
        return come

    @property
    def bytes_read(self) -> int:
        """What came from the bookies since the topic was loaded."""
        return self._counters.bytes_read - self._before

    @property
    def bytes_sent(self) -> int:
        return sum(consumer.bytes_out for _, consumer, _ in self.consumers)

    def ids_sent(self) -> list[int]:
        """Which entries all consumers were sent, as often as they were."""
        return sorted(
            position_in(header)[1]
            for _, _, session in self.consumers
            for header in session.out[::2]
        )

    def check_contents(self) -> None:
        """What was sent is what was published there."""
        for _, _, session in self.consumers:
            for header, payload in zip(session.out[::2], session.out[1::2], strict=True):
                assert payload == self.payloads[position_in(header)[1]]


def payload_of(number: int, size: int) -> bytes:
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=number,
        publish_time=1,
        partition_key=f"key {number * 7 % KEYS}",
        uncompressed_size=size,
    )
    return encode_payload(metadata, bytes(size))


@asynccontextmanager
async def reading_of(
    sizes: Sequence[int], config: ManagedLedgerConfig | None = None
) -> AsyncGenerator[Reading]:
    """A topic with messages of these sizes, loaded by a broker that has none of it in memory."""
    world, zookeeper = World(1), SimulatedZooKeeper(conditions=INSTANT)
    config = config or ManagedLedgerConfig(retention_time_ms=FOR_EVER, retention_bytes=FOR_EVER)
    payloads = [payload_of(number, size) for number, size in enumerate(sizes)]
    async with world.ledgers() as ledgers:
        for life in ("writes", "reads"):
            factory = ManagedLedgerFactory(
                coordination=zookeeper.session(life),
                ledgers=ledgers,
                cache=EntryCache(CacheConfig()),
                clock=SimulatedClock(),
                random=Random(1),
                config=config,
            )
            async with TopicDirectory(factory, SimulatedClock(), owns=lambda _: True) as topics:
                topic = await loaded(topics)
                if life == "writes":
                    await _publish(topic, payloads)
                else:
                    yield Reading(topic, ledgers, payloads)


async def _publish(topic: Topic, payloads: Sequence[bytes]) -> None:
    producer = producer_of(NotedSession())
    await topic.publishing.connect(producer)
    for number, payload in enumerate(payloads):
        producer.append_all([(payload, 1, producer, number, 0)])
        if number % 100 == 0:
            await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    assert not topic.managed_ledger.pending_count
    topic.publishing.producers.remove(producer)


def played(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(work)


async def drained(reading: Reading, *, permits: Sequence[int], pause_s: float = 0.01) -> None:
    """Let consumers take ``permits`` messages each time, and acknowledge them, until all came."""
    acknowledged = dict.fromkeys(range(len(reading.consumers)), 0)
    for _ in range(STEPS_MAX):
        for index, (subscription, consumer, _) in enumerate(reading.consumers):
            wanted = permits[index % len(permits)]
            if consumer.permits < wanted:
                subscription.flow(consumer, wanted - max(consumer.permits, 0))
        await asyncio.sleep(pause_s)
        for index, (subscription, consumer, session) in enumerate(reading.consumers):
            ids = [position_in(header) for header in session.out[2 * acknowledged[index] :: 2]]
            acknowledged[index] += len(ids)
            if ids:
                subscription.acknowledger.entries(consumer, ids)
        if sum(acknowledged.values()) == len(reading.payloads):
            return
    raise AssertionError(f"{acknowledged} of {len(reading.payloads)} entries came")


def position_in(header: bytes) -> EntryId:
    """Of which entry the payload is that follows."""
    place = parse_command(header, 4, len(header))[0].message.message_id
    return place.ledgerId, place.entryId


PERMITS = st.lists(st.sampled_from([1, 10, 500, 1000]), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", SubscriptionType)
@given(sizes=mixes(BYTES_MAX), permits=PERMITS)
@settings(max_examples=15)
def test_a_backlog_is_read_once_whatever_its_sizes_and_however_it_is_taken(
    kind: SubscriptionType, sizes: list[int], permits: list[int]
) -> None:
    async def play() -> None:
        async with reading_of(sizes) as reading:
            count = 1 if kind is SubscriptionType.EXCLUSIVE else len(permits)
            await reading.subscribe(kind, count)
            await drained(reading, permits=permits)
            assert reading.ids_sent() == list(range(len(sizes)))
            reading.check_contents()
            assert reading.bytes_read <= RATIO_MAX * reading.bytes_sent

    played(play())


async def test_a_consumer_that_takes_a_few_messages_a_minute_has_nothing_read_twice() -> None:
    async with reading_of([1000] * 300) as reading:
        await reading.subscribe(SubscriptionType.SHARED)
        await drained(reading, permits=[10], pause_s=60)
        assert reading.bytes_read == reading.bytes_sent


@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
async def test_what_is_given_back_is_read_alone(kind: SubscriptionType) -> None:
    """One of ten consumers leaves with its tenth: what lies between is not read with it."""
    sizes = [1000] * 2_000
    async with reading_of(sizes) as reading:
        come = await reading.subscribe(kind, 10)
        for subscription, consumer, _ in come:
            subscription.flow(consumer, 1000)
        await asyncio.sleep(1)
        assert reading.ids_sent() == list(range(2_000))
        assert reading.bytes_read == reading.bytes_sent
        subscription, leaving, _ = come[0]
        given_back = len(leaving.pending)
        assert 0 < given_back < 500
        await subscription.disconnect(leaving)
        await asyncio.sleep(1)
        assert len(reading.ids_sent()) == 2_000 + given_back
        assert reading.bytes_read == reading.bytes_sent


async def test_single_messages_given_back_now_and_then_let_what_is_new_be_read_once() -> None:
    sizes = [50, 20 * KIB] * 500
    async with reading_of(sizes) as reading:
        ((subscription, consumer, session),) = await reading.subscribe(SubscriptionType.SHARED)
        for step in range(STEPS_MAX):
            subscription.flow(consumer, 7)
            await asyncio.sleep(0.01)
            if step < 100:
                subscription.redeliver(consumer, [position_in(session.out[2 * (step * 3)])])
            elif len(session.out) == 2 * 1_100:
                break
        assert set(reading.ids_sent()) == set(range(1_000))
        assert reading.bytes_read <= 1.1 * reading.bytes_sent


async def test_what_was_acknowledged_before_is_not_read_again() -> None:
    sizes = [1000] * 3_000
    async with reading_of(sizes) as reading:
        ((subscription, consumer, session),) = await reading.subscribe(SubscriptionType.SHARED)
        subscription.flow(consumer, 3_000)
        await asyncio.sleep(1)
        left = [0, 1, 7, *range(1_000, 3_000, 5)]
        ledger_id = session.positions()[0][0]
        done = sorted(set(range(3_000)) - set(left))
        subscription.acknowledger.entries(consumer, [(ledger_id, each) for each in done])
        await subscription.disconnect(consumer)
        read_before, sent_before = reading.bytes_read, reading.bytes_sent
        await reading.subscribe(SubscriptionType.SHARED)
        subscription, again, _ = reading.consumers[-1]
        subscription.flow(again, 3_000)
        await asyncio.sleep(1)
        assert sorted(each for _, each in again.pending) == left
        assert reading.bytes_read - read_before == reading.bytes_sent - sent_before


async def test_a_consumer_of_keys_that_lags_lets_the_others_go_on_and_is_read_for_once() -> None:
    """Ten consumers, of which nine take a message where one takes all that it can have."""
    sizes = [1000] * 5_000
    async with reading_of(sizes) as reading:
        await reading.subscribe(SubscriptionType.KEY_SHARED, 10)
        await drained(reading, permits=[1000, *[20] * 9])
        assert reading.ids_sent() == list(range(len(sizes)))
        assert reading.bytes_read <= RATIO_MAX * reading.bytes_sent


@given(sizes=mixes(BYTES_MAX))
@settings(max_examples=10)
def test_compaction_and_compacted_readers_read_everything_once_each_time(
    sizes: list[int],
) -> None:
    async def play() -> None:
        # A message without a value would take its key away.
        async with reading_of([size + 1 for size in sizes]) as reading:
            total = sum(map(len, reading.payloads))
            await compact(reading.topic)
            # Once to find the newest of each key, once to write them.
            assert reading.bytes_read <= 2 * 1.1 * total
            read_before = reading.bytes_read
            subscription = await reading.topic.subscribing.subscribe(READER)
            session = NotedSession()
            consumer = consumer_of(session, reads_compacted=True)
            subscription.connected(consumer)
            for _ in range(KEYS):
                subscription.flow(consumer, 1)
                await asyncio.sleep(60)
            newest = {number * 7 % KEYS: number for number in range(len(sizes))}
            sent = [entry_id for _, entry_id in session.positions()]
            assert sent == sorted(newest.values())
            # A compacted entry bears its place in the log, in some bytes more.
            bytes_max = RATIO_MAX * (consumer.bytes_out + 100 * len(sent))
            assert reading.bytes_read - read_before <= bytes_max

    played(play())


async def test_what_is_published_meanwhile_is_read_with_the_rest() -> None:
    async with reading_of([10 * KIB] * 300) as reading:
        ((subscription, consumer, session),) = await reading.subscribe(SubscriptionType.EXCLUSIVE)
        subscription.flow(consumer, 100)
        await asyncio.sleep(1)
        await _publish(reading.topic, [payload_of(each, 10 * KIB) for each in range(100)])
        subscription.flow(consumer, 1000)
        await asyncio.sleep(1)
        assert len(session.positions()) == 400
        assert reading.bytes_read <= reading.bytes_sent
