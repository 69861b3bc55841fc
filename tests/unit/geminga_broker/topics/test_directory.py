"""Proves that a topic is open once at most, while it is loaded, unloaded, deleted and lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    NotedSession,
    consumer_of,
    producer_of,
    resolver_over,
)
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.errors import (
    ConsumerBusy,
    ProducerBusy,
    ServiceNotReady,
    TopicBusy,
    TopicExists,
    TopicFenced,
    TopicNotFound,
)
from geminga_broker.managed_ledger.positions import LATEST, Position
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_ledger import LedgerFenced, NotEnoughBookies
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.coordination import ConnectionLost, Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

Settle = Callable[[], Awaitable[None]]
NAME = TopicName.parse("persistent://t/n/topic")
EXCLUSIVE = SubscribeRequest("sub", SubscriptionType.EXCLUSIVE)
READER = SubscribeRequest(
    "reader", SubscriptionType.EXCLUSIVE, is_durable=False, starts_at_earliest=True
)


class Bundles:
    """Which topics are ours: all, until they are not; and those that seem to be another's."""

    def __init__(self) -> None:
        self.are_ours = True
        self.suspected: list[TopicName] = []

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
    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(
        factory, SimulatedClock(), owns=bundles.owns, suspect=bundles.suspected.append
    ) as topics:
        yield topics


async def opened(topics: TopicDirectory) -> Topic:
    return await topics.get(NAME, create=True)


async def test_requests_that_come_at_once_get_the_same_topic(topics: TopicDirectory) -> None:
    first, second = await asyncio.gather(
        topics.get(NAME, create=True), topics.get(NAME, create=True)
    )
    assert first is second
    assert topics.loaded == {NAME: first}


async def test_a_topic_that_is_not_there_is_made_on_demand_only(topics: TopicDirectory) -> None:
    with pytest.raises(TopicNotFound):
        await topics.get(NAME, create=False)
    await topics.create(NAME, {"a": "b"})
    with pytest.raises(TopicExists):
        await topics.create(NAME, {})


