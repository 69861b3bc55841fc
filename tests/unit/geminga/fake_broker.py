"""A broker in memory: answers as a healthy one would, until a test tells it otherwise.

It stores nothing and checks nothing; it remembers what it was told. ``on`` replaces the answer to
one type of command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tests.unit.geminga.fake_network import FakeNetwork, FakeTransport

from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand, MessageMetadata
from geminga_protocol.pulsar.commands import PONG, parse_command
from geminga_protocol.pulsar.frames import FrameReader
from geminga_protocol.pulsar.message import MessageEncoder
from geminga_protocol.pulsar.messages.payload import (
    encode_batch,
    encode_payload,
    open_payload,
    split_batch,
)
from geminga_protocol.pulsar.send import encode_receipt

LEDGER = 3
MAX_MESSAGE_BYTES = 100_000

# What to do with a command and the payload that came with it.
Answer = Callable[["Session", BaseCommand, bytes], None]


class Session(asyncio.Protocol):
    """One connection of a client, seen from the broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.transport: FakeTransport | None = None
        self.is_lost = False
        self._frames = FrameReader(1 << 24)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(FakeTransport, transport)
        self.broker.sessions.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_lost = True

    def data_received(self, data: bytes) -> None:
        buffer, bounds = self._frames.feed(data)
        for start, end in bounds:
            command, payload_start = parse_command(buffer, start, end)
            self.broker.received.append(command)
            answer = self.broker.answers.get(command.type)
            if answer is not None:
                answer(self, command, buffer[payload_start:end])

    def write(self, *frames: bytes) -> None:
        assert self.transport is not None
        self.transport.write(b"".join(frames))

    def drop(self) -> None:
        """Break the connection."""
        assert self.transport is not None
        self.transport.abort()


