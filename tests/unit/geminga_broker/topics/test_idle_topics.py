"""Proves that a topic without clients takes little memory, loading it little of ZooKeeper, and
that very many are closed a few at a time.

A broker may have 100,000 of them in a GB.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    NotedSession,
    consumer_of,
    producer_of,
    resolver_over,
)
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics import directory
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import DispatchRate, Policies, PublishRate
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.zookeeper.node_tree import check_path
from geminga_simulation.zookeeper.server import SESSION_TIMEOUT_S_DEFAULT

TOPICS = 100
# Seen: 6,300 with CPython 3.11. What is beside objects (the allocator's gaps, growing dictionaries)
# comes on top: a tenth or two.
TOPIC_BYTES_MAX = 7_000
# What makes a topic have more parts than others.
LIMITED = DispatchRate(messages=1000, size_bytes=1_000_000)
EVERYTHING = Policies(
    deduplication_enabled=True,
    publish_max_message_rate={"standalone": PublishRate(messages=1000, size_bytes=1_000_000)},
    topic_dispatch_rate={"standalone": LIMITED},
    subscription_dispatch_rate={"standalone": LIMITED},
    message_ttl_s=10,
    compaction_threshold_bytes=1,
)


@pytest.fixture
async def topics(
    coordination: Coordination, ledgers: MemoryLedgers
) -> AsyncIterator[TopicDirectory]:
    """A directory of topics whose policies are the same object, as a broker's are."""
    async with serving(coordination, ledgers, Policies()) as topics:
        yield topics


def serving(
    coordination: Coordination, ledgers: MemoryLedgers, policies: Policies
) -> TopicDirectory:
    """A directory for which these hold everywhere."""

    async def of_all(_: NamespaceName) -> Policies:
        return policies

    factory = logs_over(coordination, ledgers)
    return TopicDirectory(
        factory,
        SimulatedClock(),
        owns=lambda _: True,
        policies=resolver_over(factory, of_all),
    )


