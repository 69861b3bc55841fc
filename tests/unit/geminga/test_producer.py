"""Proves that messages are stored in order, none left out, whatever becomes of connections."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga.fake_broker import LEDGER, MAX_MESSAGE_BYTES, FakeBroker, Session, until
from tests.unit.geminga.outcomes import Outcomes

from geminga import AccessMode, Client, MessageId, Producer, ProducerOptions
from geminga.errors import (
    ClientError,
    Closed,
    MessageTooLarge,
    ProducerBusy,
    ProducerFenced,
    ProducerQueueFull,
    SendTimedOut,
    TopicTerminated,
)
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.payload import open_payload
from geminga_protocol.pulsar.send import encode_receipt

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
    options = ProducerOptions(
        name="cashier", properties={"app": "shop"}, access_mode=AccessMode.EXCLUSIVE
    )
    producer = await client.producer("orders", options)
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
    await producer.send(b"one", key="k", properties={"a": "b"}, event_time_ms=5, ordering_key=b"o")
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
    sequence_ids = [producer.send_nowait(b"%d" % number, outcomes) for number in range(100)]
    assert sequence_ids == list(range(100))
    await producer.flush()
    assert len(client_end.peer.writes) == writes_before + 1
    assert [message_id.entry_id for message_id in outcomes.ids] == list(range(100))


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
    other = await client.producer("orders", ProducerOptions(initial_sequence_id=99))
    await other.send(b"another")
    assert broker.stored[-1] == (100, b"another")


# ---- reconnecting


async def test_what_has_no_receipt_is_sent_again_in_order(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders", ProducerOptions(name="p"))
    outcomes = Outcomes()
    broker.on(BaseCommand.SEND, lambda _, command, payload: broker.keep(command, payload))
    for number in range(5):
        producer.send_nowait(b"%d" % number, outcomes)
    await until(lambda: len(broker.stored) == 5)
    broker.stored.clear()
    broker.on(BaseCommand.SEND, broker.store)
    broker.drop_connections()
    await until(lambda: not producer.is_connected)
    producer.send_nowait(b"5", outcomes)  # while nobody is there
    await producer.flush()
    assert broker.stored == [(number, b"%d" % number) for number in range(6)]
    assert [message_id.entry_id for message_id in outcomes.ids] == list(range(6))
    assert [c.producer.epoch for c in broker.of_type(BaseCommand.PRODUCER)] == [0, 1]


async def test_a_broker_that_is_away_for_a_while_fails_no_send(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    broker.kill()
    send = asyncio.create_task(producer.send(b"patient"))
    await asyncio.sleep(20)
    broker.start()
    assert await send == MessageId(LEDGER, 0)


async def test_attempts_become_rarer_while_the_broker_is_away(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    connects = broker._network.connects
    broker.kill()
    await until(lambda: not producer.is_connected)
    connects.clear()
    await asyncio.sleep(1)
    first_second = len(connects)
    await asyncio.sleep(30)
    assert 2 <= first_second <= 6
    assert 6 <= len(connects) - first_second <= 15


async def test_the_broker_may_close_the_producer_and_gets_it_back(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    broker.session.write(answers.encode_close_producer(producer.producer_id))
    await until(lambda: len(broker.of_type(BaseCommand.PRODUCER)) == 2)
    await producer.send(b"one")
    assert len(broker.sessions) == 1


async def test_a_closing_broker_may_name_the_next_one(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer("orders")
    other = FakeBroker(broker._network, "other")
    lookups = len(broker.of_type(BaseCommand.LOOKUP))
    broker.session.write(answers.encode_close_producer(producer.producer_id, broker_url=other.url))
    await until(lambda: len(other.of_type(BaseCommand.PRODUCER)) == 1)
    await producer.send(b"one")
    assert other.stored == [(0, b"one")]
    assert len(broker.of_type(BaseCommand.LOOKUP)) == lookups


async def test_a_late_receipt_confirms_nothing_twice(client: Client, broker: FakeBroker) -> None:
    def store_twice(session: Session, command: BaseCommand, payload: bytes) -> None:
        broker.store(session, command, payload)
        broker.store(session, command, payload)

    broker.on(BaseCommand.SEND, store_twice)
    producer = await client.producer("orders")
    assert await producer.send(b"one") == MessageId(LEDGER, 0)
    assert await producer.send(b"two") == MessageId(LEDGER, 2)


async def test_a_receipt_out_of_order_makes_everything_be_sent_again(
    client: Client, broker: FakeBroker
) -> None:
    def lose_the_first(_session: Session, _command: BaseCommand, _payload: bytes) -> None:
        broker.on(BaseCommand.SEND, broker.store)

    broker.on(BaseCommand.SEND, lose_the_first)
    producer = await client.producer("orders")
    outcomes = Outcomes()
    producer.send_nowait(b"lost", outcomes)
    producer.send_nowait(b"kept", outcomes)
    await producer.flush()
    assert broker.stored_bodies == [b"kept", b"lost", b"kept"]
    assert len(outcomes.ids) == 2
    assert len(broker.of_type(BaseCommand.CLOSE_PRODUCER)) == 1


async def test_a_checksum_error_makes_the_message_be_sent_again(
    client: Client, broker: FakeBroker
) -> None:
    def refuse_once(session: Session, command: BaseCommand, _payload: bytes) -> None:
        broker.on(BaseCommand.SEND, broker.store)
        session.write(
            answers.encode_send_error(
                command.send.producer_id, command.send.sequence_id, api.ChecksumError, "damaged"
            )
        )

    broker.on(BaseCommand.SEND, refuse_once)
    producer = await client.producer("orders")
    assert await producer.send(b"one") == MessageId(LEDGER, 0)


# ---- limits


async def test_a_full_queue_refuses_or_makes_wait(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.producer("orders", ProducerOptions(pending_messages_max=2))
    outcomes = Outcomes()
    producer.send_nowait(b"0", outcomes)
    producer.send_nowait(b"1", outcomes)
    with pytest.raises(ProducerQueueFull) as caught:
        producer.send_nowait(b"2", outcomes)
    assert caught.value.pending_messages == 2
    waiting = [asyncio.create_task(producer.send(b"%d" % number)) for number in (2, 3, 4)]
    await asyncio.sleep(0)
    assert producer.pending_messages == 2
    waiting[1].cancel()
    broker.on(BaseCommand.SEND, broker.store)
    broker.drop_connections()
    await waiting[0]
    await waiting[2]
    assert broker.stored_bodies == [b"0", b"1", b"2", b"4"]


async def test_pending_bytes_are_bounded_too(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.producer("orders", ProducerOptions(pending_bytes_max=1000))
    producer.send_nowait(bytes(2000), Outcomes())  # alone it always fits
    with pytest.raises(ProducerQueueFull):
        producer.send_nowait(b"", Outcomes())


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
    producer = await client.producer("orders", ProducerOptions(send_timeout_s=7))
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(SendTimedOut):
        await producer.send(b"lost")
    assert asyncio.get_running_loop().time() == pytest.approx(started_s + 7)
    assert producer.pending_messages == 0
    broker.on(BaseCommand.SEND, broker.store)
    await producer.send(b"fine")


async def test_messages_time_out_each_in_its_time(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.producer("orders", ProducerOptions(send_timeout_s=7))
    outcomes = Outcomes()
    producer.send_nowait(b"0", outcomes)
    await asyncio.sleep(3)
    producer.send_nowait(b"1", outcomes)
    await asyncio.sleep(4.1)
    assert len(outcomes.errors) == 1
    await producer.flush()
    assert len(outcomes.errors) == 2


# ---- ends


@pytest.mark.parametrize(
    ("error", "kind"),
    [(api.TopicTerminatedError, TopicTerminated), (api.ProducerFenced, ProducerFenced)],
)
async def test_some_errors_end_the_producer(
    client: Client,
    broker: FakeBroker,
    error: api.ServerError.ValueType,
    kind: type[ClientError],
) -> None:
    producer = await client.producer("orders")
    broker.on(BaseCommand.SEND)
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_error(command.producer.request_id, error, "no more")
        ),
    )
    outcomes = Outcomes()
    producer.send_nowait(b"0", outcomes)
    broker.session.write(answers.encode_close_producer(producer.producer_id))
    await producer.flush()
    assert [type(reason) for reason in outcomes.errors] == [kind]
    with pytest.raises(kind):
        await producer.send(b"1")


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


async def test_a_send_error_may_concern_one_message_alone(
    client: Client, broker: FakeBroker
) -> None:
    def refuse_the_first(session: Session, command: BaseCommand, _payload: bytes) -> None:
        broker.on(BaseCommand.SEND, broker.store)
        session.write(
            answers.encode_send_error(
                command.send.producer_id, command.send.sequence_id, api.NotAllowedError, "no"
            )
        )

    broker.on(BaseCommand.SEND, refuse_the_first)
    producer = await client.producer("orders")
    outcomes = Outcomes()
    producer.send_nowait(b"0", outcomes)
    producer.send_nowait(b"1", outcomes)
    await producer.flush()
    assert len(outcomes.errors) == len(outcomes.ids) == 1
    assert broker.stored_bodies == [b"1"]


async def test_an_error_out_of_order_makes_everything_be_sent_again(
    client: Client, broker: FakeBroker
) -> None:
    def refuse_the_next(session: Session, command: BaseCommand, _payload: bytes) -> None:
        broker.on(BaseCommand.SEND, broker.store)
        send = command.send
        session.write(
            answers.encode_send_error(
                send.producer_id, send.sequence_id + 1, api.NotAllowedError, "no"
            )
        )

    broker.on(BaseCommand.SEND, refuse_the_next)
    producer = await client.producer("orders")
    assert (await producer.send(b"0")).entry_id == 0


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


async def test_a_producer_that_cannot_be_is_refused_at_once(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_error(command.producer.request_id, api.ProducerBusy, "taken")
        ),
    )
    with pytest.raises(ProducerBusy):
        await client.producer("orders")
    assert len(broker.of_type(BaseCommand.PRODUCER)) == 1


async def test_a_first_attempt_may_be_repeated_for_a_while(
    client: Client, broker: FakeBroker
) -> None:
    healthy = broker.answers[BaseCommand.PRODUCER]

    def not_yet(session: Session, command: BaseCommand, _payload: bytes) -> None:
        broker.on(BaseCommand.PRODUCER, healthy)
        session.write(
            answers.encode_error(command.producer.request_id, api.ServiceNotReady, "soon")
        )

    broker.on(BaseCommand.PRODUCER, not_yet)
    producer = await client.producer("orders")
    await producer.send(b"0")


async def test_waiting_to_be_exclusive_has_no_time_out(client: Client, broker: FakeBroker) -> None:
    def wait(session: Session, command: BaseCommand, _payload: bytes) -> None:
        session.write(
            answers.encode_producer_success(command.producer.request_id, "p", is_ready=False)
        )

    broker.on(BaseCommand.PRODUCER, wait)
    options = ProducerOptions(access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    opening = asyncio.create_task(client.producer("orders", options))
    await asyncio.sleep(500)
    assert not opening.done()
    asked = broker.of_type(BaseCommand.PRODUCER)[-1].producer
    broker.session.write(answers.encode_producer_success(asked.request_id, "p", topic_epoch=4))
    producer = await opening
    await producer.send(b"mine alone")
    broker.drop_connections()
    await until(lambda: len(broker.of_type(BaseCommand.PRODUCER)) == 2)
    assert broker.of_type(BaseCommand.PRODUCER)[-1].producer.topic_epoch == 4


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


async def test_closing_does_not_wait_for_ever(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)
    broker.on(BaseCommand.CLOSE_PRODUCER)
    producer = await client.producer("orders")
    outcomes = Outcomes()
    producer.send_nowait(b"0", outcomes)
    started_s = asyncio.get_running_loop().time()
    await producer.close()
    assert asyncio.get_running_loop().time() <= started_s + 11
    assert [type(error) for error in outcomes.errors] == [Closed]


async def test_an_unanswered_producer_is_taken_back(client: Client, broker: FakeBroker) -> None:
    healthy = broker.answers[BaseCommand.PRODUCER]
    producer = await client.producer("orders")
    broker.on(BaseCommand.PRODUCER)
    broker.session.write(answers.encode_close_producer(producer.producer_id))
    await until(lambda: len(broker.of_type(BaseCommand.CLOSE_PRODUCER)) == 1)
    broker.on(BaseCommand.PRODUCER, healthy)
    await producer.send(b"0")


async def test_a_partitions_messages_know_their_partition(client: Client) -> None:
    producer: Producer = await client.producer("orders-partition-7")
    assert (await producer.send(b"0")).partition == 7


async def test_a_receipt_for_a_producer_that_is_gone_is_ignored(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    await producer.close()
    broker.session.write(encode_receipt(producer.producer_id, 0, 0, LEDGER, 0))
    other = await client.producer("orders")
    await other.send(b"0")
