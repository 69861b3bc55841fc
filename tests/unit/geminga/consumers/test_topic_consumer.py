"""Proves that acknowledgements of a consumer arrive together, once, and whole batches at a time,
and that refused messages are asked for when their time has come, once, and boundedly."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, batch_payload, until

from geminga import (
    EARLIEST,
    BrokerFailed,
    Client,
    ConnectionLost,
    ConsumerOptions,
    MessageId,
    NotAcknowledgeable,
)
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand

SHARED = ConsumerOptions(type="shared")


async def test_acks_of_one_turn_leave_in_one_command(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer("orders", "billing", **SHARED)
    for entry_id in range(5):
        broker.deliver(entry_id)
    for _ in range(4):
        consumer.ack(await consumer.receive())
    await until(lambda: len(broker.acked) == 4)
    assert broker.acked == [0, 1, 2, 3]
    assert len(broker.of_type(BaseCommand.ACK)) <= 2


async def test_a_cumulative_ack_covers_what_was_before(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer("orders", "billing")
    for entry_id in range(3):
        broker.deliver(entry_id)
    messages = [await consumer.receive() for _ in range(3)]
    consumer.ack(messages[0])
    consumer.ack_cumulative(messages[1])
    consumer.ack_cumulative(messages[2].id)
    await until(lambda: bool(broker.of_type(BaseCommand.ACK)))
    (ack,) = broker.of_type(BaseCommand.ACK)
    assert ack.ack.ack_type == api.CommandAck.Cumulative
    assert [message_id.entryId for message_id in ack.ack.message_id] == [2]


async def test_a_shared_subscription_has_no_order_to_acknowledge(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing", **SHARED)
    broker.deliver(0)
    with pytest.raises(NotAcknowledgeable):
        consumer.ack_cumulative(await consumer.receive())


async def test_a_confirmed_ack_waits_for_the_broker(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer("orders", "billing")
    broker.deliver(0)
    broker.deliver(1)
    await consumer.ack_confirmed(await consumer.receive())
    assert broker.acked == [0]
    await consumer.ack_confirmed(await consumer.receive(), cumulative=True)
    assert broker.of_type(BaseCommand.ACK)[-1].ack.ack_type == api.CommandAck.Cumulative


async def test_an_ack_that_was_not_confirmed_is_said_again(
    client: Client, broker: FakeBroker
) -> None:
    healthy = broker.answers[BaseCommand.ACK]
    consumer = await client.consumer("orders", "billing")
    broker.deliver(0)
    message = await consumer.receive()
    broker.on(BaseCommand.ACK, lambda session, _, __: session.drop())
    with pytest.raises(ConnectionLost):
        await consumer.ack_confirmed(message)
    broker.on(BaseCommand.ACK, healthy)
    await until(lambda: broker.acked == [0, 0])


async def test_a_batch_is_acknowledged_when_all_of_it_is(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing")
    broker.deliver(0, payload=batch_payload(b"a", b"b", b"c"))
    messages = [await consumer.receive() for _ in range(3)]
    assert [message.id.batch_index for message in messages] == [0, 1, 2]
    consumer.ack(messages[2])
    consumer.ack(messages[0])
    await asyncio.sleep(1)
    assert broker.acked == []
    consumer.ack(messages[1].id)
    await until(lambda: broker.acked == [0])


async def test_a_cumulative_ack_in_a_batch_covers_the_entries_before(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing")
    broker.deliver(7, payload=batch_payload(b"a", b"b"))
    first, second = [await consumer.receive() for _ in range(2)]
    consumer.ack_cumulative(first)
    await until(lambda: len(broker.of_type(BaseCommand.ACK)) == 1)
    consumer.ack_cumulative(second)
    await until(lambda: len(broker.of_type(BaseCommand.ACK)) == 2)
    acks = broker.of_type(BaseCommand.ACK)
    assert [ack.ack.message_id[0].entryId for ack in acks] == [6, 7]


async def test_messages_of_a_batch_that_are_acknowledged_do_not_come_again(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", receiver_queue_size=1)
    broker.deliver(0, payload=batch_payload(b"a", b"b", b"c", b"d"), ack_set=(0b1010,))
    messages = [await consumer.receive() for _ in range(2)]
    assert [message.data for message in messages] == [b"b", b"d"]
    for message in messages:
        consumer.ack(message)
    await until(lambda: broker.acked == [0])
    # The broker takes permits for the messages that are open, and gets no more than these back.
    assert broker.permits == 1 + 2


async def test_in_the_first_batch_of_a_ledger_nothing_before_it_is_known(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing")
    broker.deliver(0, payload=batch_payload(b"a", b"b"))
    consumer.ack_cumulative(await consumer.receive())
    await asyncio.sleep(1)
    assert not broker.of_type(BaseCommand.ACK)


async def test_a_stored_id_cannot_acknowledge_one_of_a_batch(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing")
    broker.deliver(7, payload=batch_payload(b"a", b"b"))
    stored = MessageId.from_bytes((await consumer.receive()).id.to_bytes())
    with pytest.raises(NotAcknowledgeable):
        consumer.ack(stored)
    consumer.ack_cumulative(stored)
    await until(lambda: bool(broker.of_type(BaseCommand.ACK)))
    assert broker.of_type(BaseCommand.ACK)[0].ack.message_id[0].entryId == 6


async def test_messages_of_a_batch_are_acknowledged_one_by_one_where_that_is_wanted(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing", batch_index_acks=True)
    broker.deliver(7, payload=batch_payload(b"a", b"b", b"c", b"d"))
    messages = [await consumer.receive() for _ in range(4)]
    consumer.ack(messages[1])
    consumer.ack(messages[3])
    await until(lambda: len(broker.of_type(BaseCommand.ACK)) == 1)
    consumer.ack(MessageId.from_bytes(messages[0].id.to_bytes()))
    await until(lambda: len(broker.of_type(BaseCommand.ACK)) == 2)
    consumer.ack_cumulative(messages[2])
    await until(lambda: len(broker.of_type(BaseCommand.ACK)) == 3)
    acks = [command.ack.message_id[0] for command in broker.of_type(BaseCommand.ACK)]
    assert [(each.entryId, list(each.ack_set)) for each in acks] == [
        (7, [0b0101]),
        (7, [0b1110]),
        (7, []),
    ]


async def test_stored_ids_of_a_batch_are_acknowledged_together(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing", batch_index_acks=True)
    broker.deliver(7, payload=batch_payload(b"a", b"b", b"c", b"d"))
    messages = [await consumer.receive() for _ in range(4)]
    for message in messages[:2]:
        consumer.ack(MessageId.from_bytes(message.id.to_bytes()))
    consumer.ack(messages[3])
    await until(lambda: bool(broker.of_type(BaseCommand.ACK)))
    (ack,) = broker.of_type(BaseCommand.ACK)
    assert [list(each.ack_set) for each in ack.ack.message_id] == [[0b0100]]


async def test_acks_leave_at_once_when_there_are_enough(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer("orders", "billing", ack_group_s=60, ack_group_max=3)
    for entry_id in range(4):
        broker.deliver(entry_id)
    messages = [await consumer.receive() for _ in range(4)]
    for message in messages[:2]:
        consumer.ack(message)
    await asyncio.sleep(1)
    assert broker.acked == []
    for message in messages[2:]:
        consumer.ack(message)
    await asyncio.sleep(1)
    assert broker.acked == [0, 1, 2, 3]


# ---- refusals


async def test_a_message_that_is_refused_again_waits_longer(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer(
        "orders", "s", type="shared", nack_delay_s=1, nack_multiplier=2, nack_delay_max_s=5
    )
    loop = asyncio.get_running_loop()
    waited: list[float] = []
    for count in (0, 1, 2, 3, 5000):
        broker.deliver(count, redelivery_count=count)
        consumer.nack(await consumer.receive())
        refused_s = loop.time()
        asked = len(waited)
        await until(
            lambda: len(broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)) > asked  # noqa: B023
        )
        waited.append(loop.time() - refused_s)
    assert waited == pytest.approx([1, 2, 4, 5, 5], abs=0.15)


async def test_what_is_not_acknowledged_in_time_is_asked_for_again(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", type="shared", ack_timeout_s=10)
    for entry_id in range(3):
        broker.deliver(entry_id)
    first, second = [await consumer.receive() for _ in range(2)]
    consumer.ack(second)
    await asyncio.sleep(9.9)
    assert not broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    await asyncio.sleep(1.2)
    (asked,) = broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    # The third was not received yet: its time has not begun.
    assert [each.entryId for each in asked.redeliverUnacknowledgedMessages.message_ids] == [
        first.id.entry_id
    ]


async def test_what_a_cumulative_ack_covers_is_not_asked_for_again(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", ack_timeout_s=10, nack_delay_s=10)
    for entry_id in range(2):
        broker.deliver(entry_id)
    broker.deliver(2, payload=batch_payload(b"a", b"b"))
    broker.deliver(3)
    messages = [await consumer.receive() for _ in range(5)]
    consumer.nack(messages[0])
    # The batch is acknowledged in part, so that it may have to come again.
    consumer.ack_cumulative(messages[2])
    await asyncio.sleep(12)
    (asked,) = broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    again = asked.redeliverUnacknowledgedMessages.message_ids
    assert [each.entryId for each in again] == [2, 3]


async def test_a_seek_into_a_batch_skips_what_is_before_although_the_broker_sends_all_of_it(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing", **SHARED)
    inside = MessageId(LEDGER, 1, 1, batch_size=3)
    for times, (sought, received) in enumerate(((inside, b"bc"), (EARLIEST, b"abc")), 1):
        await consumer.seek(sought)
        await until(lambda: consumer.is_connected)
        broker.deliver(1, payload=batch_payload(b"a", b"b", b"c"))
        messages = [await consumer.receive() for _ in received]
        assert b"".join(message.data for message in messages) == received
        await consumer.ack_confirmed(*messages)
        assert broker.acked == [1] * times


async def test_a_seek_that_failed_skips_nothing(client: Client, broker: FakeBroker) -> None:
    broker.on(
        BaseCommand.SEEK,
        lambda session, command, _: session.write(
            answers.encode_error(command.seek.request_id, api.MetadataError, "ill")
        ),
    )
    consumer = await client.consumer("orders", "billing")
    with pytest.raises(BrokerFailed):
        await consumer.seek(MessageId(LEDGER, 1, 1, batch_size=3))
    broker.deliver(1, payload=batch_payload(b"a", b"b", b"c"))
    assert (await consumer.receive()).data == b"a"
