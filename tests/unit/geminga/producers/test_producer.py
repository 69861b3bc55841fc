"""Proves that messages are stored in order, none left out, whatever becomes of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from tests.unit.geminga.fake_broker import LEDGER, MAX_MESSAGE_BYTES, FakeBroker, Session, until
from tests.unit.geminga.outcomes import Outcomes

from geminga import (
    AccessMode,
    Client,
    ClientError,
    Closed,
    MessageId,
    MessageTooLarge,
    Producer,
    ProducerFenced,
    ProducerQueueFull,
    SendTimedOut,
)
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.messages.payload import open_payload
from geminga_protocol.pulsar.send import encode_receipt
from geminga_simulation.event_loop.loop import SimulatedLoop

TOPIC = "persistent://public/default/orders"


async def test_a_send_gives_the_id_under_which_the_message_is_stored(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    assert await producer.send(b"one") == MessageId(LEDGER, 0)
    assert await producer.send(b"two") == MessageId(LEDGER, 1)
    assert broker.stored == [(0, b"one"), (1, b"two")]
    assert producer.last_sequence_id == 1


async def test_a_producer_says_who_it_is(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer(
        "orders", name="cashier", properties={"app": "shop"}, access_mode=AccessMode.EXCLUSIVE
    )
    asked = broker.of_type(BaseCommand.PRODUCER)[0].producer
    assert asked.topic == TOPIC
    assert asked.producer_name == "cashier"
    assert asked.user_provided_producer_name
    assert asked.producer_access_mode == api.Exclusive
    assert [(pair.key, pair.value) for pair in asked.metadata] == [("app", "shop")]
    assert producer.name == "cashier"


async def test_a_message_carries_what_is_said_about_it(client: Client, broker: FakeBroker) -> None:
    payloads: list[bytes] = []

    def keep(session: Session, command: BaseCommand, payload: bytes) -> None:
        payloads.append(payload)
        broker.store(session, command, payload)

    broker.on(BaseCommand.SEND, keep)
    producer = await client.producer("orders")
    await producer.send(b"one", key="k", properties={"a": "b"}, event_time=5, ordering_key=b"o")
    metadata, body_start = open_payload(payloads[0], 0, len(payloads[0]))
    assert payloads[0][body_start:] == b"one"
    assert metadata.producer_name == producer.name == "made-up"
    assert metadata.partition_key == "k"
    assert metadata.ordering_key == b"o"
    assert metadata.event_time == 5
    assert metadata.publish_time >= 1_000_000  # the virtual clock's
    assert {pair.key: pair.value for pair in metadata.properties} == {"a": "b"}


async def test_messages_of_one_turn_leave_in_one_piece(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer("orders")
    outcomes = Outcomes()
    client_end = broker.session.transport
    assert client_end is not None
    assert client_end.peer is not None
    writes_before = len(client_end.peer.writes)
    for number in range(100):
        producer.send_nowait(b"%d" % number, outcomes)
    await producer.flush()
    assert len(client_end.peer.writes) == writes_before + 1
    assert outcomes.ids == [MessageId(LEDGER, 0, index) for index in range(100)]
    assert producer.last_sequence_id == 99


async def test_numbering_goes_on_where_the_broker_knows_it_ended(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_producer_success(command.producer.request_id, "p", last_sequence_id=41)
        ),
    )
    producer = await client.producer("orders")
    await producer.send(b"next")
    assert broker.stored == [(42, b"next")]
    other = await client.producer("orders", initial_sequence_id=99)
    await other.send(b"another")
    assert broker.stored[-1] == (100, b"another")


# ---- limits


async def test_a_full_queue_refuses_or_makes_wait(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.producer("orders", pending_messages_max=2)
    outcomes = Outcomes()
    producer.send_nowait(b"0", outcomes)
    producer.send_nowait(b"1", outcomes)
    with pytest.raises(ProducerQueueFull) as caught:
        producer.send_nowait(b"2", outcomes)
    assert caught.value.pending_messages == 2
    waiting = [asyncio.create_task(producer.send(b"%d" % number)) for number in (2, 3, 4)]
    await asyncio.sleep(0)
    assert producer.pending_messages == 2
    await asyncio.sleep(0.01)
    waiting[1].cancel()
    broker.on(BaseCommand.SEND, broker.store)
    broker.drop_connections()
    await waiting[0]
    await waiting[2]
    assert broker.stored_bodies == [b"0", b"1", b"2", b"4"]


async def test_a_message_larger_than_the_broker_takes_is_refused_here(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    await producer.send(bytes(MAX_MESSAGE_BYTES))
    with pytest.raises(MessageTooLarge):
        await producer.send(bytes(MAX_MESSAGE_BYTES + 1))
    with pytest.raises(MessageTooLarge):
        await producer.send(bytes(MAX_MESSAGE_BYTES), properties={"p": "x" * 10_000})
    assert len(broker.stored) == 1


async def test_a_message_without_receipt_times_out(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.producer("orders", send_timeout_s=7)
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(SendTimedOut):
        await producer.send(b"lost")
    assert asyncio.get_running_loop().time() == pytest.approx(started_s + 7)
    assert producer.pending_messages == 0
    broker.on(BaseCommand.SEND, broker.store)
    await producer.send(b"fine")


async def test_a_send_without_a_connection_waits_for_one_until_its_deadline(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders", send_timeout_s=7)
    broker.kill()
    await until(lambda: not producer.is_connected)
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(SendTimedOut):
        await producer.send(b"too early")
    assert asyncio.get_running_loop().time() == pytest.approx(started_s + 7)
    sending = asyncio.create_task(producer.send(b"in time"))
    await asyncio.sleep(1)
    broker.start()
    await sending
    assert broker.stored_bodies == [b"in time"]


async def test_sending_makes_no_task_and_no_future_for_a_message(
    client: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await client.producer("orders")
    loop = asyncio.get_running_loop()
    made: list[str] = []
    for name in ("create_future", "create_task"):
        make = getattr(loop, name)

        def noted(*args: object, make: Callable[..., object] = make, **named: object) -> object:
            made.append(make.__name__)
            return make(*args, **named)

        monkeypatch.setattr(loop, name, noted)
    for number in range(500):
        producer.send_nowait(b"%d" % number)
        await producer.ready()
    assert made == []
    await producer.flush()
    assert len(broker.stored) == 500


async def test_receipts_that_came_while_the_loop_was_blocked_count(
    client: Client, broker: FakeBroker
) -> None:
    """As aiokafka#847: timers run before what came meanwhile is read."""
    loop = cast(SimulatedLoop, asyncio.get_running_loop())

    def store_late(session: Session, command: BaseCommand, payload: bytes) -> None:
        loop.call_later(30.5, broker.store, session, command, payload)
        loop.pause(loop.main, loop.time() + 40)

    broker.on(BaseCommand.SEND, store_late)
    producer = await client.producer("orders")
    assert await producer.send(b"kept") == MessageId(LEDGER, 0)
    assert len(broker.sessions) == 1


