"""Sends messages to one topic: gives them their metadata and numbers, waits where none fits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypedDict, TypeVar

from geminga._channels.producer_channel import ProducerChannel, ProducerChannelOptions
from geminga.errors import ClientError, Closed, MessageTooLarge, ProducerQueueFull
from geminga.messages import MessageId, from_proto
from geminga.schemas.schema import Schema
from geminga_protocol.pulsar.api_pb2 import MessageIdData, MessageMetadata
from geminga_protocol.pulsar.commands import key_values
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.frames import FRAME_OVERHEAD_BYTES
from geminga_protocol.pulsar.payload import encode_payload
from geminga_runtime.clock import Clock

ValueT = TypeVar("ValueT")

# Called once for each message: with its id, or with the error that came instead.
SendCallback = Callable[[MessageId | None, ClientError | None], None]

# What properties and keys may take beyond a message of the largest size: the frame's overhead,
# without what the command, the producer's name and the numbers need of it.
METADATA_BYTES_MAX = FRAME_OVERHEAD_BYTES - 1024


class ProducerOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.producer`` besides topic and schema.

    ``name``: made by the broker if there is none. ``properties``: shown in the topic's statistics.
    ``access_mode``: whether other producers may publish to the topic at the same time.
    ``initial_sequence_id``: one less than the first message's; without it the broker's last one.
    ``send_timeout_s``: a message without receipt after so long fails (``None``: never), which does
    not mean that it will not be stored. ``pending_messages_max``, ``pending_bytes_max``: how much
    may wait for receipts. ``close_timeout_s``: how long closing waits for receipts, and then for
    the broker.
    """

    name: str | None
    properties: Mapping[str, str] | None
    access_mode: AccessMode
    initial_sequence_id: int | None
    send_timeout_s: float | None
    pending_messages_max: int
    pending_bytes_max: int
    close_timeout_s: float


