"""Proves that a reader of entries hands out each entry of its range once, and knows its end."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, batch_payload, metadata, until

from geminga import LOG_START, Client, Closed, EntryReader, LogPosition
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar.api_pb2 import BaseCommand, BrokerEntryMetadata, CommandAck
from geminga_protocol.pulsar.messages.payload import encode_broker_entry, encode_payload


def last_is(broker: FakeBroker, entry_id: int, ledger_id: int = LEDGER) -> None:
    """From now on this is the last entry of the topic."""
    broker.on(
        BaseCommand.GET_LAST_MESSAGE_ID,
        lambda session, command, _: session.write(
            answers.encode_last_message_id(
                command.getLastMessageId.request_id,
                answers.message_id(ledger_id, entry_id & (2**64 - 1)),
            )
        ),
    )


def starts(broker: FakeBroker) -> list[tuple[int, int]]:
    """The entries behind which readers began, as they said."""
    asked = [command.subscribe for command in broker.of_type(BaseCommand.SUBSCRIBE)]
    assert not any(each.durable for each in asked)
    return [(each.start_message_id.ledgerId, each.start_message_id.entryId) for each in asked]


def deliver(broker: FakeBroker, entry_ids: Iterable[int], ledger_id: int = LEDGER) -> None:
    for entry_id in entry_ids:
        broker.deliver(entry_id, b"%d" % entry_id, ledger_id=ledger_id)


async def all_of(reader: EntryReader) -> list[tuple[int, int]]:
    """The entries that are left."""
    found: list[tuple[int, int]] = []
    while entries := await reader.read():
        found += [entry.position.entry for entry in entries]
    return found


async def test_without_an_end_the_range_ends_where_the_topic_ended_at_opening(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 2)
    async with client.entries("orders") as reader:
        deliver(broker, range(5))
        assert await all_of(reader) == [(LEDGER, 0), (LEDGER, 1), (LEDGER, 2)]
        assert await reader.read() == []
    assert starts(broker) == [(2**64 - 1, 2**64 - 1)]
    with pytest.raises(Closed):
        await reader.read()


@pytest.mark.parametrize(
    ("start", "end", "told", "found"),
    [
        (LogPosition(LEDGER, 2), LogPosition(LEDGER, 4), (LEDGER, 1), [2, 3]),
        (LogPosition(LEDGER, 0), LogPosition(LEDGER, 2), (LEDGER, 2**64 - 1), [0, 1]),
        (LogPosition(LEDGER, 2, 1), LogPosition(LEDGER, 4, 1), (LEDGER, 1), [2, 3, 4]),
        (LogPosition(LEDGER, 2, 0), LogPosition(LEDGER, 4, 0), (LEDGER, 1), [2, 3]),
        (LogPosition(LEDGER, 2, 1), LogPosition(LEDGER, 2, 3), (LEDGER, 1), [2]),
    ],
)
async def test_a_range_is_half_open(
    client: Client,
    broker: FakeBroker,
    start: LogPosition,
    end: LogPosition,
    told: tuple[int, int],
    found: list[int],
) -> None:
    last_is(broker, 9)
    async with client.entries("orders", start, end) as reader:
        deliver(broker, range(start.entry_id, 10))
        assert await all_of(reader) == [(LEDGER, each) for each in found]
    assert starts(broker) == [told]


async def test_an_empty_range_asks_for_no_message(client: Client, broker: FakeBroker) -> None:
    for end in (LogPosition(LEDGER, 2), LogPosition(LEDGER, 1), LogPosition(LEDGER - 1, 7)):
        async with client.entries("orders", LogPosition(LEDGER, 2), end) as reader:
            assert await reader.read() == []
    last_is(broker, -1)
    async with client.entries("orders") as reader:
        assert await reader.read() == []
    assert broker.permits == 0


async def test_an_end_at_which_nothing_is_stored_is_found_by_what_lies_behind(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 0, LEDGER + 2)
    end = LogPosition(LEDGER + 1, 0)  # a ledger that was trimmed, or never had an entry
    async with client.entries("orders", LogPosition(LEDGER, 7), end) as reader:
        deliver(broker, [7, 9])  # 8 is gone: no loss
        deliver(broker, [0], LEDGER + 2)
        assert await all_of(reader) == [(LEDGER, 7), (LEDGER, 9)]


async def test_an_end_behind_the_last_message_is_the_end_of_the_topic(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 8)  # behind it there are markers of transactions, which are never sent
    async with client.entries("orders", LogPosition(LEDGER, 7), LogPosition(LEDGER, 12)) as reader:
        deliver(broker, [7, 8])
        assert await all_of(reader) == [(LEDGER, 7), (LEDGER, 8)]


async def test_what_is_trimmed_while_it_is_waited_for_ends_the_range(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 8)
    async with client.entries("orders", LogPosition(LEDGER, 7), LogPosition(LEDGER, 8)) as reader:
        last_is(broker, -1)
        assert await reader.read() == []
        assert reader.first_position is None


async def test_the_first_entry_tells_that_the_beginning_was_trimmed(
    client: Client, broker: FakeBroker
) -> None:
    start, end = LogPosition(LEDGER, 7), LogPosition(LEDGER + 1, 1)
    async with client.entries("orders", start, end) as reader:
        assert reader.first_position is None
        deliver(broker, [5], LEDGER + 1)
        assert await reader.read() == []
        assert reader.first_position == LogPosition(LEDGER + 1, 5)


async def test_after_a_reconnection_no_entry_is_lost_or_repeated(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 5)
    async with client.entries("orders") as reader:
        deliver(broker, range(4))
        await until(lambda: len(reader._queue) == 4)
        first = await reader.read(max_messages=2)
        broker.drop_connections()
        await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
        await until(lambda: reader._channel.is_connected)
        assert starts(broker)[1] == (LEDGER, 1)
        deliver(broker, range(1, 6))  # also what was read: a broker may send it again
        assert [each.entry_id for each in first] == [0, 1]
        assert await all_of(reader) == [(LEDGER, each) for each in range(2, 6)]


async def test_brokers_are_told_what_was_taken(client: Client, broker: FakeBroker) -> None:
    last_is(broker, 9)
    async with client.entries("orders") as reader:
        deliver(broker, range(5))
        await until(lambda: len(reader._queue) == 5)
        await reader.read(max_messages=3)
        await until(lambda: bool(broker.of_type(BaseCommand.ACK)))
    (told,) = [command.ack for command in broker.of_type(BaseCommand.ACK)]
    assert told.ack_type == CommandAck.Cumulative
    assert [each.entryId for each in told.message_id] == [2]


async def test_what_is_taken_while_the_reader_attaches_again_is_not_repeated(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 5)
    async with client.entries("orders") as reader:
        deliver(broker, range(3))
        await until(lambda: len(reader._queue) == 3)
        asked: list[BaseCommand] = []
        broker.on(BaseCommand.SUBSCRIBE, lambda _, command, __: asked.append(command))
        broker.drop_connections()
        await until(lambda: bool(asked))
        assert len(await reader.read()) == 3  # the broker was told to begin before them
        broker.session.write(answers.encode_success(asked[0].subscribe.request_id))
        await until(lambda: reader._channel.is_connected)
        deliver(broker, range(6))
        assert await all_of(reader) == [(LEDGER, each) for each in range(3, 6)]


async def test_a_whole_range_that_has_come_needs_no_broker(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 1)
    async with client.entries("orders") as reader:
        deliver(broker, range(2))
        await until(lambda: len(reader._queue) == 2)
        broker.drop_connections()
        await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
        await until(lambda: reader._channel.is_connected)
        assert await all_of(reader) == [(LEDGER, 0), (LEDGER, 1)]


async def test_a_read_ends_with_the_messages_or_bytes_it_wants_and_has_one_entry_at_least(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 9)
    async with client.entries("orders") as reader:
        for entry_id in range(10):
            broker.deliver(entry_id, payload=batch_payload(*[b"x" * 1000] * 3))
        await until(lambda: len(reader._queue) == 10)
        assert [each.message_count for each in await reader.read(max_messages=7)] == [3, 3]
        assert len(await reader.read(max_messages=1)) == 1
        assert len(await reader.read(max_bytes=7000)) == 2
        assert len(await reader.read(max_bytes=1)) == 1
        assert len(await reader.read()) == 4
        assert reader._queued_bytes == 0


async def test_a_broker_that_sends_nothing_is_waited_for_only_so_long(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 9)
    async with client.entries("orders", LOG_START, LogPosition(LEDGER, 5), timeout_s=30) as reader:
        with pytest.raises(TimeoutError, match="behind"):
            await reader.read()
        broker.kill()
        with pytest.raises(TimeoutError, match="30 s"):
            await reader.read()


async def test_large_messages_are_fetched_ahead_by_their_bytes(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 999)
    async with client.entries("orders", read_ahead_bytes=100_000) as reader:
        await until(lambda: broker.permits == 100)
        broker.deliver(0, b"x" * 20_000)
        await until(lambda: len(reader._queue) == 1)
        assert reader._permits_max == 4
        broker.deliver(1, b"x")  # says little of those behind it
        await until(lambda: len(reader._queue) == 2)
        assert reader._permits_max == 8


async def test_more_bytes_than_asked_for_come_again_in_smaller_portions(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 999)
    async with client.entries("orders", read_ahead_bytes=50_000) as reader:
        for entry_id in range(20):
            broker.deliver(entry_id, b"x" * 20_000)
        await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
        await until(lambda: reader._channel.is_connected)
        assert len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 1
        assert reader._queued_bytes == 0
        assert broker.of_type(BaseCommand.FLOW)[-1].flow.messagePermits == 2
        deliver(broker, [0])
        assert len(await reader.read()) == 1


async def test_a_damaged_entry_is_handed_out_with_its_error(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 0)
    async with client.entries("orders") as reader:
        broker.deliver(0, payload=encode_payload(metadata(), b"whole")[:-1] + b"!")
        (entry,) = await reader.read()
        assert entry.metadata is None
        assert "checksum" in (entry.error or "")
        assert entry.message_count == 1


async def test_an_entry_tells_the_index_of_its_last_message_where_the_broker_does(
    client: Client, broker: FakeBroker
) -> None:
    last_is(broker, 1)
    async with client.entries("orders") as reader:
        head = encode_broker_entry(BrokerEntryMetadata(broker_timestamp=1, index=2**40))
        broker.deliver(0, payload=head + batch_payload(b"a", b"b"))
        broker.deliver(1, b"plain")
        await until(lambda: len(reader._queue) == 2)
        first, second = await reader.read()
        assert (first.last_index, second.last_index) == (2**40, None)
        assert (first.message_count, second.message_count) == (2, 1)
        assert second.next_position == LogPosition(LEDGER, 2)


@pytest.mark.parametrize("limits", [{"timeout_s": 0}, {"read_ahead_bytes": 0}])
async def test_limits_are_above_0(client: Client, limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        client.entries("orders", **limits)  # type: ignore[arg-type]


async def test_a_topic_with_partitions_is_refused_but_none_of_them(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PARTITIONED_METADATA,
        lambda session, command, _: session.write(
            answers.encode_partitions(command.partitionMetadata.request_id, 4)
        ),
    )
    with pytest.raises(ValueError, match="orders has 4 partitions"):
        await client.entries("orders")
    assert broker.of_type(BaseCommand.SUBSCRIBE) == []
    last_is(broker, -1)
    async with client.entries("orders-partition-3") as reader:
        assert await reader.read() == []