# ---- ends


async def test_a_send_error_may_end_the_producer(client: Client, broker: FakeBroker) -> None:
    broker.on(
        BaseCommand.SEND,
        lambda session, command, _: session.write(
            answers.encode_send_error(
                command.send.producer_id, command.send.sequence_id, api.ProducerFenced, "fenced"
            )
        ),
    )
    producer = await client.producer("orders")
    with pytest.raises(ProducerFenced):
        await producer.send(b"0")
    with pytest.raises(ProducerFenced):
        await producer.send(b"1")


async def test_a_send_that_is_given_up_while_pending_is_stored_all_the_same(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND, lambda _, command, payload: broker.keep(command, payload))
    producer = await client.producer("orders")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await producer.send(b"0")
    assert broker.stored_bodies == [b"0"]
    broker.session.write(encode_receipt(producer.producer_id, 0, 0, LEDGER, 0))
    await producer.flush()


async def test_closing_waits_for_receipts_and_tells_the_broker(
    client: Client, broker: FakeBroker
) -> None:
    outcomes = Outcomes()
    async with await client.producer("orders") as producer:
        producer.send_nowait(b"0", outcomes)
    assert len(outcomes.ids) == 1
    assert len(broker.of_type(BaseCommand.CLOSE_PRODUCER)) == 1
    with pytest.raises(Closed):
        await producer.send(b"1")
    await producer.close()


async def test_a_partitions_messages_know_their_partition(client: Client) -> None:
    producer: Producer[bytes] = await client.producer("orders-partition-7")
    assert (await producer.send(b"0")).partition == 7


# ---- callbacks


def broken(_: MessageId | None, __: ClientError | None) -> None:
    raise ZeroDivisionError


@pytest.fixture
async def raised() -> list[object]:
    """What the loop's exception handler was told of."""
    told: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    return told


async def test_a_callback_that_raises_harms_no_other_message(
    client: Client, broker: FakeBroker, raised: list[object]
) -> None:
    outcomes = Outcomes()
    producer = await client.producer("orders")
    producer.send_nowait(b"0", broken)
    producer.send_nowait(b"1", outcomes)
    await producer.flush()
    assert outcomes.ids == [MessageId(LEDGER, 0, 1)]
    assert len(broker.sessions) == 1, "the connection was kept"
    assert [type(error) for error in raised] == [ZeroDivisionError]


async def test_messages_time_out_after_a_callback_that_raised(
    client: Client, broker: FakeBroker, raised: list[object]
) -> None:
    broker.on(BaseCommand.SEND)
    outcomes = Outcomes()
    producer = await client.producer("orders")
    producer.send_nowait(b"0", broken)
    producer.send_nowait(b"1", outcomes)
    await asyncio.sleep(31)
    producer.send_nowait(b"2", outcomes)
    await asyncio.sleep(31)
    assert [type(error) for error in outcomes.errors] == [SendTimedOut, SendTimedOut]
    assert len(raised) == 1


async def test_closing_tells_all_others_when_a_callback_raises(
    client: Client, broker: FakeBroker, raised: list[object]
) -> None:
    broker.on(BaseCommand.SEND)
    outcomes = Outcomes()
    producer = await client.producer("orders")
    producer.send_nowait(b"0", broken)
    producer.send_nowait(b"1", outcomes)
    flushing = asyncio.create_task(producer.flush())
    await producer.close()
    await flushing
    assert [type(error) for error in outcomes.errors] == [Closed]
    assert len(raised) == 1
