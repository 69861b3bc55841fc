"""Proves the periodic work on all topics: rates, and the deletion of those that are not used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    NotedSession,
    consumer_of,
    producer_of,
    resolver_over,
)
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.errors import StorageUnavailable
from geminga_broker.policies.inactivity import InactivityConfig
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.maintenance import TopicMaintenance
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_cluster.errors import NamespaceNotFound
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import (
    AutoTopicCreation,
    Policies,
    RetentionPolicies,
)
from geminga_runtime.coordination import Coordination
from geminga_server.metrics import Meter
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop

NAME = TopicName.parse("persistent://t/n/topic")


def clock_of_test() -> SimulatedClock:
    """The running loop's virtual time."""
    return SimulatedClock(cast("SimulatedLoop", asyncio.get_running_loop()))


async def test_a_consumer_that_came_within_the_period_has_rates_at_its_end(
    topics: TopicDirectory,
) -> None:
    topic = await topics.get(TopicName.parse("non-persistent://t/n/x"), create=True)
    topic.meter = Meter(1000.0, 0, 0, 0, 0)
    subscription = await topic.subscribing.subscribe(
        SubscribeRequest("sub", SubscriptionType.EXCLUSIVE)
    )
    consumer = consumer_of(NotedSession())
    subscription.connected(consumer)
    consumer.messages_out = 30
    topic.tick(1010.0)
    assert consumer.meter.rates[0] == 3.0
    consumer.messages_out = 40
    topic.tick(1020.0)
    assert consumer.meter.rates[0] == 1.0


AFTER_A_MINUTE = InactivityConfig(unused_s_max=60)
WITH_SUBSCRIPTIONS = InactivityConfig(unused_s_max=60, mode="delete_when_subscriptions_caught_up")


@asynccontextmanager
async def forgetful(
    coordination: Coordination,
    ledgers: MemoryLedgers,
    rule: InactivityConfig,
    said: Policies | None,
) -> AsyncGenerator[TopicDirectory]:
    """A directory that deletes unused topics; where nothing is ``said`` is no namespace."""

    async def policies_of(namespace: NamespaceName) -> Policies:
        if said is None:
            raise NamespaceNotFound(str(namespace))
        return said

    factory = logs_over(coordination, ledgers)
    policies = resolver_over(factory, policies_of, inactivity=rule)
    async with TopicDirectory(
        factory, clock_of_test(), owns=lambda _: True, policies=policies
    ) as topics:
        yield topics


async def later(topics: TopicDirectory, seconds: float) -> list[TopicName]:
    """What is left after that time, with a look every half minute."""
    for _ in range(int(seconds / 30)):
        await asyncio.sleep(30)
        await TopicMaintenance(topics, clock_of_test()).delete_unused()
    return [each.name for each in topics.loaded.values()]


async def test_topics_that_no_client_uses_are_deleted_and_leave_nothing(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    volatile = TopicName.parse("non-persistent://t/n/volatile")
    async with forgetful(coordination, ledgers, AFTER_A_MINUTE, Policies()) as topics:
        await topics.create(NAME, {})
        await topics.create(volatile, {})
        assert await later(topics, 30) == [NAME, volatile]
        assert await later(topics, 30) == []
        assert not await topics.exists(NAME)
        assert not ledgers.entries
        await topics.create(NAME, {})


async def test_a_client_keeps_its_topic_and_the_minute_begins_when_it_leaves(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    async with forgetful(coordination, ledgers, AFTER_A_MINUTE, Policies()) as topics:
        topic = await topics.get(NAME, create=True)
        producer = producer_of(NotedSession())
        await topic.publishing.connect(producer)
        assert await later(topics, 300) == [NAME]
        await asyncio.sleep(20)
        producer.disconnect()
        assert await later(topics, 30) == [NAME]
        await topic.subscribing.create("sub")
        assert await later(topics, 300) == [NAME]
        subscriptions = topic.part(PersistentSubscriptions)
        await subscriptions.delete_subscription(subscriptions.named("sub"))
        assert await later(topics, 30) == [NAME]
        assert await later(topics, 60) == []


async def test_subscriptions_without_a_backlog_keep_no_topic_where_that_is_wanted(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    async with forgetful(coordination, ledgers, WITH_SUBSCRIPTIONS, Policies()) as topics:
        topic = await topics.get(NAME, create=True)
        await topic.subscribing.create("behind", from_earliest=True)
        topic.managed_ledger.append_all([(b"a", 1, producer_of(NotedSession()), 0, 0)])
        await asyncio.sleep(0)
        assert await later(topics, 300) == [NAME]
        await topic.part(PersistentSubscriptions).named("behind").skipping.everything()
        assert await later(topics, 60) == []


async def test_what_is_retained_keeps_its_topic(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    retained = Policies(retention=RetentionPolicies(time_minutes=5, size_mib=-1))
    async with forgetful(coordination, ledgers, AFTER_A_MINUTE, retained) as topics:
        await topics.create(NAME, {})
        assert await later(topics, 270) == [NAME]
        assert await later(topics, 30) == []


async def test_no_topic_is_deleted_where_its_use_would_not_create_it(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    by_hand = Policies(auto_topic_creation_override=AutoTopicCreation(allowed=False))
    async with forgetful(coordination, ledgers, AFTER_A_MINUTE, by_hand) as topics:
        await topics.create(NAME, {})
        assert await later(topics, 600) == [NAME]


async def test_an_unused_topic_that_cannot_be_deleted_now_is_deleted_later(
    coordination: Coordination, ledgers: MemoryLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(_: object) -> None:
        raise StorageUnavailable("no bookies")

    async with forgetful(coordination, ledgers, AFTER_A_MINUTE, Policies()) as topics:
        await topics.create(NAME, {})
        with monkeypatch.context() as broken:
            broken.setattr(Topic, "delete", failing)
            await later(topics, 60)
        await topics.get(NAME, create=False)
        assert await later(topics, 60) == []
        assert not await topics.exists(NAME)


async def test_the_brokers_own_topics_are_kept(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    """Their namespace has no policies; the health check would make its topic again and again."""
    async with forgetful(coordination, ledgers, AFTER_A_MINUTE, None) as topics:
        await topics.create(NAME, {})
        assert await later(topics, 600) == [NAME]
