"""Proves that acknowledgements of a consumer arrive together, once, and whole batches at a time,
and that refused messages are asked for when their time has come, once, and boundedly."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, batch_payload, until

from geminga import (
    Client,
    ConnectionLost,
    ConsumerOptions,
    NotAcknowledgeable,
    SubscriptionType,
)
from geminga.consumer import Nacks
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand

SHARED = ConsumerOptions(type=SubscriptionType.SHARED)


async def test_acks_of_one_turn_leave_in_one_command(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer("orders", "billing", SHARED)
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
    consumer.ack_cumulative(messages[2].message_id)
    await until(lambda: bool(broker.of_type(BaseCommand.ACK)))
    (ack,) = broker.of_type(BaseCommand.ACK)
    assert ack.ack.ack_type == api.CommandAck.Cumulative
    assert [message_id.entryId for message_id in ack.ack.message_id] == [2]


async def test_a_shared_subscription_has_no_order_to_acknowledge(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing", SHARED)
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
    assert [message.message_id.batch_index for message in messages] == [0, 1, 2]
    consumer.ack(messages[2])
    consumer.ack(messages[0])
    await asyncio.sleep(1)
    assert broker.acked == []
    consumer.ack(messages[1].message_id)
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
    consumer = await client.consumer("orders", "s", ConsumerOptions(receiver_queue_size=1))
    broker.deliver(0, payload=batch_payload(b"a", b"b", b"c", b"d"), ack_set=(0b1010,))
    messages = [await consumer.receive() for _ in range(2)]
    assert [message.payload for message in messages] == [b"b", b"d"]
    for message in messages:
        consumer.ack(message)
    await until(lambda: broker.acked == [0])
    assert broker.permits == 1 + 4


# ---- refusals


def test_each_refused_message_is_asked_for_in_its_time() -> None:
    nacks = Nacks()
    nacks.add((1, 0), 10.0)
    nacks.add((1, 1), 12.0)
    assert nacks.next_due_s == 10.0
    assert nacks.take_due(9.9) == []
    assert nacks.take_due(10.0) == [(1, 0)]
    assert nacks.next_due_s == 12.0
    assert nacks.take_due(99.0) == [(1, 1)]
    assert nacks.next_due_s is None


def test_refusing_again_changes_nothing() -> None:
    nacks = Nacks()
    nacks.add((1, 0), 10.0)
    nacks.add((1, 0), 20.0)
    assert nacks.take_due(10.0) == [(1, 0)]
    assert nacks.take_due(20.0) == []


def test_a_refusal_that_is_acknowledged_is_not_asked_for() -> None:
    nacks = Nacks()
    nacks.add((1, 0), 10.0)
    nacks.remove((1, 0))
    nacks.remove((1, 1))
    assert nacks.take_due(10.0) == []


def test_refusals_can_be_forgotten() -> None:
    nacks = Nacks()
    nacks.add((1, 0), 10.0)
    nacks.clear()
    assert nacks.next_due_s is None


def test_refusals_that_are_too_many_are_asked_for_at_once() -> None:
    nacks = Nacks(held_max=2)
    for entry_id in range(5):
        nacks.add((1, entry_id), 10.0)
    assert nacks.next_due_s == 0.0
    assert nacks.take_due(0.0) == [(1, 0), (1, 1), (1, 2)]
    assert nacks.next_due_s == 10.0
