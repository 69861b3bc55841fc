"""Proves that a topic is open once at most, whoever loads, unloads, deletes or loses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    NotedSession,
    consumer_of,
    producer_of,
    resolver_over,
)
from tests.unit.geminga_broker.log.stand_ins import MemoryLedgers, logs_over

from geminga_broker.errors import (
    ConsumerBusy,
    ProducerBusy,
    ServiceNotReady,
    StorageUnavailable,
    TopicBusy,
    TopicExists,
    TopicFenced,
    TopicNotFound,
)
from geminga_broker.log.positions import LATEST, Position
from geminga_broker.metadata.errors import NamespaceNotFound
from geminga_broker.policies.inactivity import InactivityConfig
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.persistent import PersistentTopic
from geminga_broker.topics.topic import SubscribeRequest
from geminga_ledger import LedgerFenced, NotEnoughBookies
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_protocol.records.namespaces import AutoTopicCreation, Policies, RetentionPolicies
from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import ConnectionLost, Coordination
from geminga_simulation.clock import SimulatedClock
from geminga_simulation.loop import SimulatedLoop

Settle = Callable[[], Awaitable[None]]
NAME = TopicName.parse("persistent://t/n/topic")
EXCLUSIVE = SubscribeRequest("sub", SubscriptionType.EXCLUSIVE)
READER = SubscribeRequest(
    "reader", SubscriptionType.EXCLUSIVE, is_durable=False, starts_at_earliest=True
)


class Bundles:
    """Which topics are ours: all, until they are not."""

    def __init__(self) -> None:
        self.are_ours = True

    def owns(self, _: TopicName) -> bool:
        return self.are_ours


@pytest.fixture
def bundles() -> Bundles:
    """The broker's bundles."""
    return Bundles()


@pytest.fixture
async def topics(
    coordination: Coordination, ledgers: MemoryLedgers, bundles: Bundles
) -> AsyncIterator[TopicDirectory]:
    """The directory under test."""
    logs = logs_over(coordination, ledgers)
    async with TopicDirectory(logs, SystemClock(), owns=bundles.owns) as topics:
        yield topics


