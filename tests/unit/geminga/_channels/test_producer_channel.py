"""Proves that payloads are stored as they are, in order, none left out, whatever becomes of
connections."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.geminga.fake_broker import (
    LEDGER,
    FakeBroker,
    Session,
    batch_payload,
    metadata,
    until,
)

from geminga import (
    ClientError,
    Closed,
    NotAllowed,
    ProducerBusy,
    ProducerFenced,
    SendTimedOut,
    TopicTerminated,
)
from geminga._channels.producer_channel import ProducerChannel, ProducerChannelOptions
from geminga._channels.registry import Channels
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand, MessageIdData
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.send import encode_receipt
from geminga_protocol.pulsar.topics.topic_names import TopicName

TOPIC = TopicName.parse("orders")


class Sender:
    """Owns a channel; the context of a payload is its sequence id."""

    def __init__(self, channels: Channels, options: ProducerChannelOptions | None = None) -> None:
        options = options or ProducerChannelOptions()
        self.channel: ProducerChannel[int] = ProducerChannel(channels, TOPIC, options)
        self.channel.on_settled = self._settled
        self.stored: dict[int, int] = {}
        self.errors: dict[int, ClientError] = {}
        self.next_id = 0

    def _settled(
        self, sequence_id: int, message_id: MessageIdData | None, error: ClientError | None
    ) -> None:
        assert (message_id is None) is not (error is None)
        assert sequence_id not in self.stored.keys() | self.errors.keys(), "told twice"
        if message_id is not None:
            self.stored[sequence_id] = message_id.entryId
        elif error is not None:
            self.errors[sequence_id] = error

    def send(self, body: bytes) -> None:
        payload = encode_payload(metadata(self.next_id), body)
        self.channel.send(payload, self.next_id, self.next_id)
        self.next_id += 1


async def opened(channels: Channels, options: ProducerChannelOptions | None = None) -> Sender:
    sender = Sender(channels, options)
    await sender.channel.open()
    return sender


@pytest.fixture
async def sender(channels: Channels) -> Sender:
    return await opened(channels)


def refuse_the_first_send(
    broker: FakeBroker, error: api.ServerError.ValueType, *, ahead: int = 0
) -> None:
    """Answer a SEND with an error, for it or for so many after it; store those that follow."""

    def refuse(session: Session, command: BaseCommand, _payload: bytes) -> None:
        broker.on(BaseCommand.SEND, broker.store)
        send = command.send
        session.write(
            answers.encode_send_error(send.producer_id, send.sequence_id + ahead, error, "no")
        )

    broker.on(BaseCommand.SEND, refuse)


# ---- what is sent


async def test_a_payload_is_sent_as_it_is(channels: Channels, broker: FakeBroker) -> None:
    sent: list[tuple[api.CommandSend, bytes]] = []

    def keep(session: Session, command: BaseCommand, payload: bytes) -> None:
        sent.append((command.send, payload))
        broker.store(session, command, payload)

    broker.on(BaseCommand.SEND, keep)
    sender = await opened(channels)
    batch = batch_payload(b"a", b"b", b"c")
    sender.channel.send(batch, 7, 7, num_messages=3, highest_sequence_id=9)
    await sender.channel.flush()
    ((command, payload),) = sent
    assert payload == batch
    assert (command.sequence_id, command.highest_sequence_id, command.num_messages) == (7, 9, 3)
    assert sender.stored == {7: 0}


@pytest.mark.parametrize("size", [0, 100, 100_000])
async def test_a_payload_in_two_pieces_is_one_frame_and_so_it_is_when_it_is_sent_again(
    channels: Channels, broker: FakeBroker, size: int
) -> None:
    came: list[bytes] = []
    broker.on(BaseCommand.SEND, lambda _, __, payload: came.append(payload))
    sender = await opened(channels)
    batch = batch_payload(b"a" * size, b"b")
    sender.channel.send(memoryview(batch)[60:], 0, 0, front=batch[:60])
    await until(lambda: len(came) == 1)
    broker.drop_connections()
    await until(lambda: len(came) == 2)
    assert came == [batch, batch]


async def test_the_broker_tells_name_and_last_sequence_id(
    channels: Channels, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_producer_success(command.producer.request_id, "p", last_sequence_id=41)
        ),
    )
    sender = await opened(channels)
    assert (sender.channel.name, sender.channel.last_sequence_id) == ("p", 41)
    broker.drop_connections()
    await until(lambda: not sender.channel.is_connected)
    await until(lambda: sender.channel.is_connected)
    first, again = broker.of_type(BaseCommand.PRODUCER)
    assert (first.producer.producer_name, again.producer.producer_name) == ("", "p")
    assert not again.producer.user_provided_producer_name


# ---- reconnecting


async def test_what_has_no_receipt_is_sent_again_in_order(
    channels: Channels, broker: FakeBroker
) -> None:
    sender = await opened(channels, ProducerChannelOptions(name="p"))
    broker.on(BaseCommand.SEND, lambda _, command, payload: broker.keep(command, payload))
    for number in range(5):
        sender.send(b"%d" % number)
    await until(lambda: len(broker.stored) == 5)
    broker.stored.clear()
    broker.on(BaseCommand.SEND, broker.store)
    broker.drop_connections()
    await until(lambda: not sender.channel.is_connected)
    sender.send(b"5")  # while there is no broker
    await sender.channel.flush()
    assert broker.stored == [(number, b"%d" % number) for number in range(6)]
    assert sender.stored == {number: number for number in range(6)}
    assert [c.producer.epoch for c in broker.of_type(BaseCommand.PRODUCER)] == [0, 1]


async def test_a_broker_that_is_away_for_a_while_fails_nothing(
    sender: Sender, broker: FakeBroker
) -> None:
    broker.kill()
    sender.send(b"patient")
    await asyncio.sleep(20)
    broker.start()
    await sender.channel.flush()
    assert sender.stored == {0: 0}


async def test_attempts_become_rarer_while_the_broker_is_away(
    sender: Sender, broker: FakeBroker
) -> None:
    connects = broker._network.connects
    broker.kill()
    await until(lambda: not sender.channel.is_connected)
    connects.clear()
    await asyncio.sleep(1)
    first_second = len(connects)
    await asyncio.sleep(30)
    assert 2 <= first_second <= 6
    assert 6 <= len(connects) - first_second <= 15


async def test_the_broker_may_close_the_producer_and_gets_it_back(
    sender: Sender, broker: FakeBroker
) -> None:
    broker.session.write(answers.encode_close_producer(sender.channel.id))
    await until(lambda: len(broker.of_type(BaseCommand.PRODUCER)) == 2)
    sender.send(b"one")
    await sender.channel.flush()
    assert len(broker.sessions) == 1


async def test_a_closing_broker_may_name_the_next_one(sender: Sender, broker: FakeBroker) -> None:
    other = FakeBroker(broker._network, "other")
    lookups = len(broker.of_type(BaseCommand.LOOKUP))
    broker.session.write(answers.encode_close_producer(sender.channel.id, broker_url=other.url))
    await until(lambda: len(other.of_type(BaseCommand.PRODUCER)) == 1)
    sender.send(b"one")
    await sender.channel.flush()
    assert other.stored == [(0, b"one")]
    assert len(broker.of_type(BaseCommand.LOOKUP)) == lookups


async def test_a_late_receipt_confirms_nothing_twice(sender: Sender, broker: FakeBroker) -> None:
    def store_twice(session: Session, command: BaseCommand, payload: bytes) -> None:
        broker.store(session, command, payload)
        broker.store(session, command, payload)

    broker.on(BaseCommand.SEND, store_twice)
    for body in (b"one", b"two"):
        sender.send(body)
        await sender.channel.flush()
    assert sender.stored == {0: 0, 1: 2}


async def test_a_receipt_out_of_order_makes_everything_be_sent_again(
    sender: Sender, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def lose_the_first(_session: Session, _command: BaseCommand, _payload: bytes) -> None:
        broker.on(BaseCommand.SEND, broker.store)

    broker.on(BaseCommand.SEND, lose_the_first)
    sender.send(b"lost")
    sender.send(b"kept")
    await sender.channel.flush()
    assert broker.stored_bodies == [b"kept", b"lost", b"kept"]
    assert len(sender.stored) == 2
    assert len(broker.of_type(BaseCommand.CLOSE_PRODUCER)) == 1
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == [
        "sending again"
    ]


async def test_a_checksum_error_makes_the_payload_be_sent_again(
    sender: Sender, broker: FakeBroker
) -> None:
    refuse_the_first_send(broker, api.ChecksumError)
    sender.send(b"one")
    await sender.channel.flush()
    assert sender.stored == {0: 0}


# ---- limits


async def test_room_is_made_by_receipts(channels: Channels, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)
    sender = await opened(channels, ProducerChannelOptions(pending_messages_max=2))
    room: list[int] = []
    sender.channel.on_room = lambda: room.append(len(sender.channel.pending.sends))
    sender.send(b"0")
    sender.send(b"1")
    assert not sender.channel.pending.has_room(0)
    assert sender.channel.pending.payload_bytes > 2
    broker.session.write(encode_receipt(sender.channel.id, 0, 0, LEDGER, 0))
    await until(lambda: room == [1])
    assert sender.channel.pending.has_room(0)


async def test_what_its_owner_sends_into_the_room_is_flushed_too(
    channels: Channels, broker: FakeBroker
) -> None:
    sender = await opened(channels, ProducerChannelOptions(pending_messages_max=1))

    def send_another() -> None:
        if sender.next_id < 3:
            sender.send(b"more")

    sender.channel.on_room = send_another
    sender.send(b"first")
    await sender.channel.flush()
    assert broker.stored_bodies == [b"first", b"more", b"more"]


async def test_a_payload_without_receipt_times_out(channels: Channels, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)
    sender = await opened(channels, ProducerChannelOptions(send_timeout_s=7))
    sender.send(b"0")
    await asyncio.sleep(3)
    sender.send(b"1")
    await asyncio.sleep(3.9)
    assert not sender.errors
    await asyncio.sleep(0.2)
    assert [type(error) for error in sender.errors.values()] == [SendTimedOut]
    await sender.channel.flush()
    assert list(sender.errors) == [0, 1]
    assert len(sender.channel.pending.sends) == sender.channel.pending.payload_bytes == 0
    broker.on(BaseCommand.SEND, broker.store)
    sender.send(b"fine")
    await sender.channel.flush()
    assert list(sender.stored) == [2]


# ---- ends


@pytest.mark.parametrize(
    ("error", "kind"),
    [(api.TopicTerminatedError, TopicTerminated), (api.ProducerFenced, ProducerFenced)],
)
async def test_some_errors_end_the_producer_when_it_comes_back(
    sender: Sender, broker: FakeBroker, error: api.ServerError.ValueType, kind: type[ClientError]
) -> None:
    broker.on(BaseCommand.SEND)
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_error(command.producer.request_id, error, "no more")
        ),
    )
    sender.send(b"0")
    broker.session.write(answers.encode_close_producer(sender.channel.id))
    await sender.channel.flush()
    assert [type(reason) for reason in sender.errors.values()] == [kind]
    with pytest.raises(kind):
        sender.channel.check_open()


async def test_a_send_error_may_end_the_producer(sender: Sender, broker: FakeBroker) -> None:
    refuse_the_first_send(broker, api.ProducerFenced)
    sender.send(b"0")
    await sender.channel.flush()
    assert isinstance(sender.errors[0], ProducerFenced)
    assert isinstance(sender.channel.error, ProducerFenced)


async def test_a_send_error_may_concern_one_payload_alone(
    sender: Sender, broker: FakeBroker
) -> None:
    refuse_the_first_send(broker, api.NotAllowedError)
    sender.send(b"0")
    sender.send(b"1")
    await sender.channel.flush()
    assert (list(sender.errors), list(sender.stored)) == ([0], [1])
    assert broker.stored_bodies == [b"1"]


async def test_what_is_refused_before_those_in_front_are_stored_is_told_in_its_turn(
    sender: Sender, broker: FakeBroker
) -> None:
    """Brokers refuse at once, while what came before is on its way to bookies: to send all again
    would never end, and store the ones before it each time."""
    came: list[api.CommandSend] = []
    broker.on(BaseCommand.SEND, lambda _, command, __: came.append(command.send))
    for body in (b"0", b"1", b"2"):
        sender.send(body)
    await until(lambda: len(came) == 3)
    broker.session.write(
        answers.encode_send_error(came[1].producer_id, 1, api.NotAllowedError, "no")
    )
    broker.drop_connections()
    await until(lambda: len(came) == 5)
    assert [each.sequence_id for each in came[3:]] == [0, 2]
    assert not sender.errors
    broker.session.write(encode_receipt(came[0].producer_id, 0, 0, LEDGER, 0))
    await until(lambda: list(sender.stored) == [0])
    assert isinstance(sender.errors[1], NotAllowed)
    broker.session.write(encode_receipt(came[0].producer_id, 2, 0, LEDGER, 1))
    await sender.channel.flush()
    assert list(sender.stored) == [0, 2]


async def test_a_batch_is_refused_under_the_number_of_its_last_message(
    channels: Channels, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.SEND,
        lambda session, command, _: session.write(
            answers.encode_send_error(
                command.send.producer_id,
                command.send.highest_sequence_id,
                api.NotAllowedError,
                "no",
            )
        ),
    )
    sender = await opened(channels)
    batch = batch_payload(b"a", b"b", b"c")
    sender.channel.send(batch, 7, 7, num_messages=3, highest_sequence_id=9)
    await sender.channel.flush()
    assert isinstance(sender.errors[7], NotAllowed)


async def test_an_error_out_of_order_makes_everything_be_sent_again(
    sender: Sender, broker: FakeBroker
) -> None:
    refuse_the_first_send(broker, api.NotAllowedError, ahead=1)
    sender.send(b"0")
    await sender.channel.flush()
    assert sender.stored == {0: 0}


async def test_a_producer_that_cannot_be_is_refused_at_once(
    channels: Channels, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_error(command.producer.request_id, api.ProducerBusy, "taken")
        ),
    )
    with pytest.raises(ProducerBusy):
        await opened(channels)
    assert len(broker.of_type(BaseCommand.PRODUCER)) == 1


async def test_waiting_to_be_exclusive_has_no_time_out(
    channels: Channels, broker: FakeBroker
) -> None:
    def wait(session: Session, command: BaseCommand, _payload: bytes) -> None:
        session.write(
            answers.encode_producer_success(command.producer.request_id, "p", is_ready=False)
        )

    broker.on(BaseCommand.PRODUCER, wait)
    options = ProducerChannelOptions(access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    opening = asyncio.create_task(opened(channels, options))
    await asyncio.sleep(500)
    assert not opening.done()
    asked = broker.of_type(BaseCommand.PRODUCER)[-1].producer
    assert asked.producer_access_mode == api.WaitForExclusive
    broker.session.write(answers.encode_producer_success(asked.request_id, "p", topic_epoch=4))
    sender = await opening
    broker.drop_connections()
    await until(lambda: len(broker.of_type(BaseCommand.PRODUCER)) == 2)
    assert broker.of_type(BaseCommand.PRODUCER)[-1].producer.topic_epoch == 4
    assert sender.channel.error is None


async def test_closing_waits_for_receipts_and_tells_the_broker(
    sender: Sender, broker: FakeBroker
) -> None:
    sender.send(b"0")
    await sender.channel.close()
    assert sender.stored == {0: 0}
    assert len(broker.of_type(BaseCommand.CLOSE_PRODUCER)) == 1
    with pytest.raises(Closed):
        sender.channel.check_open()
    await sender.channel.close()


async def test_closing_does_not_wait_for_ever(sender: Sender, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEND)
    broker.on(BaseCommand.CLOSE_PRODUCER)
    sender.send(b"0")
    started_s = asyncio.get_running_loop().time()
    await sender.channel.close()
    assert asyncio.get_running_loop().time() <= started_s + 11
    assert [type(error) for error in sender.errors.values()] == [Closed]


async def test_a_receipt_for_a_producer_that_is_gone_is_ignored(
    sender: Sender, channels: Channels, broker: FakeBroker
) -> None:
    await sender.channel.close()
    broker.session.write(encode_receipt(sender.channel.id, 0, 0, LEDGER, 0))
    other = await opened(channels)
    other.send(b"0")
    await other.channel.flush()
    assert other.stored == {0: 0}
