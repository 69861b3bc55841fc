"""Proves what a task sends to brokers: entries as they were cut, in any attempt the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from tests.unit.geminga.fake_broker import MAX_MESSAGE_BYTES, FakeBroker, Session
from tests.unit.geminga.fake_network import FakeNetwork
from tests.unit.geminga.producers.stored import bodies, metadata_of

from geminga import Client, NotAllowed, ProducerBusy, connect
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.send import encode_receipt
from geminga_simulation.event_loop.clock import SimulatedClock
from pyspark_geminga.access import Access
from pyspark_geminga.sink import task_writer
from pyspark_geminga.sink.cutting import first_sequence_id
from pyspark_geminga.sink.errors import EpochOutOfOrder, InvalidRow
from pyspark_geminga.sink.options import Cut, SinkOptions
from pyspark_geminga.sink.rows import Rows
from pyspark_geminga.sink.task_writer import Identity, TaskWriter

EPOCH = 3
FIRST = first_sequence_id(EPOCH)
REPEATS = Identity(4, "spark-query-4", EPOCH)


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork()


@pytest.fixture
def broker(network: FakeNetwork) -> FakeBroker:
    return FakeBroker(network, "broker")


@pytest.fixture
async def client(network: FakeNetwork, broker: FakeBroker) -> AsyncIterator[Client]:
    async with connect(
        broker.url, network=network, clock=SimulatedClock(), random=Random(1)
    ) as opened:
        yield opened


def options_of(broker: FakeBroker, **more: object) -> SinkOptions:
    given: dict[str, object] = {
        "topic": "persistent://public/default/orders",
        "cut": Cut(rows_max=3),
        **more,
    }
    return SinkOptions(access=Access.of({"service.url": broker.url}), **given)  # type: ignore[arg-type]


class Writer:
    """A task's writer, and which topics it had checked."""

    def __init__(
        self,
        client: Client,
        options: SinkOptions,
        identity: Identity = REPEATS,
        *,
        partitions: int = 0,
    ) -> None:
        self.checked: list[str] = []
        self.writer = TaskWriter(
            client, options, None, identity, partitions=partitions, check=self._check
        )

    async def _check(self, topic: str) -> None:
        self.checked.append(topic)

    async def write(self, *batches: Rows) -> task_writer.Written:
        try:
            for rows in batches:
                await self.writer.add(rows)
            return await self.writer.finish()
        finally:
            await self.writer.close()


def rows_of(*payloads: bytes, topics: list[str] | None = None) -> Rows:
    return Rows(list(payloads), [b""] * len(payloads), topics)


def knows(broker: FakeBroker, sequence_id: int) -> None:
    """Let the broker have messages up to this one."""
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_producer_success(
                command.producer.request_id,
                command.producer.producer_name or "made-up",
                last_sequence_id=sequence_id,
            )
        ),
    )


def sequence_ids(broker: FakeBroker) -> list[int]:
    return [number - FIRST for number, _ in broker.stored]


async def test_rows_are_cut_and_numbered_however_they_come(
    client: Client, broker: FakeBroker
) -> None:
    written = await Writer(client, options_of(broker)).write(
        rows_of(b"0", b"1"), rows_of(), rows_of(b"2", b"3", b"4", b"5", b"6")
    )
    assert bodies(broker) == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]
    assert sequence_ids(broker) == [0, 1, 2, 3, 4, 5, 6]
    assert {each.producer_name for each in metadata_of(broker)} == {"spark-query-4"}
    assert (written.rows, written.size_bytes, written.destinations) == (7, 7, 1)
    assert len(broker.of_type(BaseCommand.CLOSE_PRODUCER)) == 1


async def test_no_entry_has_rows_that_the_topic_knows_and_rows_that_it_does_not(
    client: Client, broker: FakeBroker
) -> None:
    knows(broker, FIRST + 3)
    await Writer(client, options_of(broker)).write(rows_of(*[b"%d" % n for n in range(8)]))
    # All are sent, since what the broker tells need not be durable yet.
    assert bodies(broker) == [[b"0", b"1", b"2"], [b"3"], [b"4", b"5", b"6"], [b"7"]]
    assert sequence_ids(broker) == [*range(8)]


async def test_rows_of_an_earlier_epoch_change_nothing(client: Client, broker: FakeBroker) -> None:
    knows(broker, first_sequence_id(EPOCH - 1) + 1)
    await Writer(client, options_of(broker)).write(rows_of(*[b"%d" % n for n in range(4)]))
    assert bodies(broker) == [[b"0", b"1", b"2"], [b"3"]]


async def test_a_topic_with_a_later_epoch_is_refused(client: Client, broker: FakeBroker) -> None:
    knows(broker, first_sequence_id(EPOCH + 1))
    with pytest.raises(EpochOutOfOrder, match="has batch 4 of spark-query-4 already"):
        await Writer(client, options_of(broker)).write(rows_of(b"0"))
    assert broker.payloads == []
    assert broker.of_type(BaseCommand.CLOSE_PRODUCER)


async def test_topics_are_checked_only_where_rows_are_deduplicated(
    client: Client, broker: FakeBroker
) -> None:
    promising, other = (
        Writer(client, options_of(broker), identity) for identity in (REPEATS, Identity(4))
    )
    await promising.write(rows_of(b"0"))
    await other.write(rows_of(b"0"))
    assert promising.checked == ["persistent://public/default/orders"]
    assert other.checked == []
    names = [each.producer.producer_name for each in broker.of_type(BaseCommand.PRODUCER)]
    assert names == ["spark-query-4", ""]