async def opened(topics: TopicDirectory) -> PersistentTopic:
    topic = await topics.get(NAME, create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


async def test_all_who_ask_at_once_get_the_same_topic(topics: TopicDirectory) -> None:
    first, second = await asyncio.gather(
        topics.get(NAME, create=True), topics.get(NAME, create=True)
    )
    assert first is second
    assert topics.loaded == [first]


async def test_a_topic_that_is_not_there_is_made_on_demand_only(topics: TopicDirectory) -> None:
    with pytest.raises(TopicNotFound):
        await topics.get(NAME, create=False)
    await topics.create(NAME, {"a": "b"})
    with pytest.raises(TopicExists):
        await topics.create(NAME, {})


async def test_who_may_create_is_not_refused_for_joining_one_who_may_not(
    topics: TopicDirectory,
) -> None:
    asking = asyncio.ensure_future(topics.get(NAME, create=False))
    await asyncio.sleep(0)
    assert (await topics.get(NAME, create=True)).name == NAME
    with pytest.raises(TopicNotFound):
        await asking


async def test_a_topic_lost_while_it_was_loaded_is_not_served(
    topics: TopicDirectory, bundles: Bundles
) -> None:
    asking = asyncio.ensure_future(topics.get(NAME, create=True))
    await asyncio.sleep(0)
    bundles.are_ours = False
    with pytest.raises(ServiceNotReady):
        await asking
    assert not topics.loaded


async def test_a_topic_whose_log_was_taken_while_it_was_loaded_is_not_served(
    coordination: Coordination, ledgers: MemoryLedgers, settle: Settle
) -> None:
    """Whoever opens a log reads policies once more: in that moment another broker may take it."""
    are_told = asyncio.Event()

    async def policies(_: NamespaceName) -> Policies:
        if ledgers.writers:
            await are_told.wait()
        return Policies()

    logs = logs_over(coordination, ledgers)
    async with TopicDirectory(
        logs, SystemClock(), owns=lambda _: True, policies=resolver_over(logs, policies)
    ) as topics:
        asking = asyncio.ensure_future(topics.get(NAME, create=True))
        await settle()
        ledgers.writers[0].fail(LedgerFenced(0))
        are_told.set()
        with pytest.raises(ServiceNotReady, match="look it up again"):
            await asking
        assert not topics.loaded
        again = await opened(topics)
        again.managed_ledger.append_all([(b"a", 1, producer_of(NotedSession()), 0, 0)])


async def test_an_unexpected_failure_to_load_is_answered(
    topics: TopicDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("a record that cannot be")

    monkeypatch.setattr(topics, "_opened", broken)
    with pytest.raises(ServiceNotReady):
        await topics.get(NAME, create=True)


async def test_a_topic_for_which_there_are_too_few_bookies_is_named_in_the_log(
    coordination: Coordination, ledgers: MemoryLedgers, caplog: pytest.LogCaptureFixture
) -> None:
    ledgers.create_error = NotEnoughBookies(5, 3)
    async with TopicDirectory(
        logs_over(coordination, ledgers), SystemClock(), owns=lambda _: True
    ) as topics:
        with pytest.raises(TopicNotFound):
            await topics.get(NAME, create=False)
        with pytest.raises(NotEnoughBookies):
            await topics.get(NAME, create=True)
    (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert warning.__dict__["topic"] == str(NAME)
    assert warning.__dict__["error"] == "5 bookies are needed, where 3 are available"


async def test_a_directory_that_is_closed_loads_nothing(topics: TopicDirectory) -> None:
    await topics.__aexit__(None, None, None)
    with pytest.raises(ServiceNotReady):
        await topics.get(NAME, create=True)


async def test_a_topic_is_loaded_again_only_after_it_was_closed(
    topics: TopicDirectory, ledgers: MemoryLedgers, settle: Settle
) -> None:
    ledgers.is_prompt = False
    topic = await opened(topics)
    topic.managed_ledger.append_all([(b"a", 1, producer_of(NotedSession()), 0, 0)])
    unloading = asyncio.ensure_future(topics.unload(NAME))
    await settle()
    asking = asyncio.ensure_future(topics.get(NAME, create=True))
    await settle()
    assert not asking.done(), "the first still waits for its last entry"
    ledgers.writers[0].confirm()
    await unloading
    again = await asking
    assert isinstance(again, PersistentTopic)
    assert again.managed_ledger.chain.last_confirmed == (0, 0)
    assert not ledgers.opened, "it was closed in order: nothing is recovered"


async def test_a_topic_is_made_anew_only_after_it_was_deleted(
    topics: TopicDirectory, ledgers: MemoryLedgers, settle: Settle
) -> None:
    topic = await opened(topics)
    topic.managed_ledger.append_all([(b"a", 1, producer_of(NotedSession()), 0, 0)])
    await settle()
    _, again = await asyncio.gather(topics.delete(NAME, force=True), _after_a_turn(topics))
    assert isinstance(again, PersistentTopic)
    assert again.managed_ledger.chain.total_entries == 0
    assert 0 not in ledgers.entries


async def _after_a_turn(topics: TopicDirectory) -> object:
    await asyncio.sleep(0)
    return await topics.get(NAME, create=True)


async def test_a_topic_in_use_is_deleted_by_force_only(topics: TopicDirectory) -> None:
    topic = await opened(topics)
    await topic.connect_producer(producer_of(NotedSession()))
    with pytest.raises(TopicBusy):
        await topics.delete(NAME, force=False)
    await topics.delete(NAME, force=True)
    with pytest.raises(TopicNotFound):
        await topics.get(NAME, create=False)


async def test_a_topic_whose_deletion_failed_is_closed_all_the_same(
    topics: TopicDirectory, monkeypatch: pytest.MonkeyPatch, ledgers: MemoryLedgers
) -> None:
    topic = await opened(topics)

    async def cut_off() -> None:
        raise ConnectionLost("delete")

    monkeypatch.setattr(topic, "delete", cut_off)
    with pytest.raises(ConnectionLost):
        await topics.delete(NAME, force=True)
    assert ledgers.writers[0].is_closed
    assert await topics.get(NAME, create=False) is not topic


# The topic itself, as sessions use it


async def test_an_exclusive_consumer_whose_client_is_gone_makes_room(
    topics: TopicDirectory,
) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribe(EXCLUSIVE)
    subscription.connected(consumer_of(NotedSession(answers=False)))
    assert await topic.subscribe(EXCLUSIVE) is subscription
    assert not subscription.consumers


async def test_an_exclusive_consumer_whose_client_answers_stays(topics: TopicDirectory) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribe(EXCLUSIVE)
    subscription.connected(consumer_of(NotedSession()))
    with pytest.raises(ConsumerBusy):
        await topic.subscribe(EXCLUSIVE)


async def test_a_reader_that_comes_back_begins_where_it_says(topics: TopicDirectory) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribe(READER)
    subscription.connected(consumer_of(NotedSession(answers=False)))
    again = await topic.subscribe(READER)
    assert again is not subscription
    assert topic.subscriptions["reader"] is again


async def test_a_producer_whose_client_is_gone_makes_room(topics: TopicDirectory) -> None:
    topic = await opened(topics)
    await topic.connect_producer(producer_of(NotedSession(answers=False)))
    later = producer_of(NotedSession())
    await topic.connect_producer(later)
    assert topic.producers.get("p") is later
    with pytest.raises(ProducerBusy):
        await topic.connect_producer(producer_of(NotedSession()))


async def test_nobody_joins_a_topic_that_was_closed_while_they_waited(
    topics: TopicDirectory, settle: Settle
) -> None:
    topic = await opened(topics)
    asked = asyncio.Event()

    class Slow(NotedSession):
        async def is_alive(self) -> bool:
            await asked.wait()
            return False

    subscription = await topic.subscribe(EXCLUSIVE)
    subscription.connected(consumer_of(Slow()))
    await topic.connect_producer(producer_of(Slow()))
    subscribing = asyncio.ensure_future(topic.subscribe(EXCLUSIVE))
    connecting = asyncio.ensure_future(topic.connect_producer(producer_of(NotedSession())))
    await settle()
    await topics.unload(NAME)
    asked.set()
    for joining in (subscribing, connecting):
        with pytest.raises(TopicFenced):
            await joining


async def test_who_subscribes_during_a_seek_waits_for_its_end(
    topics: TopicDirectory, ledgers: MemoryLedgers, settle: Settle
) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribe(EXCLUSIVE)
    ledgers.is_prompt = False
    seeking = asyncio.ensure_future(subscription.seek(Position(-1, -1)))
    await settle()
    subscribing = asyncio.ensure_future(topic.subscribe(EXCLUSIVE))
    await settle()
    assert not subscribing.done()
    ledgers.is_prompt = True
    ledgers.writers[-1].confirm()
    await seeking
    assert await subscribing is subscription


async def test_an_empty_topic_has_no_last_message_and_takes_every_seek(
    topics: TopicDirectory,
) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribe(EXCLUSIVE)
    for position in (Position(-1, -1), LATEST, Position(7, 7)):
        await subscription.seek(position)
        assert await subscription.last_message() == ((-1, -1), -1)
        assert subscription.mark_delete == (0, -1)
    await subscription.seek_time(0)
    assert subscription.mark_delete == (0, -1)


async def test_an_unsubscribed_name_begins_anew(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribe(EXCLUSIVE)
    consumer = consumer_of(NotedSession())
    subscription.connected(consumer)
    await subscription.unsubscribe(consumer, force=False)
    assert not topic.subscriptions
    assert await topic.subscribe(EXCLUSIVE) is not subscription
    assert list(ledgers.entries) == [0]


async def test_an_idle_topic_is_loaded_with_three_reads_and_no_write(
    topics: TopicDirectory, ledgers: MemoryLedgers, requests: list[str]
) -> None:
    ledgers.is_prompt = True
    topic = await opened(topics)
    await topic.create_subscription("sub")
    await topics.unload(NAME)
    requests.clear()
    await topics.get(NAME, create=False)
    path = "/managed-ledgers/t/n/persistent/topic"
    assert requests == [f"get {path}", f"children {path}", f"get {path}/sub"]
    requests.clear()
    await topics.unload(NAME)
    assert requests == []


# Topics that nobody uses
AFTER_A_MINUTE = InactivityConfig(unused_s_max=60)
WITH_SUBSCRIPTIONS = InactivityConfig(unused_s_max=60, mode="delete_when_subscriptions_caught_up")


@asynccontextmanager
async def forgetful(
    coordination: Coordination,
    ledgers: MemoryLedgers,
    rule: InactivityConfig,
    said: Policies | None,
) -> AsyncGenerator[TopicDirectory]:
    """A directory that deletes what nobody uses; where nothing is ``said`` is no namespace."""

    async def policies_of(namespace: NamespaceName) -> Policies:
        if said is None:
            raise NamespaceNotFound(str(namespace))
        return said

    clock = SimulatedClock(cast("SimulatedLoop", asyncio.get_running_loop()))
    logs = logs_over(coordination, ledgers)
    async with TopicDirectory(
        logs, clock, owns=lambda _: True, policies=resolver_over(logs, policies_of, inactivity=rule)
    ) as topics:
        yield topics


async def later(topics: TopicDirectory, seconds: float) -> list[TopicName]:
    """What is left after that time, with a look every half minute."""
    for _ in range(int(seconds / 30)):
        await asyncio.sleep(30)
        await topics.delete_unused()
    return [each.name for each in topics.loaded]


async def test_topics_that_nobody_uses_are_deleted_and_leave_nothing(
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


async def test_who_uses_a_topic_keeps_it_and_the_minute_begins_when_he_goes(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    async with forgetful(coordination, ledgers, AFTER_A_MINUTE, Policies()) as topics:
        topic = await opened(topics)
        producer = producer_of(NotedSession())
        await topic.connect_producer(producer)
        assert await later(topics, 300) == [NAME]
        await asyncio.sleep(20)
        producer.disconnect()
        assert await later(topics, 30) == [NAME]
        await topic.create_subscription("sub")
        assert await later(topics, 300) == [NAME]
        await topic.subscribing.delete_subscription(topic.subscriptions["sub"])
        assert await later(topics, 30) == [NAME]
        assert await later(topics, 60) == []


async def test_a_subscription_of_a_topic_that_was_closed_meanwhile_is_not_deleted(
    topics: TopicDirectory,
) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribe(EXCLUSIVE)
    consumer = consumer_of(NotedSession())
    subscription.connected(consumer)
    deleting = topic.subscribing.delete_subscription(subscription, consumer)
    await topics.unload(NAME)
    with pytest.raises(TopicFenced):
        await deleting
    again = await opened(topics)
    assert list(again.subscriptions) == ["sub"]


async def test_subscriptions_without_a_backlog_keep_no_topic_where_that_is_wanted(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    async with forgetful(coordination, ledgers, WITH_SUBSCRIPTIONS, Policies()) as topics:
        topic = await opened(topics)
        await topic.create_subscription("behind", from_earliest=True)
        topic.managed_ledger.append_all([(b"a", 1, producer_of(NotedSession()), 0, 0)])
        await asyncio.sleep(0)
        assert await later(topics, 300) == [NAME]
        await topic.subscriptions["behind"].skipping.everything()
        assert await later(topics, 60) == []


async def test_what_is_retained_keeps_its_topic(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    retained = Policies(retention=RetentionPolicies(time_minutes=5, size_mib=-1))
    async with forgetful(coordination, ledgers, AFTER_A_MINUTE, retained) as topics:
        await topics.create(NAME, {})
        assert await later(topics, 270) == [NAME]
        assert await later(topics, 30) == []


async def test_no_topic_goes_where_nobody_wants_that(
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
            broken.setattr(PersistentTopic, "delete", failing)
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
