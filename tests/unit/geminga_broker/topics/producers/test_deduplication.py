"""Proves that a topic stores a message once, over crashes and moves, while that is turned on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    NotedSession,
    maintain,
    producer_of,
    resolver_over,
)
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over
from tests.unit.geminga_broker.topics.producers.recognizing_repeats import open_topics, topics_over

from geminga_broker.admin.topics.internal_stats import internal_stats
from geminga_broker.errors import NameReserved, TopicFenced
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.ledger_chain.retention import KEEP_NOTHING
from geminga_broker.policies.publish import PublishConfig
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.backlog import Backlog
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.producers.deduplication import CURSOR_NAME, UNKNOWN_REASON
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.topic_deduplication import TopicDeduplication
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import AccessMode, SubscriptionType
from geminga_protocol.pulsar.messages.integers import UINT64_MAX
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

NAME = TopicName.parse("persistent://t/n/topic")
CONFIG = PublishConfig(
    deduplication=True,
    deduplication_snapshot_entries=3,
    deduplication_snapshot_interval_s=60,
    deduplication_producer_idle_s=600,
)
NOWHERE = (UINT64_MAX, UINT64_MAX)


def directory(coordination: Coordination, ledgers: MemoryLedgers) -> TopicDirectory:
    return topics_over(coordination, ledgers, CONFIG)


@pytest.fixture
async def topics(
    coordination: Coordination, ledgers: MemoryLedgers
) -> AsyncIterator[TopicDirectory]:
    """The topics of a broker that recognizes repeats."""
    async with open_topics(coordination, ledgers, CONFIG) as topics:
        yield topics


def kept_by(topic: Topic) -> list[Cursor]:
    """The cursor that knows repeats, where there is one."""
    return topic.part(TopicDeduplication).cursors()


async def loaded(topics: TopicDirectory) -> Topic:
    return await topics.get(NAME, create=True)


async def connected(topic: Topic, name: str = "p") -> tuple[Producer, NotedSession]:
    session = NotedSession()
    producer = producer_of(session, name)
    await topic.publishing.connect(producer)
    return producer, session


def payload(name: str, number: int, *, chunk: tuple[int, int] | None = None) -> bytes:
    metadata = api.MessageMetadata(producer_name=name, sequence_id=number, publish_time=1)
    if chunk is not None:
        metadata.chunk_id, metadata.num_chunks_from_msg = chunk
    return encode_payload(metadata, b"m")


def publish(producer: Producer, *numbers: int) -> None:
    items = [(payload(producer.name, each), 1, producer, each, 0) for each in numbers]
    producer.entries_taken += len(items)
    producer.append_all(items)


def answers(session: NotedSession) -> list[tuple[int, tuple[int, int] | str]]:
    """Number and message id, or why not, of all that was answered."""
    found: list[tuple[int, tuple[int, int] | str]] = []
    for command in session.commands():
        if command.type == api.BaseCommand.SEND_RECEIPT:
            receipt = command.send_receipt
            message_id = (receipt.message_id.ledgerId, receipt.message_id.entryId)
            found.append((receipt.sequence_id, message_id))
        elif command.type == api.BaseCommand.SEND_ERROR:
            found.append((command.send_error.sequence_id, command.send_error.message))
    return found


def turn(topics: TopicDirectory, *, on: bool) -> None:
    """Turn deduplication on or off; the topics follow in the background."""
    topics.apply_policies(NAME.namespace, Policies(deduplication_enabled=on))


async def settle() -> None:
    await asyncio.sleep(0.001)


async def test_a_repeat_is_answered_and_not_stored(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    producer, session = await connected(await loaded(topics))
    publish(producer, 1, 2)
    await settle()
    publish(producer, 2, 3, 1)
    await settle()
    assert answers(session) == [(1, (0, 0)), (2, (0, 1)), (2, NOWHERE), (3, (0, 2)), (1, NOWHERE)]
    assert len(ledgers.entries[0]) == 3


async def test_a_repeats_receipt_waits_for_those_of_what_was_sent_before(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    producer, session = await connected(await loaded(topics))
    publish(producer, 1)
    await settle()
    ledgers.is_prompt = False
    publish(producer, 2, 1, 3)
    assert [number for number, _ in answers(session)] == [1]
    ledgers.writers[0].confirm()
    assert [number for number, _ in answers(session)] == [1, 2, 1, 3]


async def test_a_repeat_of_a_pending_message_is_refused_as_undecided(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    topic = await loaded(topics)
    producer, session = await connected(topic)
    ledgers.is_prompt = False
    publish(producer, 1)
    publish(producer, 1)
    assert answers(session) == [(1, UNKNOWN_REASON)]
    ledgers.writers[0].confirm()
    publish(producer, 1)
    assert answers(session)[2:] == [(1, NOWHERE)]


async def test_a_producer_that_reconnects_is_told_its_last_number_when_it_is_stored(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    topic = await loaded(topics)
    producer, _ = await connected(topic)
    ledgers.is_prompt = False
    publish(producer, 1, 2)
    producer.disconnect()
    coming = asyncio.ensure_future(connected(topic))
    others, _ = await connected(topic, "another")
    assert others.last_sequence_id() == -1
    await settle()
    assert not coming.done(), "what is under way may be lost: it would go on behind a hole"
    ledgers.writers[-1].confirm()
    successor, _ = await coming
    assert successor.last_sequence_id() == 2


async def test_a_producer_that_reconnects_does_not_wait_for_a_closed_topic(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    topic = await loaded(topics)
    producer, _ = await connected(topic)
    ledgers.is_prompt = False
    publish(producer, 1)
    producer.disconnect()
    coming = asyncio.ensure_future(connected(topic))
    await settle()
    unloading = asyncio.ensure_future(topics.unload(NAME))
    with pytest.raises(TopicFenced):
        await coming
    ledgers.writers[-1].confirm()
    await unloading


async def test_the_numbers_are_read_again_after_a_crash(
    topics: TopicDirectory, coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    topic = await loaded(topics)
    producer, _ = await connected(topic)
    publish(producer, 1, 2, 3)  # a snapshot
    await asyncio.sleep(1)
    publish(producer, 4, 5)  # none yet: the broker dies
    other, _ = await connected(topic, "q")
    publish(other, 77)
    await asyncio.sleep(1)
    async with directory(coordination, ledgers) as next_owner:
        again, session = await connected(await loaded(next_owner))
        assert again.last_sequence_id() == 5
        publish(again, 4, 5, 6)
        await settle()
        assert [at for _, at in answers(session)][:2] == [NOWHERE, NOWHERE]
        other, session = await connected(next(iter(next_owner.loaded.values())), "q")
        assert other.last_sequence_id() == 77


async def test_a_topic_that_moved_in_order_reads_nothing_again(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    producer, _ = await connected(await loaded(topics))
    publish(producer, 1, 2)
    await settle()
    await topics.unload(NAME)
    ledgers.opened.clear()
    again, _ = await connected(await loaded(topics))
    assert again.last_sequence_id() == 2
    assert ledgers.opened == []


async def test_chunks_of_one_message_bear_one_number_and_the_last_one_decides(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    producer, session = await connected(await loaded(topics))
    producer.chunks_in = 1
    for number in (0, 1):
        producer.append_all([(payload("p", 7, chunk=(number, 2)), 1, producer, 7, 0)])
    await settle()
    assert len(ledgers.entries[0]) == 2
    producer.append_all([(payload("p", 7, chunk=(1, 2)), 1, producer, 7, 0)])
    assert answers(session)[-1] == (7, NOWHERE)


async def test_the_first_chunks_alone_do_not_make_the_message_known(
    topics: TopicDirectory, coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    producer, _ = await connected(await loaded(topics))
    producer.chunks_in = 1
    producer.append_all([(payload("p", 7, chunk=(0, 2)), 1, producer, 7, 0)])
    await settle()
    async with directory(coordination, ledgers) as next_owner:
        again, _ = await connected(await loaded(next_owner))
        assert again.last_sequence_id() == -1


async def test_a_message_that_was_too_large_may_be_sent_again_smaller(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    producer, session = await connected(await loaded(topics))
    publish(producer, 1)
    await settle()
    ledgers.entry_bytes_max = 1
    producer.append_all([(payload("p", each), 1, producer, each, 0) for each in (1, 2)])
    ledgers.entry_bytes_max = 1000
    publish(producer, 2)
    await settle()
    assert [number for number, _ in answers(session)] == [1, 1, 2, 2]
    assert len(ledgers.entries[0]) == 2


async def test_it_is_turned_off_and_on_while_producers_are_connected(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    topic = await loaded(topics)
    producer, _ = await connected(topic)
    publish(producer, 1)
    await settle()
    turn(topics, on=False)
    await settle()
    assert not kept_by(topic)
    assert producer.last_sequence_id() == -1
    publish(producer, 1)
    await settle()
    turn(topics, on=True)
    await settle()
    publish(producer, 1, 2)
    await settle()
    publish(producer, 2)
    await settle()
    assert len(ledgers.entries[0]) == 4


@pytest.mark.parametrize("is_on", [False, True])
async def test_turning_it_off_and_on_while_it_changes_leaves_one_or_none(
    topics: TopicDirectory, coordination: Coordination, ledgers: MemoryLedgers, *, is_on: bool
) -> None:
    topic = await loaded(topics)
    found = [topic.publishing.deduplication]
    for on in (False, True, False, True)[: 4 if is_on else 3]:
        turn(topics, on=on)
        for _ in range(2):
            await asyncio.sleep(0)
    await settle()
    found.append(topic.publishing.deduplication)
    assert [each is not None and each.is_enabled for each in found] == [False, is_on]
    assert len(kept_by(topic)) == is_on
    names = await logs_over(coordination, ledgers).cursor_names(NAME.managed_ledger_name)
    assert names == [CURSOR_NAME] * is_on


async def test_a_message_that_is_pending_when_it_is_turned_on_is_not_stored_twice(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    topic = await loaded(topics)
    turn(topics, on=False)
    await settle()
    producer, session = await connected(topic)
    ledgers.is_prompt = False
    publish(producer, 1)
    turn(topics, on=True)
    await settle()
    publish(producer, 1)
    assert answers(session) == [(1, UNKNOWN_REASON)]
    ledgers.writers[0].confirm()
    publish(producer, 1)
    assert answers(session)[2:] == [(1, NOWHERE)]
    assert len(ledgers.entries[0]) == 1


async def test_a_producer_goes_on_behind_what_was_pending_when_it_was_turned_on(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    topic = await loaded(topics)
    turn(topics, on=False)
    await settle()
    producer, _ = await connected(topic)
    producer.chunks_in = 1
    ledgers.is_prompt = False
    publish(producer, 1)
    # A first chunk is pending, too: its message is not complete, and does not count.
    producer.append_all([(payload("p", 2, chunk=(0, 2)), 1, producer, 2, 0)])
    producer.disconnect()
    turn(topics, on=True)
    await settle()
    coming = asyncio.ensure_future(connected(topic))
    await settle()
    assert not coming.done(), "it would number its messages from 0, as those that are pending"
    ledgers.writers[0].confirm()
    successor, _ = await coming
    assert successor.last_sequence_id() == 1


async def test_a_producer_that_left_before_it_was_turned_on_is_forgotten(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    topic = await loaded(topics)
    turn(topics, on=False)
    await settle()
    producer, _ = await connected(topic)
    ledgers.is_prompt = False
    publish(producer, 1)
    producer.disconnect()
    turn(topics, on=True)
    await settle()
    ledgers.writers[0].confirm()
    await asyncio.sleep(601)
    await maintain(topics, TopicDeduplication)
    assert kept_by(topic)[0].position_properties == {}


async def test_a_topic_that_no_longer_needs_it_is_loaded_without_what_it_kept(
    topics: TopicDirectory, coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    await loaded(topics)
    await topics.unload(NAME)
    factory = logs_over(coordination, ledgers)
    assert await factory.cursor_names(NAME.managed_ledger_name) == [CURSOR_NAME]
    async with TopicDirectory(factory, SimulatedClock(), owns=lambda _: True) as without:
        topic = await loaded(without)
        assert await factory.cursor_names(NAME.managed_ledger_name) == []
        assert topic.publishing.deduplication is None


async def test_a_snapshot_is_taken_by_time_too_and_absent_producers_are_forgotten(
    topics: TopicDirectory,
) -> None:
    topic = await loaded(topics)
    producer, _ = await connected(topic)
    publish(producer, 1)
    await asyncio.sleep(59)
    await maintain(topics, TopicDeduplication)
    assert kept_by(topic)
    assert kept_by(topic)[0].position_properties == {}
    await asyncio.sleep(2)
    await maintain(topics, TopicDeduplication)
    assert kept_by(topic)[0].position_properties == {"p": 1}
    producer.disconnect()
    await asyncio.sleep(601)
    await maintain(topics, TopicDeduplication)
    assert kept_by(topic)[0].position_properties == {}


async def test_waiting_in_vain_keeps_no_numbers(topics: TopicDirectory) -> None:
    topic = await loaded(topics)
    producer, _ = await connected(topic)
    publish(producer, 1)
    await settle()
    producer.disconnect()
    await connected(topic, "present")
    again = producer_of(NotedSession(), access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    await topic.publishing.connect(again)
    assert again.is_waiting
    again.disconnect()
    await asyncio.sleep(601)
    await maintain(topics, TopicDeduplication)
    assert kept_by(topic)
    assert kept_by(topic)[0].position_properties == {}


async def test_its_cursor_is_seen_in_the_internal_stats_and_nowhere_else(
    topics: TopicDirectory,
) -> None:
    topic = await loaded(topics)
    producer, _ = await connected(topic)
    publish(producer, 1, 2, 3, 4)
    await settle()
    cursors = cast("dict[str, dict[str, object]]", internal_stats(topic, {})["cursors"])
    assert cursors[CURSOR_NAME]["properties"] == {"p": 4}
    assert cursors[CURSOR_NAME]["markDeletePosition"] == "0:3"
    assert topic.subscribing.subscriptions == {}
    assert topic.part(Backlog).size_bytes == 0
    assert topic.connected_count == 1
    producer.disconnect()
    assert topic.connected_count == 0


async def test_no_subscription_may_have_the_name_of_the_cursor(topics: TopicDirectory) -> None:
    topic = await loaded(topics)
    with pytest.raises(NameReserved):
        await topic.subscribing.subscribe(SubscribeRequest(CURSOR_NAME, SubscriptionType.EXCLUSIVE))
    with pytest.raises(NameReserved):
        await topic.subscribing.create(CURSOR_NAME)


async def test_what_is_not_in_a_snapshot_yet_is_not_trimmed(
    coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    config = ManagedLedgerConfig(ledger_entries_max=1, ledger_age_min_s=0)
    factory = logs_over(coordination, ledgers, config=config)
    async with TopicDirectory(
        factory,
        SimulatedClock(),
        owns=lambda _: True,
        policies=resolver_over(factory, publishing=CONFIG),
    ) as topics:
        topic = await loaded(topics)
        producer, _ = await connected(topic)
        for number in (1, 2):
            publish(producer, number)
            await settle()
        topic.managed_ledger.trimmer.retention = KEEP_NOTHING
        await topic.managed_ledger.trimmer.trim()
        assert topic.managed_ledger.chain.total_entries == 2
        publish(producer, 3)
        await asyncio.sleep(1)
        await topic.managed_ledger.trimmer.trim()
        assert topic.managed_ledger.chain.total_entries == 0


async def test_deleting_the_topic_deletes_what_it_kept(
    topics: TopicDirectory, ledgers: MemoryLedgers
) -> None:
    producer, _ = await connected(await loaded(topics))
    publish(producer, 1, 2, 3)
    await asyncio.sleep(1)
    await topics.delete(NAME, force=True)
    assert ledgers.entries == {}