@dataclass(frozen=True, slots=True)
class ProducerSettings(ProducerChannelOptions):
    """``ProducerOptions`` with their defaults."""

    initial_sequence_id: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A message that waits for room among the pending ones, not numbered yet."""

    payload: bytes
    metadata: MessageMetadata
    callback: SendCallback


class Producer(Generic[ValueT]):
    """Made by ``Client.producer``; closed by ``close``, by ``async with``, or by the client.

    Messages are stored in the order of the calls. When the connection breaks, what has no receipt
    is sent again on the next one, in the same order with the same sequence ids: a message may be
    stored twice (unless the topic deduplicates), and none is left out.
    """

    def __init__(
        self,
        channel: ProducerChannel[SendCallback],
        schema: Schema[ValueT],
        settings: ProducerSettings,
        clock: Clock,
    ) -> None:
        self._channel = channel
        self._schema = schema
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._partition = channel.topic.partition_index
        self._next_sequence_id: int | None = None
        # None waits unless others are pending: the receipt of one of these makes room.
        self._waiting: deque[_Waiting] = deque()
        channel.on_settled = self._settled
        channel.on_room = self._submit_waiting
        channel.on_end = self._fail_waiting
        channel.on_close = self.close

    @property
    def topic(self) -> str:
        """The whole name of the topic."""
        return str(self._channel.topic)

    @property
    def name(self) -> str:
        """The producer's name, made by the broker if the options have none."""
        return self._channel.name

    @property
    def producer_id(self) -> int:
        """The producer's number, which no other producer or consumer of the client has."""
        return self._channel.id

    @property
    def last_sequence_id(self) -> int:
        """The sequence id of the last message sent; -1 before the first, where none is known."""
        if self._next_sequence_id is not None:
            return self._next_sequence_id - 1
        initial = self._settings.initial_sequence_id
        return self._channel.last_sequence_id if initial is None else initial

    @property
    def pending_messages(self) -> int:
        """How many messages wait for their receipts."""
        return self._channel.pending_sends

    @property
    def is_connected(self) -> bool:
        """Is a broker taking messages at this moment?"""
        return self._channel.is_connected

    async def send(
        self,
        value: ValueT,
        *,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        ordering_key: bytes | None = None,
        deliver_at_ms: int | None = None,
    ) -> MessageId:
        """Send a message and wait until it is stored; gives its id.

        Shared and Key_Shared subscriptions deliver it not before ``deliver_at_ms`` (Unix time).

        Waits for room when as many messages are pending as may. Raises ``MessageTooLarge``,
        ``SendTimedOut``, ``Closed``, or the ``BrokerRefused`` that ended the producer.
        """
        stored: asyncio.Future[MessageId] = self._loop.create_future()

        def callback(message_id: MessageId | None, error: ClientError | None) -> None:
            if stored.done():
                return
            if message_id is not None:
                stored.set_result(message_id)
            else:
                stored.set_exception(error or Closed(self._channel.title))

        payload = self._schema.encode(value)
        metadata = self._metadata(key, properties, event_time_ms, ordering_key, deliver_at_ms)
        self._check(payload, metadata)
        if not self._waiting and self._channel.has_room(len(payload)):
            self._submit(payload, metadata, callback)
            return await stored
        waiting = _Waiting(payload, metadata, callback)
        self._waiting.append(waiting)
        try:
            return await stored
        except asyncio.CancelledError:
            # Before it is numbered a message can be taken back, afterwards no more.
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._submit_waiting()
            raise

    def send_nowait(
        self,
        value: ValueT,
        callback: SendCallback,
        *,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        ordering_key: bytes | None = None,
        deliver_at_ms: int | None = None,
    ) -> int:
        """Send a message; ``callback(message_id, error)`` is called once, with one of them.

        Gives the message's sequence id. The callback runs on the loop and must not block; what it
        raises goes to the loop's exception handler. Raises
        ``ProducerQueueFull`` when as many messages are pending as may, ``MessageTooLarge``,
        ``Closed``, or the ``BrokerRefused`` that ended the producer.
        """
        payload = self._schema.encode(value)
        metadata = self._metadata(key, properties, event_time_ms, ordering_key, deliver_at_ms)
        self._check(payload, metadata)
        channel = self._channel
        if self._waiting or not channel.has_room(len(payload)):
            raise ProducerQueueFull(channel.pending_sends, channel.pending_bytes)
        return self._submit(payload, metadata, callback)

    async def flush(self) -> None:
        """Wait until nothing that was sent waits for its receipt, be it stored or failed."""
        await self._channel.flush()

    async def close(self) -> None:
        """Wait a while for the receipts of what was sent, then leave the broker.

        What has no receipt by then fails with ``Closed``. Closing twice is harmless.
        """
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _metadata(
        self,
        key: str | None,
        properties: Mapping[str, str] | None,
        event_time_ms: int | None,
        ordering_key: bytes | None,
        deliver_at_ms: int | None,
    ) -> MessageMetadata:
        return MessageMetadata(
            producer_name=self._channel.name,
            sequence_id=0,  # this and the time are set when the message's turn comes
            publish_time=0,
            partition_key=key,
            properties=key_values(properties),
            event_time=event_time_ms,
            deliver_at_time=deliver_at_ms,
            ordering_key=ordering_key,
        )

    def _check(self, payload: bytes, metadata: MessageMetadata) -> None:
        """Raise unless the producer is open and the broker takes as much."""
        self._channel.check_open()
        message_bytes_max = self._channel.max_message_bytes
        if len(payload) > message_bytes_max:
            raise MessageTooLarge(len(payload), message_bytes_max)
        message_bytes = len(payload) + metadata.ByteSize()
        message_bytes_max += METADATA_BYTES_MAX
        if message_bytes > message_bytes_max:
            raise MessageTooLarge(message_bytes, message_bytes_max)

    def _submit(self, payload: bytes, metadata: MessageMetadata, callback: SendCallback) -> int:
        """Number the message and send it; there is room for it."""
        sequence_id = self._next_sequence_id
        if sequence_id is None:
            sequence_id = self.last_sequence_id + 1
        self._next_sequence_id = sequence_id + 1
        metadata.sequence_id = sequence_id
        metadata.publish_time = self._clock.wall_ms()
        self._channel.send(encode_payload(metadata, payload), sequence_id, callback)
        return sequence_id

    def _settled(
        self,
        callback: SendCallback,
        message_id: MessageIdData | None,
        error: ClientError | None,
    ) -> None:
        """A message is stored, or is not as far as the client knows."""
        if message_id is None:
            callback(None, error)
        else:
            callback(from_proto(message_id, self._partition), None)

    def _submit_waiting(self) -> None:
        """There may be room now."""
        while self._waiting and self._channel.has_room(len(self._waiting[0].payload)):
            message = self._waiting.popleft()
            self._submit(message.payload, message.metadata, message.callback)

    def _fail_waiting(self, error: ClientError) -> None:
        while self._waiting:
            self._waiting.popleft().callback(None, error)