async def test_rows_that_are_sorted_leave_in_one_order(client: Client, broker: FakeBroker) -> None:
    options = options_of(broker, is_sorted=True)
    for batches in (
        [rows_of(b"b", b"d"), rows_of(b"a", b"c")],
        [rows_of(b"c"), rows_of(b"a", b"b", b"d")],
    ):
        broker.payloads.clear()
        await Writer(client, options).write(*batches)
        assert bodies(broker) == [[b"a", b"b", b"c"], [b"d"]]


async def test_no_more_is_sorted_than_has_room(
    client: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_writer, "SORTED_BYTES_MAX", 10)
    with pytest.raises(InvalidRow, match="orderWithinTask=none"):
        await Writer(client, options_of(broker, is_sorted=True)).write(rows_of(b"x" * 11))


async def test_each_topic_and_partition_has_numbers_of_its_own(
    client: Client, broker: FakeBroker
) -> None:
    def partitions(session: Session, command: BaseCommand, _: bytes) -> None:
        asked = command.partitionMetadata
        count = 2 if asked.topic.endswith("/parted") else 0
        session.write(answers.encode_partitions(asked.request_id, count))

    broker.on(BaseCommand.PARTITIONED_METADATA, partitions)
    options = options_of(broker, topic=None, cut=Cut(rows_max=1))
    topics = ["plain", "parted", "parted", "persistent://public/default/plain", "parted"]
    written = await Writer(client, options, Identity(0, "p", EPOCH)).write(
        rows_of(b"0", b"1", b"2", b"3", b"4", topics=topics)
    )
    # Rows without a key take turns between partitions; two names of a topic are one topic.
    assert written.destinations == 3
    by_topic: dict[str, list[tuple[int, bytes]]] = {}
    opened = {
        each.producer.producer_id: each.producer.topic.rpartition("/")[2]
        for each in broker.of_type(BaseCommand.PRODUCER)
    }
    for command, stored in zip(broker.of_type(BaseCommand.SEND), broker.stored, strict=True):
        by_topic.setdefault(opened[command.send.producer_id], []).append(stored)
    assert by_topic == {
        "plain": [(FIRST, b"0"), (FIRST + 1, b"3")],
        "parted-partition-0": [(FIRST, b"1"), (FIRST + 1, b"4")],
        "parted-partition-1": [(FIRST, b"2")],
    }


async def test_too_many_topics_of_a_task_are_refused(
    client: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_writer, "DESTINATIONS_MAX", 2)
    options = options_of(broker, topic=None)
    await Writer(client, options).write(rows_of(b"", b"", topics=["a", "b"]))
    with pytest.raises(InvalidRow, match="more than 2 topics in one task"):
        await Writer(client, options).write(rows_of(b"", b"", b"", topics=["a", "b", "c"]))
    with pytest.raises(InvalidRow, match="names no topic"):
        await Writer(client, options).write(rows_of(b"", topics=["a//b"]))


async def test_a_name_that_an_earlier_attempt_has_is_waited_for(
    client: Client, broker: FakeBroker
) -> None:
    accept = broker.answers[BaseCommand.PRODUCER]

    def refuse(session: Session, command: BaseCommand, _: bytes) -> None:
        error = answers.encode_error(command.producer.request_id, api.ProducerBusy, "taken")
        session.write(error)

    broker.on(BaseCommand.PRODUCER, refuse)
    writing = asyncio.ensure_future(Writer(client, options_of(broker)).write(rows_of(b"0")))
    await asyncio.sleep(20)
    broker.on(BaseCommand.PRODUCER, accept)
    assert (await writing).rows == 1
    broker.on(BaseCommand.PRODUCER, refuse)
    with pytest.raises(ProducerBusy):
        await Writer(client, options_of(broker)).write(rows_of(b"0"))
    # Without a name of its own it is not another attempt that is in the way.
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(ProducerBusy):
        await Writer(client, options_of(broker), Identity(0)).write(rows_of(b"0"))
    assert asyncio.get_running_loop().time() - started_s < 1


async def test_nothing_is_sent_behind_a_large_row_that_the_topic_may_refuse(
    client: Client, broker: FakeBroker
) -> None:
    def refuse_large(session: Session, command: BaseCommand, payload: bytes) -> None:
        told = command.send
        if len(payload) > 1000:
            error = answers.encode_send_error(
                told.producer_id, told.sequence_id, api.NotAllowedError, "too large"
            )
            asyncio.get_running_loop().call_later(5, session.write, error)
            return
        broker.keep(command, payload)
        session.write(encode_receipt(told.producer_id, told.sequence_id, 0, 3, len(broker.stored)))

    broker.on(BaseCommand.SEND, refuse_large)
    options = options_of(broker, cut=Cut(rows_max=3, bytes_max=500))
    with pytest.raises(NotAllowed):
        await Writer(client, options).write(rows_of(b"0", bytes(2000), b"2", b"3"))
    assert broker.stored_bodies == [b"0"]


async def test_a_row_that_is_too_large_for_the_broker_is_an_error(
    client: Client, broker: FakeBroker
) -> None:
    with pytest.raises(InvalidRow, match=f"where the broker of .* takes {MAX_MESSAGE_BYTES}"):
        await Writer(client, options_of(broker)).write(rows_of(bytes(MAX_MESSAGE_BYTES + 1)))
