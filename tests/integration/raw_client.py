"""A client that sends any command and any bytes, over a blocking socket.

It is for what the official client cannot or will not do: acknowledgements with a receipt, garbage,
every single command. It answers no PING and sends nothing again.
"""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from geminga_protocol.framing import FrameReader
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import encode_command, parse_command
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.send import encode_send

TIMEOUT_S = 60.0
FRAME_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES = 1 << 16
PROTOCOL_VERSION = 21

Ids = tuple[int, int]


class Answer(NamedTuple):
    """A command of the broker, with the payload that followed it."""

    command: api.BaseCommand
    payload: bytes


class ConnectionClosed(Exception):
    """The broker closed the connection."""


class Refused(AssertionError):
    """The broker answered with an error where something else was expected."""


class RawClient:
    """One connection. Every wait ends after ``TIMEOUT_S``, or the time given, with
    ``TimeoutError``."""

    def __init__(self, service_url: str) -> None:
        address = urlsplit(service_url)
        assert address.hostname is not None
        assert address.port is not None
        self._socket = socket.create_connection((address.hostname, address.port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameReader(FRAME_BYTES_MAX)
        self._answers: deque[Answer] = deque()
        self._last_request_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection without a command."""
        self._socket.close()

    # Bytes and frames

    def write(self, content: bytes) -> None:
        """Send these bytes.

        Raises ``ConnectionClosed``; if the broker has closed the connection, at the latest at the
        next call.
        """
        try:
            self._socket.sendall(content)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed from error

    def set_timeout(self, timeout_s: float) -> None:
        """Set how long every wait takes at most from now on."""
        self._socket.settimeout(timeout_s)

    def end_of_writing(self) -> None:
        """Shut down the sending side, and still receive. The broker may have closed the connection
        before."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise

    def send(self, command: api.BaseCommand) -> None:
        """Send one command."""
        self.write(encode_command(command))

    def receive(self) -> Answer:
        """The next command, of any type. Raises ``ConnectionClosed``."""
        while not self._answers:
            try:
                chunk = self._socket.recv(READ_BYTES)
            except ConnectionResetError as error:
                raise ConnectionClosed from error
            if not chunk:
                raise ConnectionClosed
            buffer, bounds = self._frames.feed(chunk)
            for start, end in bounds:
                command, payload_start = parse_command(buffer, start, end)
                self._answers.append(Answer(command, buffer[payload_start:end]))
        return self._answers.popleft()

    def expect(self, kind: api.BaseCommand.Type.ValueType) -> Answer:
        """The next command of this type; commands before it are dropped.

        Raises ``Refused`` if it is an error, ``ConnectionClosed``.
        """
        while True:
            answer = self.receive()
            if answer.command.type == kind:
                return answer
            if answer.command.type in (api.BaseCommand.ERROR, api.BaseCommand.SEND_ERROR):
                raise Refused(str(answer.command))

    def request_id(self) -> int:
        """A request id that this connection has not used yet."""
        self._last_request_id += 1
        return self._last_request_id

    # Commands that clients usually send

    def connect(self, **features: bool) -> api.CommandConnected:
        """CONNECT with these feature flags; returns the broker's CONNECTED."""
        self.write(connect_frame(**features))
        return self.expect(api.BaseCommand.CONNECTED).command.connected

    def ping(self) -> None:
        """PING, and wait for the PONG; commands before it are dropped."""
        self.send(api.BaseCommand(type=api.BaseCommand.PING, ping=api.CommandPing()))
        while self.receive().command.type != api.BaseCommand.PONG:
            pass

    def lookup(self, topic: str) -> None:
        """Look the topic up, which has the broker acquire its bundle."""
        lookup = api.CommandLookupTopic(topic=topic, request_id=self.request_id())
        self.send(api.BaseCommand(type=api.BaseCommand.LOOKUP, lookupTopic=lookup))
        answer = self.expect(api.BaseCommand.LOOKUP_RESPONSE).command.lookupTopicResponse
        assert answer.response == api.CommandLookupTopicResponse.Connect, answer

    def create_producer(self, topic: str, producer_id: int) -> None:
        """PRODUCER for a topic; the broker chooses its name."""
        self.lookup(topic)
        producer = api.CommandProducer(
            topic=topic, producer_id=producer_id, request_id=self.request_id()
        )
        self.send(api.BaseCommand(type=api.BaseCommand.PRODUCER, producer=producer))
        self.expect(api.BaseCommand.PRODUCER_SUCCESS)

    def publish(self, producer_id: int, sequence_id: int, body: bytes) -> Ids:
        """SEND one message; returns its ledger id and entry id."""
        self.write(send_frame(producer_id, sequence_id, body))
        receipt = self.expect(api.BaseCommand.SEND_RECEIPT).command.send_receipt
        assert receipt.sequence_id == sequence_id
        return receipt.message_id.ledgerId, receipt.message_id.entryId

    def subscribe(
        self,
        topic: str,
        subscription: str,
        consumer_id: int,
        kind: api.CommandSubscribe.SubType.ValueType = api.CommandSubscribe.Exclusive,
    ) -> None:
        """SUBSCRIBE durably, from the topic's first message."""
        self.lookup(topic)
        subscribe = api.CommandSubscribe(
            topic=topic,
            subscription=subscription,
            subType=kind,
            consumer_id=consumer_id,
            request_id=self.request_id(),
            initialPosition=api.CommandSubscribe.Earliest,
        )
        self.send(api.BaseCommand(type=api.BaseCommand.SUBSCRIBE, subscribe=subscribe))
        self.expect(api.BaseCommand.SUCCESS)

    def flow(self, consumer_id: int, permits: int) -> None:
        """FLOW: permits for so many messages."""
        flow = api.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
        self.send(api.BaseCommand(type=api.BaseCommand.FLOW, flow=flow))

    def acknowledge(
        self,
        consumer_id: int,
        message_ids: Sequence[api.MessageIdData],
        kind: api.CommandAck.AckType.ValueType = api.CommandAck.Individual,
    ) -> None:
        """ACK these messages, and wait for the receipt, which the broker sends when they are
        durable."""
        request_id = self.request_id()
        ack = api.CommandAck(
            consumer_id=consumer_id, ack_type=kind, message_id=message_ids, request_id=request_id
        )
        self.send(api.BaseCommand(type=api.BaseCommand.ACK, ack=ack))
        response = self.expect(api.BaseCommand.ACK_RESPONSE).command.ackResponse
        assert response.request_id == request_id
        if response.HasField("error"):
            raise Refused(str(response))


def connect_frame(**features: bool) -> bytes:
    """The frame with CONNECT and these feature flags, with which every connection begins."""
    connect = api.CommandConnect(client_version="raw", protocol_version=PROTOCOL_VERSION)
    if features:
        connect.feature_flags.MergeFrom(api.FeatureFlags(**features))
    return encode_command(api.BaseCommand(type=api.BaseCommand.CONNECT, connect=connect))


def send_frame(producer_id: int, sequence_id: int, body: bytes) -> bytes:
    """The whole frame of a SEND of one message, with its checksum."""
    metadata = api.MessageMetadata(
        producer_name="raw", sequence_id=sequence_id, publish_time=1_700_000_000_000
    )
    payload = encode_payload(metadata, body)
    return encode_send(producer_id, sequence_id, len(payload)) + payload