async def test_a_request_that_may_create_does_not_fail_with_one_that_may_not(
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
    """A broker that opens a log reads policies once more: then another broker may take it."""
    are_told = asyncio.Event()

    async def policies(_: NamespaceName) -> Policies:
        if ledgers.writers:
            await are_told.wait()
        return Policies()

    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(
        factory,
        SimulatedClock(),
        owns=lambda _: True,
        policies=resolver_over(factory, policies),
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


async def test_a_topic_whose_log_is_found_fenced_is_closed_and_its_bundle_suspected(
    topics: TopicDirectory, bundles: Bundles, ledgers: MemoryLedgers, settle: Settle
) -> None:
    topic = await opened(topics)
    assert bundles.suspected == []
    ledgers.writers[0].fail(LedgerFenced(0))
    await settle()
    assert bundles.suspected == [NAME]
    assert topic.is_fenced
    assert not topics.loaded


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
        logs_over(coordination, ledgers), SimulatedClock(), owns=lambda _: True
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
    assert again.managed_ledger.chain.last_confirmed == (0, 0)
    assert not ledgers.opened, "it was closed in order: nothing is recovered"


async def test_a_topic_is_made_anew_only_after_it_was_deleted(
    topics: TopicDirectory, ledgers: MemoryLedgers, settle: Settle
) -> None:
    topic = await opened(topics)
    topic.managed_ledger.append_all([(b"a", 1, producer_of(NotedSession()), 0, 0)])
    await settle()
    _, again = await asyncio.gather(topics.delete(NAME, force=True), _after_a_turn(topics))
    assert again.managed_ledger.chain.total_entries == 0
    assert 0 not in ledgers.entries


async def _after_a_turn(topics: TopicDirectory) -> Topic:
    await asyncio.sleep(0)
    return await topics.get(NAME, create=True)


async def test_a_topic_in_use_is_deleted_by_force_only(topics: TopicDirectory) -> None:
    topic = await opened(topics)
    await topic.publishing.connect(producer_of(NotedSession()))
    with pytest.raises(TopicBusy):
        await topics.delete(NAME, force=False)
    await topics.delete(NAME, force=True)
    with pytest.raises(TopicNotFound):
        await topics.get(NAME, create=False)


async def test_a_topic_whose_deletion_failed_is_closed_all_the_same(
    topics: TopicDirectory, monkeypatch: pytest.MonkeyPatch, ledgers: MemoryLedgers
) -> None:
    topic = await opened(topics)

    async def cut_off(_: Topic) -> None:
        raise ConnectionLost("delete")

    monkeypatch.setattr(Topic, "delete", cut_off)
    with pytest.raises(ConnectionLost):
        await topics.delete(NAME, force=True)
    assert ledgers.writers[0].is_closed
    assert await topics.get(NAME, create=False) is not topic


# The topic itself, as sessions use it


async def test_an_exclusive_consumer_whose_client_is_gone_makes_room(
    topics: TopicDirectory,
) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribing.subscribe(EXCLUSIVE)
    subscription.connected(consumer_of(NotedSession(answers=False)))
    assert await topic.subscribing.subscribe(EXCLUSIVE) is subscription
    assert not subscription.consumers


async def test_an_exclusive_consumer_whose_client_answers_stays(topics: TopicDirectory) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribing.subscribe(EXCLUSIVE)
    subscription.connected(consumer_of(NotedSession()))
    with pytest.raises(ConsumerBusy):
        await topic.subscribing.subscribe(EXCLUSIVE)


async def test_a_reader_that_comes_back_begins_where_it_says(topics: TopicDirectory) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribing.subscribe(READER)
    subscription.connected(consumer_of(NotedSession(answers=False)))
    again = await topic.subscribing.subscribe(READER)
    assert again is not subscription
    assert topic.subscribing.subscriptions["reader"] is again


async def test_a_producer_whose_client_is_gone_makes_room(topics: TopicDirectory) -> None:
    topic = await opened(topics)
    await topic.publishing.connect(producer_of(NotedSession(answers=False)))
    later = producer_of(NotedSession())
    await topic.publishing.connect(later)
    assert topic.publishing.producers.by_name.get("p") is later
    with pytest.raises(ProducerBusy):
        await topic.publishing.connect(producer_of(NotedSession()))


async def test_clients_that_waited_while_the_topic_was_closed_are_refused(
    topics: TopicDirectory, settle: Settle
) -> None:
    topic = await opened(topics)
    asked = asyncio.Event()

    class Slow(NotedSession):
        async def is_alive(self) -> bool:
            await asked.wait()
            return False

    subscription = await topic.subscribing.subscribe(EXCLUSIVE)
    subscription.connected(consumer_of(Slow()))
    await topic.publishing.connect(producer_of(Slow()))
    subscribing = asyncio.ensure_future(topic.subscribing.subscribe(EXCLUSIVE))
    connecting = asyncio.ensure_future(topic.publishing.connect(producer_of(NotedSession())))
    await settle()
    await topics.unload(NAME)
    asked.set()
    for joining in (subscribing, connecting):
        with pytest.raises(TopicFenced):
            await joining


async def test_a_client_that_subscribes_during_a_seek_waits_for_its_end(
    topics: TopicDirectory, ledgers: MemoryLedgers, settle: Settle
) -> None:
    topic = await opened(topics)
    subscription = await topic.part(PersistentSubscriptions).subscribe(EXCLUSIVE)
    ledgers.is_prompt = False
    seeking = asyncio.ensure_future(subscription.seek(Position(-1, -1)))
    await settle()
    subscribing = asyncio.ensure_future(topic.subscribing.subscribe(EXCLUSIVE))
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
    subscription = await topic.part(PersistentSubscriptions).subscribe(EXCLUSIVE)
    for position in (Position(-1, -1), LATEST, Position(7, 7)):
        await subscription.seek(position)
        assert await subscription.last_message() == ((-1, -1), -1)
        assert subscription.cursor.mark_delete == (0, -1)
    await subscription.seek_time(0)
    assert subscription.cursor.mark_delete == (0, -1)


async def test_an_unsubscribed_name_begins_anew(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    topic = await opened(topics)
    subscription = await topic.subscribing.subscribe(EXCLUSIVE)
    consumer = consumer_of(NotedSession())
    subscription.connected(consumer)
    await subscription.unsubscribe(consumer, force=False)
    assert not topic.subscribing.subscriptions
    assert await topic.subscribing.subscribe(EXCLUSIVE) is not subscription
    assert list(ledgers.entries) == [0]


async def test_an_idle_topic_is_loaded_with_three_reads_and_no_write(
    topics: TopicDirectory, ledgers: MemoryLedgers, requests: list[str]
) -> None:
    ledgers.is_prompt = True
    topic = await opened(topics)
    await topic.subscribing.create("sub")
    await topics.unload(NAME)
    requests.clear()
    await topics.get(NAME, create=False)
    path = "/managed-ledgers/t/n/persistent/topic"
    assert requests == [f"get {path}", f"children {path}", f"get {path}/sub"]
    requests.clear()
    await topics.unload(NAME)
    assert requests == []


async def test_a_subscription_of_a_topic_that_was_closed_meanwhile_is_not_deleted(
    topics: TopicDirectory,
) -> None:
    topic = await opened(topics)
    subscriptions = topic.part(PersistentSubscriptions)
    subscription = await subscriptions.subscribe(EXCLUSIVE)
    consumer = consumer_of(NotedSession())
    subscription.connected(consumer)
    deleting = subscriptions.delete_subscription(subscription, consumer)
    await topics.unload(NAME)
    with pytest.raises(TopicFenced):
        await deleting
    again = await opened(topics)
    assert list(again.subscribing.subscriptions) == ["sub"]
