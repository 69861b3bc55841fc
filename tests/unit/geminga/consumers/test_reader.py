"""Proves that readers begin where they are told, go on where they were, and know what is left."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.unit.geminga.fake_broker import (
    LEDGER,
    FakeBroker,
    Session,
    batch_payload,
    metadata,
    until,
)

from geminga import EARLIEST, LATEST, Client, Closed, ConnectionLost, MessageId, Reader
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.messages.payload import encode_payload


def starts(broker: FakeBroker) -> list[tuple[int, int]]:
    """Entry and batch index behind which readers began, as they said."""
    asked = [command.subscribe for command in broker.of_type(BaseCommand.SUBSCRIBE)]
    assert not any(each.durable for each in asked)
    ids = [each.start_message_id for each in asked]
    return [(each.entryId, each.batch_index) for each in ids]


async def data_of(reader: Reader[bytes], count: int) -> list[bytes]:
    return [(await reader.read()).data for _ in range(count)]


def published_at(time_ms: int) -> bytes:
    """A message of that time."""
    said = metadata()
    said.publish_time = time_ms
    return encode_payload(said, b"%d" % time_ms)


def last_is(
    broker: FakeBroker, last: api.MessageIdData, mark: api.MessageIdData | None = None
) -> None:
    """From now on this is the last message of the topic."""
    broker.on(
        BaseCommand.GET_LAST_MESSAGE_ID,
        lambda session, command, _: session.write(
            answers.encode_last_message_id(command.getLastMessageId.request_id, last, mark)
        ),
    )


async def test_a_reader_is_forgotten_with_its_connection_and_begins_at_the_earliest(
    client: Client, broker: FakeBroker
) -> None:
    async with client.reader("orders") as reader:
        broker.deliver(0, b"0")
        assert await data_of(reader, 1) == [b"0"]
    (asked,) = broker.of_type(BaseCommand.SUBSCRIBE)
    assert asked.subscribe.subscription.startswith("reader-")
    assert asked.subscribe.start_message_id.ledgerId == 2**64 - 1
    with pytest.raises(Closed):
        await reader.read()


async def test_after_a_reconnection_reading_goes_on_behind_what_was_read(
    client: Client, broker: FakeBroker
) -> None:
    reader = await client.reader("orders")
    for entry_id in range(4):
        broker.deliver(entry_id, b"%d" % entry_id)
    assert await data_of(reader, 2) == [b"0", b"1"]
    broker.drop_connections()
    await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
    await until(lambda: reader.is_connected)
    assert starts(broker)[1] == (1, -1)
    for entry_id in range(1, 4):  # also what was read: a broker may send it again
        broker.deliver(entry_id, b"%d" % entry_id)
    assert await data_of(reader, 2) == [b"2", b"3"]


async def test_in_the_midst_of_a_batch_the_rest_of_it_is_read(
    client: Client, broker: FakeBroker
) -> None:
    reader = await client.reader("orders")
    broker.deliver(7, payload=batch_payload(b"a", b"b", b"c"))
    assert await data_of(reader, 2) == [b"a", b"b"]
    broker.drop_connections()
    await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
    await until(lambda: reader.is_connected)
    assert starts(broker)[1] == (7, 1)
    broker.deliver(7, payload=batch_payload(b"a", b"b", b"c"))
    assert await data_of(reader, 1) == [b"c"]


@pytest.mark.parametrize(
    ("start", "inclusive", "told", "read"),
    [
        (MessageId(LEDGER, 5), False, (5, -1), [b"6a", b"6b"]),
        (MessageId(LEDGER, 5), True, (4, -1), [b"5a", b"5b", b"6a", b"6b"]),
        (MessageId(LEDGER, 5, 0), False, (5, 0), [b"5b", b"6a", b"6b"]),
        (MessageId(LEDGER, 5, 1), True, (5, 1), [b"5b", b"6a", b"6b"]),
        (LATEST, False, (2**63 - 1, -1), [b"4a", b"4b"]),
    ],
)
async def test_a_reader_begins_behind_a_message_or_at_it(
    client: Client,
    broker: FakeBroker,
    start: MessageId,
    *,
    inclusive: bool,
    told: tuple[int, int],
    read: list[bytes],
) -> None:
    reader = await client.reader("orders", start, start_inclusive=inclusive)
    for entry_id in (4, 5, 6):
        broker.deliver(entry_id, payload=batch_payload(b"%da" % entry_id, b"%db" % entry_id))
    assert await data_of(reader, len(read)) == read
    assert starts(broker) == [told]


async def test_a_reader_of_several_topics_has_no_message_to_start_at(client: Client) -> None:
    with pytest.raises(ValueError, match="in common"):
        await client.reader(["one", "two"], MessageId(LEDGER, 5))
    assert not client._channels.owners


async def test_a_reader_may_start_at_a_time(client: Client, broker: FakeBroker) -> None:
    reader = await client.reader("orders", datetime(2026, 1, 1, tzinfo=UTC))
    (asked,) = broker.of_type(BaseCommand.SEEK)
    assert asked.seek.message_publish_time == 1_767_225_600_000
    await until(lambda: reader.is_connected)
    last_is(broker, answers.message_id(LEDGER, 41), answers.message_id(LEDGER, 41))
    assert not await reader.has_message_available()


async def test_what_is_left_is_known_by_the_last_message(
    client: Client, broker: FakeBroker
) -> None:
    reader = await client.reader("orders")
    assert await reader.has_message_available()
    broker.deliver(41, b"last")
    await until(lambda: len(reader._queue) == 1)
    last_is(broker, answers.message_id(LEDGER, -1 & (2**64 - 1)))
    assert await reader.has_message_available()  # it is here already
    await reader.read()
    last_is(broker, answers.message_id(LEDGER, 41))
    assert not await reader.has_message_available()
    last_is(broker, answers.message_id(LEDGER, 42))
    assert await reader.has_message_available()


async def test_a_reader_in_a_batch_still_has_the_rest_of_it(
    client: Client, broker: FakeBroker
) -> None:
    reader = await client.reader("orders")
    broker.deliver(41, payload=batch_payload(b"a"))
    await reader.read()
    last = answers.message_id(LEDGER, 41)
    last.batch_index = 1
    last_is(broker, last)
    assert await reader.has_message_available()


@pytest.mark.parametrize(
    ("start", "inclusive", "has_more"),
    [
        (EARLIEST, False, True),
        (MessageId(LEDGER, 40), False, True),
        (MessageId(LEDGER, 41), False, False),
        (MessageId(LEDGER, 41), True, True),
        (LATEST, False, False),
    ],
)
async def test_before_the_first_message_the_start_decides_what_is_left(
    client: Client, start: MessageId, *, inclusive: bool, has_more: bool
) -> None:
    reader = await client.reader("orders", start, start_inclusive=inclusive)
    assert await reader.has_message_available() is has_more


async def test_a_reader_at_the_latest_has_what_was_published_since(
    client: Client, broker: FakeBroker
) -> None:
    reader = await client.reader("orders", LATEST)
    last_is(broker, answers.message_id(LEDGER, 42), answers.message_id(LEDGER, 41))
    assert await reader.has_message_available()


async def test_a_reader_goes_on_where_it_was_moved_to(client: Client, broker: FakeBroker) -> None:
    reader = await client.reader("orders")
    broker.deliver(7, b"7")
    await reader.read()
    await reader.seek(MessageId(LEDGER, 3))
    await until(lambda: reader.is_connected)
    assert starts(broker)[1] == (2, -1)
    broker.deliver(3, b"3")
    assert await data_of(reader, 1) == [b"3"]


async def test_what_is_read_while_a_seek_is_under_way_does_not_move_where_it_goes(
    client: Client, broker: FakeBroker
) -> None:
    seeks: list[tuple[Session, BaseCommand]] = []
    broker.on(BaseCommand.SEEK, lambda session, command, _: seeks.append((session, command)))
    reader = await client.reader("orders")
    for entry_id in (7, 8):
        broker.deliver(entry_id, b"%d" % entry_id)
    assert await data_of(reader, 1) == [b"7"]
    seeking = asyncio.ensure_future(reader.seek(MessageId(LEDGER, 3)))
    await until(lambda: bool(seeks))
    assert await data_of(reader, 1) == [b"8"]
    ((session, asked),) = seeks
    session.write(
        answers.encode_close_consumer(asked.seek.consumer_id),
        answers.encode_success(asked.seek.request_id),
    )
    await seeking
    await until(lambda: reader.is_connected)
    assert starts(broker)[1] == (2, -1)


async def test_a_seek_that_failed_leaves_a_reader_behind_what_was_read_meanwhile(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEEK)  # no answer
    reader = await client.reader("orders")
    for entry_id in (7, 8):
        broker.deliver(entry_id, b"%d" % entry_id)
    assert await data_of(reader, 1) == [b"7"]
    seeking = asyncio.ensure_future(reader.seek(MessageId(LEDGER, 3)))
    await until(lambda: bool(broker.of_type(BaseCommand.SEEK)))
    assert await data_of(reader, 1) == [b"8"]
    broker.drop_connections()
    with pytest.raises(ConnectionLost):
        await seeking
    await until(lambda: reader.is_connected)
    # Back behind what was read, wherever the broker had it meanwhile.
    broker.drop_connections()
    await until(lambda: len(starts(broker)) == 3 or not reader.is_connected)
    await until(lambda: reader.is_connected)
    assert starts(broker)[-1] == (8, -1)


async def test_a_reader_that_was_moved_to_a_time_begins_there_also_at_another_broker(
    client: Client, broker: FakeBroker
) -> None:
    reader = await client.reader("orders")
    await reader.seek(1_000)
    await until(lambda: reader.is_connected)
    broker.drop_connections()  # before anything came: only that broker knew the place
    await until(lambda: not reader.is_connected)
    await until(lambda: reader.is_connected)
    for entry_id, time_ms in enumerate((900, 999, 1_000)):
        broker.deliver(entry_id, payload=published_at(time_ms))
    assert await data_of(reader, 1) == [b"1000"]
    await until(lambda: bool(broker.of_type(BaseCommand.ACK)))
    (acked,) = broker.of_type(BaseCommand.ACK)[0].ack.message_id
    assert acked.entryId in {1, 2}, "what was left out is done with"


async def test_a_reader_attaches_while_it_is_moved_to_a_broker_that_knows_nothing_of_the_move(
    client: Client, broker: FakeBroker
) -> None:
    """Its topic was unloaded behind the move, before the reader attached again."""
    reader = await client.reader("orders")
    (topic,) = reader._topics.by_topic.values()
    topic.channel.is_seeking = True
    assert topic._reading is not None
    topic._reading = topic._reading.moved(1_000)
    topic.channel.start()
    topic.channel.is_seeking = False
    for entry_id, time_ms in enumerate((900, 999, 1_000)):
        broker.deliver(entry_id, payload=published_at(time_ms))
    assert await data_of(reader, 1) == [b"1000"]


async def test_what_a_reader_takes_while_it_waits_for_a_broker_to_move_it_moves_it_nowhere(
    client: Client, broker: FakeBroker
) -> None:
    reader = await client.reader("orders")
    broker.deliver(7, b"7")
    assert await data_of(reader, 1) == [b"7"]
    broker.drop_connections()
    await until(lambda: not reader.is_connected)
    await reader.seek(MessageId(LEDGER, 3))
    await until(lambda: reader.is_connected)
    assert starts(broker)[1:] == [(7, -1), (2, -1)], "first where it was, then where it goes"


async def test_iterating_ends_when_the_reader_is_closed(client: Client, broker: FakeBroker) -> None:
    reader = await client.reader(["one", "two"])
    assert len(reader.topics) == 2
    broker.deliver(0, b"0")
    found: list[bytes] = []
    async for message in reader:
        found.append(message.data)
        await reader.close()
    assert found == [b"0"]
    assert len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 2