@pytest.fixture
def counted() -> Iterator[None]:
    """From here on the interpreter counts what is allocated, when it is asked to begin."""
    yield
    tracemalloc.stop()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is not referred to is freed; what only refers to itself is not."""
    gc.disable()
    yield
    gc.enable()


def name_of(number: int) -> TopicName:
    return TopicName.parse(f"persistent://public/default/topic-{number}")


async def use(topics: TopicDirectory, number: int) -> None:
    """Have a consumer come, to a durable subscription, and go again."""
    topic = await topics.get(name_of(number), create=True)
    subscription = await topic.subscribing.subscribe(
        SubscribeRequest("sub", SubscriptionType.EXCLUSIVE)
    )
    consumer = consumer_of(NotedSession())
    subscription.connected(consumer)
    await subscription.disconnect(consumer)


@pytest.mark.usefixtures("counted")
async def test_an_idle_topic_with_a_subscription_takes_a_few_kilobytes(
    topics: TopicDirectory, requests: list[str]
) -> None:
    for number in range(TOPICS):
        await use(topics, number)
        await topics.unload(name_of(number))
    await use(topics, 0)  # what is made once for all is there
    gc.collect()
    tracemalloc.start()
    for number in range(1, TOPICS):
        await use(topics, number)
    await asyncio.sleep(SESSION_TIMEOUT_S_DEFAULT)  # the deadlines of answered requests go
    requests.clear()
    check_path.cache_clear()  # the simulated ZooKeeper's
    gc.collect()
    bytes_now, _ = tracemalloc.get_traced_memory()
    assert len(topics.loaded) == TOPICS
    assert bytes_now / (TOPICS - 1) < TOPIC_BYTES_MAX


async def test_loading_a_topic_that_was_unloaded_asks_three_questions_and_writes_nothing(
    topics: TopicDirectory, requests: list[str], ledgers: MemoryLedgers
) -> None:
    await use(topics, 1)
    await topics.unload(name_of(1))
    requests.clear()
    ledgers_before = set(ledgers.entries)
    await use(topics, 1)
    path = "/managed-ledgers/public/default/persistent/topic-1"
    assert requests == [f"get {path}", f"children {path}", f"get {path}/sub"]
    assert (set(ledgers.entries), ledgers.opened) == (ledgers_before, [])


async def test_very_many_topics_stop_at_once_and_are_closed_a_few_at_a_time(
    coordination: Coordination,
    ledgers: MemoryLedgers,
    settle: Callable[[], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory, "UNLOADS_AT_ONCE_MAX", 3)
    ledgers.is_prompt = False
    served: list[Topic] = []
    async with serving(coordination, ledgers, Policies()) as topics:
        for number in range(7):
            topic = await topics.get(name_of(number), create=True)
            topic.managed_ledger.append_all([(b"a", 1, producer_of(NotedSession()), 0, 0)])
            served.append(topic)
        unloading = asyncio.ensure_future(topics.unload_where(lambda _: True))
        for still_open in (4, 1, 0):
            await settle()
            assert all(each.is_fenced for each in served)
            assert len(topics.loaded) == still_open
            for writer in ledgers.writers[: 7 - still_open]:
                writer.confirm()
        await unloading
    assert all(each.is_closed for each in ledgers.writers)


async def test_an_unload_ends_when_those_are_closed_that_another_closes(
    topics: TopicDirectory, ledgers: MemoryLedgers, settle: Callable[[], Awaitable[None]]
) -> None:
    ledgers.is_prompt = False
    topic = await topics.get(name_of(1), create=True)
    topic.managed_ledger.append_all([(b"a", 1, producer_of(NotedSession()), 0, 0)])
    unloads = [asyncio.ensure_future(topics.unload_where(lambda _: True)) for _ in range(2)]
    await settle()
    assert not any(each.done() for each in unloads)
    ledgers.writers[0].confirm()
    await asyncio.gather(*unloads)
    assert all(each.is_closed for each in ledgers.writers)


async def have_used(topics: TopicDirectory, number: int) -> None:
    """Have producers and consumers of all kinds be there, with something on the way to them."""
    topic = await topics.get(name_of(number), create=True)
    for kind in SubscriptionType:
        request = SubscribeRequest(kind.name, kind, starts_at_earliest=True)
        subscription = await topic.subscribing.subscribe(request)
        consumer = consumer_of(NotedSession(), f"c-{kind.name}")
        subscription.connected(consumer)
        subscription.flow(consumer, 1)
    for each in ("one", "two"):
        producer = producer_of(NotedSession(), each)
        await topic.publishing.connect(producer)
        producer.append_all([(b"a", 1, producer, 0, 0)])
    await asyncio.sleep(1)
    await topic.part(PersistentSubscriptions).named("EXCLUSIVE").seek(Position(0, 0))


def parts_of(topics: TopicDirectory) -> list[object]:
    """The parts of the only topic that others lead to."""
    (topic,) = topics.loaded.values()
    return [
        topic,
        topic.managed_ledger,
        *topic.subscribing.subscriptions.values(),
        *topic.publishing.producers.by_name.values(),
    ]


@pytest.mark.parametrize("using", [use, have_used])
@pytest.mark.parametrize("policies", [Policies(), EVERYTHING], ids=["usual", "everything"])
async def test_what_a_topic_took_is_given_back_as_soon_as_it_is_closed(
    coordination: Coordination,
    ledgers: MemoryLedgers,
    no_collector: None,
    using: Callable[[TopicDirectory, int], Awaitable[None]],
    policies: Policies,
) -> None:
    del no_collector
    async with serving(coordination, ledgers, policies) as topics:
        await using(topics, 1)
        kept = [weakref.ref(each) for each in parts_of(topics)]
        await topics.unload_where(lambda _: True)
        await asyncio.sleep(0)
        assert [each() for each in kept] == [None] * len(kept)