class FakeBroker:
    """Listens at ``pulsar://<host>:6650``. ``received`` holds every command, in order."""

    def __init__(self, network: FakeNetwork, host: str) -> None:
        self.url = f"pulsar://{host}:6650"
        self.sessions: list[Session] = []
        self.received: list[BaseCommand] = []
        self.stored: list[tuple[int, bytes]] = []
        self.payloads: list[bytes] = []
        self.owner_url = self.url
        self._network = network
        self._place = (host, 6650)
        self.answers: dict[int, Answer] = {
            BaseCommand.CONNECT: lambda session, _, __: session.write(
                answers.encode_connected(21, MAX_MESSAGE_BYTES)
            ),
            BaseCommand.PING: lambda session, _, __: session.write(PONG),
            BaseCommand.PARTITIONED_METADATA: lambda session, command, _: session.write(
                answers.encode_partitions(command.partitionMetadata.request_id, 0)
            ),
            BaseCommand.LOOKUP: lambda session, command, _: session.write(
                answers.encode_lookup(command.lookupTopic.request_id, broker_url=self.owner_url)
            ),
            BaseCommand.PRODUCER: lambda session, command, _: session.write(
                answers.encode_producer_success(
                    command.producer.request_id, command.producer.producer_name or "made-up"
                )
            ),
            BaseCommand.SEND: self.store,
            BaseCommand.SUBSCRIBE: lambda session, command, _: session.write(
                answers.encode_success(command.subscribe.request_id)
            ),
            BaseCommand.ACK: _confirm_acks,
            BaseCommand.SEEK: _seek,
            BaseCommand.UNSUBSCRIBE: lambda session, command, _: session.write(
                answers.encode_success(command.unsubscribe.request_id)
            ),
            BaseCommand.CLOSE_PRODUCER: lambda session, command, _: session.write(
                answers.encode_success(command.close_producer.request_id)
            ),
            BaseCommand.CLOSE_CONSUMER: lambda session, command, _: session.write(
                answers.encode_success(command.close_consumer.request_id)
            ),
            BaseCommand.GET_LAST_MESSAGE_ID: lambda session, command, _: session.write(
                answers.encode_last_message_id(
                    command.getLastMessageId.request_id, answers.message_id(LEDGER, 41)
                )
            ),
        }
        self.start()

    # ---- what tests tell it

    def on(self, command_type: BaseCommand.Type.ValueType, answer: Answer | None = None) -> None:
        """Answer commands of this type like that from now on; not at all without ``answer``."""
        if answer is None:
            self.answers.pop(command_type, None)
        else:
            self.answers[command_type] = answer

    def start(self) -> None:
        """Accept connections."""
        self._network.acceptors[self._place] = lambda: Session(self)

    def kill(self) -> None:
        """Accept none, and break all there are."""
        del self._network.acceptors[self._place]
        self.drop_connections()

    def drop_connections(self) -> None:
        for session in self.open_sessions:
            session.drop()

    # ---- what tests ask it

    @property
    def open_sessions(self) -> list[Session]:
        return [session for session in self.sessions if not session.is_lost]

    @property
    def session(self) -> Session:
        """The one open connection."""
        (session,) = self.open_sessions
        return session

    def of_type(self, command_type: BaseCommand.Type.ValueType) -> list[BaseCommand]:
        """The commands of this type that came, in order."""
        return [command for command in self.received if command.type == command_type]

    @property
    def stored_bodies(self) -> list[bytes]:
        return [body for _, body in self.stored]

    @property
    def permits(self) -> int:
        """How many permits were granted, by all consumers ever."""
        return sum(c.flow.messagePermits for c in self.of_type(BaseCommand.FLOW))

    @property
    def acked(self) -> list[int]:
        """The entry ids acknowledged one by one, in order."""
        return [
            message_id.entryId
            for command in self.of_type(BaseCommand.ACK)
            if command.ack.ack_type == api.CommandAck.Individual
            for message_id in command.ack.message_id
        ]

    # ---- what it does

    def store(self, session: Session, command: BaseCommand, payload: bytes) -> None:
        """Keep a payload and confirm it."""
        entry_id = len(self.stored)
        self.keep(command, payload)
        send = command.send
        session.write(encode_receipt(send.producer_id, send.sequence_id, 0, LEDGER, entry_id))

    def keep(self, command: BaseCommand, payload: bytes) -> None:
        """Keep a payload and the messages in it, and say nothing."""
        self.payloads.append(payload)
        metadata, body_start = open_payload(payload, 0, len(payload))
        body = payload[body_start:]
        if metadata.HasField("num_messages_in_batch") and not metadata.compression:
            singles = split_batch(body, metadata.num_messages_in_batch)
            self.stored += [(single.sequence_id, each) for single, each in singles]
        else:
            self.stored.append((command.send.sequence_id, body))

    def deliver(
        self,
        entry_id: int,
        body: bytes = b"",
        *,
        consumer_id: int = 0,
        ledger_id: int = LEDGER,
        payload: bytes | None = None,
        redelivery_count: int = 0,
        ack_set: tuple[int, ...] = (),
    ) -> None:
        """Send one entry to a consumer: a message with ``body``, or ``payload`` as it is."""
        if payload is None:
            payload = encode_payload(metadata(entry_id), body)
        header = MessageEncoder(consumer_id).header(
            ledger_id, entry_id, len(payload), redelivery_count, ack_set
        )
        self.session.write(header, payload)


def metadata(sequence_id: int = 0) -> MessageMetadata:
    return MessageMetadata(
        producer_name="p", sequence_id=sequence_id, publish_time=1_700_000_000_000
    )


def batch_payload(*bodies: bytes) -> bytes:
    """A batch, one message for each body."""
    batched = metadata()
    batched.num_messages_in_batch = len(bodies)
    singles = [(api.SingleMessageMetadata(payload_size=0), body) for body in bodies]
    return encode_payload(batched, encode_batch(singles))


def _confirm_acks(session: Session, command: BaseCommand, _payload: bytes) -> None:
    if command.ack.HasField("request_id"):
        session.write(answers.encode_ack_response(command.ack.consumer_id, command.ack.request_id))


def _seek(session: Session, command: BaseCommand, _payload: bytes) -> None:
    session.write(
        answers.encode_close_consumer(command.seek.consumer_id),
        answers.encode_success(command.seek.request_id),
    )


async def until(condition: Callable[[], bool]) -> None:
    """Let virtual time pass until the condition holds."""
    async with asyncio.timeout(600):
        while not condition():  # noqa: ASYNC110  # the time is virtual, the condition any
            await asyncio.sleep(0.01)
