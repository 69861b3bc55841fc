"""Proves that a producer that was away while another had the topic stays fenced, over restarts."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, producer_of
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.errors import BrokerError, ProducerFenced
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.topic_epoch import EPOCH_PROPERTY
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.topics.managed_ledger import ManagedLedgerRecord, managed_ledger_path
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

PERSISTENT = TopicName.parse("persistent://t/n/topic")
VOLATILE = TopicName.parse("non-persistent://t/n/topic")
EXCLUSIVE = AccessMode.EXCLUSIVE
FENCING = AccessMode.EXCLUSIVE_WITH_FENCING
WAIT = AccessMode.WAIT_FOR_EXCLUSIVE


class Client:
    """What was told to the client of a producer."""

    def __init__(self) -> None:
        self.closed = 0
        self.settled: list[BrokerError | None] = []

    def producer(self, name: str, mode: AccessMode, epoch: int | None = None) -> Producer:
        def note_closed(_: Producer) -> None:
            self.closed += 1

        return producer_of(
            NotedSession(),
            name,
            access_mode=mode,
            topic_epoch=epoch,
            on_closed=note_closed,
            on_settled=lambda _, refusal: self.settled.append(refusal),
        )


async def connect(
    topics: TopicDirectory, name: TopicName, mode: AccessMode, epoch: int | None = None
) -> Producer:
    producer = Client().producer(f"p{mode}", mode, epoch)
    await (await topics.get(name, create=True)).publishing.connect(producer)
    return producer


@pytest.mark.parametrize("name", [PERSISTENT, VOLATILE])
async def test_every_new_exclusive_producer_gets_the_next_epoch(
    topics: TopicDirectory, name: TopicName
) -> None:
    shared = await connect(topics, name, AccessMode.SHARED)
    assert shared.topic_epoch is None
    shared.disconnect()
    for expected, mode in enumerate((EXCLUSIVE, WAIT, FENCING)):
        producer = await connect(topics, name, mode)
        assert producer.topic_epoch == expected
        producer.disconnect()
    assert (await connect(topics, name, AccessMode.SHARED)).topic_epoch == 2


@pytest.mark.parametrize("name", [PERSISTENT, VOLATILE])
@pytest.mark.parametrize("mode", [EXCLUSIVE, FENCING, WAIT])
async def test_a_producer_that_reconnects_keeps_its_epoch_unless_there_was_another(
    topics: TopicDirectory, name: TopicName, mode: AccessMode
) -> None:
    first = await connect(topics, name, mode)
    first.disconnect()
    again = await connect(topics, name, mode, first.topic_epoch)
    assert again.topic_epoch == first.topic_epoch
    again.disconnect()
    (await connect(topics, name, FENCING)).disconnect()
    with pytest.raises(ProducerFenced, match=r"Current epoch: 1, Producer epoch: 0"):
        await connect(topics, name, mode, first.topic_epoch)


async def test_a_fenced_producer_does_not_fence_its_successor(topics: TopicDirectory) -> None:
    first = await connect(topics, PERSISTENT, FENCING)
    first.disconnect()
    second = await connect(topics, PERSISTENT, EXCLUSIVE)
    with pytest.raises(ProducerFenced):
        await connect(topics, PERSISTENT, FENCING, first.topic_epoch)
    assert not second.is_closed


async def test_the_epoch_is_where_upstream_keeps_it_and_outlives_the_broker(
    topics: TopicDirectory, coordination: Coordination, ledgers: MemoryLedgers
) -> None:
    first = await connect(topics, PERSISTENT, EXCLUSIVE)
    first.disconnect()
    await connect(topics, PERSISTENT, EXCLUSIVE)
    value, _ = await coordination.get(managed_ledger_path(PERSISTENT.managed_ledger_name))
    assert ManagedLedgerRecord.decode(value).properties[EPOCH_PROPERTY] == "1"
    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(factory, SimulatedClock(), owns=lambda _: True) as next_owner:
        with pytest.raises(ProducerFenced):
            await connect(next_owner, PERSISTENT, EXCLUSIVE, first.topic_epoch)
        assert (await connect(next_owner, PERSISTENT, EXCLUSIVE)).topic_epoch == 2


@pytest.mark.parametrize("name", [PERSISTENT, VOLATILE])
async def test_a_producer_that_waited_gets_an_epoch_of_its_own(
    topics: TopicDirectory, name: TopicName
) -> None:
    first, client = await connect(topics, name, EXCLUSIVE), Client()
    waiting = client.producer("waiting", WAIT)
    await next(iter(topics.loaded.values())).publishing.connect(waiting)
    assert (waiting.is_waiting, waiting.topic_epoch) == (True, None)
    first.disconnect()
    await asyncio.sleep(0.001)
    assert (waiting.is_waiting, waiting.topic_epoch) == (False, 1)
    assert client.settled == [None]


@pytest.mark.parametrize("name", [PERSISTENT, VOLATILE])
async def test_a_waiting_producer_with_an_old_epoch_is_passed_over(
    topics: TopicDirectory, name: TopicName
) -> None:
    old = await connect(topics, name, EXCLUSIVE)
    old.disconnect()
    first = await connect(topics, name, EXCLUSIVE)
    client, next_client = Client(), Client()
    outdated = client.producer("outdated", WAIT, first.topic_epoch)
    following = next_client.producer("following", WAIT)
    (topic,) = topics.loaded.values()
    for each in (outdated, following):
        await topic.publishing.connect(each)
    topic.publishing.epoch.current = 7
    first.disconnect()
    await asyncio.sleep(0.001)
    (refusal,) = client.settled
    assert isinstance(refusal, ProducerFenced)
    assert next_client.settled == [None]
    assert following.topic_epoch == 8


@pytest.mark.parametrize("name", [PERSISTENT, VOLATILE])
async def test_a_waiting_producer_that_leaves_in_its_turn_makes_room_for_the_next(
    topics: TopicDirectory, name: TopicName, caplog: pytest.LogCaptureFixture
) -> None:
    first = await connect(topics, name, EXCLUSIVE)
    client = Client()
    going, following = Client().producer("going", WAIT), client.producer("following", WAIT)
    (topic,) = topics.loaded.values()
    for each in (going, following):
        await topic.publishing.connect(each)
    first.disconnect()
    going.disconnect()
    await asyncio.sleep(0.001)
    assert client.settled == [None]
    assert list(topic.publishing.producers.by_name.values()) == [following]
    assert not caplog.records


async def test_a_producer_that_is_fenced_while_its_epoch_is_stored_is_not_let_in(
    topics: TopicDirectory,
) -> None:
    topic = await topics.get(PERSISTENT, create=True)
    slow = asyncio.create_task(connect(topics, PERSISTENT, EXCLUSIVE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(topic.publishing.producers.by_name) == 1
    winner = await connect(topics, PERSISTENT, FENCING)
    with pytest.raises(ProducerFenced, match="Fenced out"):
        await slow
    assert list(topic.publishing.producers.by_name.values()) == [winner]


async def test_a_producer_whose_client_goes_while_its_epoch_is_stored_leaves_the_topic(
    topics: TopicDirectory,
) -> None:
    topic = await topics.get(PERSISTENT, create=True)
    slow = asyncio.create_task(connect(topics, PERSISTENT, EXCLUSIVE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    slow.cancel()
    await asyncio.wait((slow,))
    assert len(topic.publishing.producers.by_name) == 0
