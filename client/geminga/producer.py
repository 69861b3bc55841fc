"""Sends messages to one topic, each answered by a receipt, in order, across reconnections."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from geminga._transport.connection import Connection
from geminga.attachment import Attachment
from geminga.errors import (
    ClientError,
    Closed,
    MessageTooLarge,
    ProducerQueueFull,
    RequestTimedOut,
    SendTimedOut,
    refusal,
)
from geminga.message_ids import MessageId
from geminga.pending_sends import PendingSend, PendingSends, ReceiptOutOfOrder, SendCallback
from geminga.properties import key_values
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.frames import FRAME_OVERHEAD_BYTES, MAX_MESSAGE_BYTES_DEFAULT
from geminga_protocol.pulsar.payload import encode_payload
from geminga_protocol.pulsar.send import encode_send
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

# What properties and keys may take beyond a message of the largest size: the frame's overhead,
# without what the command, the producer's name and the numbers need of it.
METADATA_BYTES_MAX = FRAME_OVERHEAD_BYTES - 1024


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """What a producer is to be like.

    ``name`` is made by the broker if it is ``None``; ``initial_sequence_id`` is one less than the
    first message's, and taken from the broker if it is ``None``. A message without receipt after
    ``send_timeout_s`` fails (``None``: never), which does not mean that it will not be stored.
    """

    name: str | None = None
    properties: Mapping[str, str] | None = None
    access_mode: AccessMode = AccessMode.SHARED
    initial_sequence_id: int | None = None
    send_timeout_s: float | None = 30.0
    # As upstream's Java client: enough to keep a broker busy over a distance.
    pending_messages_max: int = 1000
    # For messages so large that a thousand of them would be too much.
    pending_bytes_max: int = 64 * 1024 * 1024
    # How long closing waits for the receipts of what was sent.
    close_timeout_s: float = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Outgoing:
    """A message that waits for room among the pending ones, or is on its way there."""

    payload: bytes
    metadata: api.MessageMetadata
    callback: SendCallback


class Producer:
    """Made by ``Client.producer``; closed by ``close``, by ``async with``, or by the client.

    Messages are stored in the order of the calls. When the connection breaks, what has no receipt
    is sent again on the next one, in the same order with the same sequence ids: a message may be
    stored twice (unless the topic deduplicates), and none is left out.
    """

    def __init__(
        self, topic: TopicName, producer_id: int, options: ProducerOptions, clock: Clock
    ) -> None:
        self.topic = topic
        self.producer_id = producer_id
        self.name = options.name or ""
        self._options = options
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._attachment: Attachment | None = None
        self._run: asyncio.Task[object] | None = None
        self._connection: Connection | None = None
        self._epoch = 0
        self._topic_epoch: int | None = None
        self._next_sequence_id: int | None = None
        self._max_message_bytes = MAX_MESSAGE_BYTES_DEFAULT
        self._pending = PendingSends(options.pending_messages_max, options.pending_bytes_max)
        self._waiting: deque[_Outgoing] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._drained = asyncio.Event()
        self._drained.set()
        self._end: ClientError | None = None

    # ---- sending

    @property
    def last_sequence_id(self) -> int:
        """The sequence id of the last message sent; -1 before the first, where none is known."""
        return -1 if self._next_sequence_id is None else self._next_sequence_id - 1

    @property
    def pending_messages(self) -> int:
        """How many messages wait for their receipts."""
        return len(self._pending)

    @property
    def is_connected(self) -> bool:
        """Is a broker taking messages at this moment?"""
        return self._connection is not None

    async def send(
        self,
        payload: bytes,
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
                stored.set_exception(error or Closed(f"the producer of {self.topic}"))

        metadata = self._metadata(key, properties, event_time_ms, ordering_key, deliver_at_ms)
        outgoing = _Outgoing(payload, metadata, callback)
        self._check(outgoing)
        if self._waiting or not self._pending.has_room(len(payload)):
            self._waiting.append(outgoing)
            self._drained.clear()
        else:
            self._submit(outgoing)
        try:
            return await stored
        except asyncio.CancelledError:
            # Before it is numbered a message can be taken back, afterwards no more.
            if outgoing in self._waiting:
                self._waiting.remove(outgoing)
                self._make_progress()
            raise

    def send_nowait(
        self,
        payload: bytes,
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
        metadata = self._metadata(key, properties, event_time_ms, ordering_key, deliver_at_ms)
        outgoing = _Outgoing(payload, metadata, callback)
        self._check(outgoing)
        if self._waiting or not self._pending.has_room(len(payload)):
            raise ProducerQueueFull(len(self._pending), self._pending.payload_bytes)
        return self._submit(outgoing)

    async def flush(self) -> None:
        """Wait until nothing that was sent waits for its receipt, be it stored or failed."""
        await self._drained.wait()

    def _metadata(
        self,
        key: str | None,
        properties: Mapping[str, str] | None,
        event_time_ms: int | None,
        ordering_key: bytes | None,
        deliver_at_ms: int | None,
    ) -> api.MessageMetadata:
        return api.MessageMetadata(
            producer_name=self.name,
            sequence_id=0,  # this and the time are set when the message's turn comes
            publish_time=0,
            partition_key=key,
            properties=key_values(properties),
            event_time=event_time_ms,
            deliver_at_time=deliver_at_ms,
            ordering_key=ordering_key,
        )

    def _check(self, outgoing: _Outgoing) -> None:
        if self._end is not None:
            raise self._end
        payload_bytes = len(outgoing.payload)
        if payload_bytes > self._max_message_bytes:
            raise MessageTooLarge(payload_bytes, self._max_message_bytes)
        message_bytes = payload_bytes + outgoing.metadata.ByteSize()
        message_bytes_max = self._max_message_bytes + METADATA_BYTES_MAX
        if message_bytes > message_bytes_max:
            raise MessageTooLarge(message_bytes, message_bytes_max)

    def _submit(self, outgoing: _Outgoing) -> int:
        """Number the message, make its frame, and send it if a broker is there."""
        assert self._next_sequence_id is not None
        sequence_id = self._next_sequence_id
        self._next_sequence_id += 1
        metadata = outgoing.metadata
        metadata.sequence_id = sequence_id
        metadata.publish_time = self._clock.wall_ms()
        payload = encode_payload(metadata, outgoing.payload)
        head = encode_send(self.producer_id, sequence_id, len(payload))
        timeout_s = self._options.send_timeout_s
        deadline_s = math.inf if timeout_s is None else self._loop.time() + timeout_s
        self._pending.add(PendingSend(sequence_id, head, payload, deadline_s, outgoing.callback))
        self._drained.clear()
        if self._timer is None:
            self._set_timer()
        if self._connection is not None:
            self._connection.write(head, payload)
        return sequence_id

    # ---- what the connection tells

    def receipt(self, receipt: api.CommandSendReceipt) -> None:
        """A message is stored."""
        try:
            send = self._pending.confirm(receipt.sequence_id)
        except ReceiptOutOfOrder as error:
            self._send_all_again(str(error))
            return
        if send is not None:
            message_id = MessageId.from_proto(receipt.message_id, self.topic.partition_index)
            self._answer(send.callback, message_id, None)
            self._make_progress()

    def send_error(self, error: api.CommandSendError) -> None:
        """A message is not stored: whether another attempt helps depends on the error."""
        reason = refusal(error.error, error.message)
        if error.error in (api.TopicTerminatedError, api.ProducerFenced):
            self.gave_up(reason)
        elif error.error == api.NotAllowedError:
            self._fail(error.sequence_id, reason)
        else:
            self._send_all_again(str(reason))

    def detached(self, connection: Connection, broker_url: str | None) -> None:
        """The broker let go of us, or the connection broke; messages wait for the next one."""
        if connection is self._connection:
            self._connection = None
        if self._attachment is not None:
            self._attachment.detached(connection, broker_url)

    def _fail(self, sequence_id: int, error: ClientError) -> None:
        try:
            send = self._pending.confirm(sequence_id)
        except ReceiptOutOfOrder as reason:
            self._send_all_again(str(reason))
            return
        if send is not None:
            self._answer(send.callback, None, error)
            self._make_progress()

    def _send_all_again(self, reason: str) -> None:
        """Leave the broker and come back: everything pending is then sent again, in order."""
        log.warning("sending again", extra={"topic": str(self.topic), "reason": reason})
        connection = self._connection
        if connection is not None:
            connection.unregister_producer(self.producer_id)
            connection.tell(self._close_command())
            self.detached(connection, None)

    def _answer(
        self, callback: SendCallback, message_id: MessageId | None, error: ClientError | None
    ) -> None:
        """Tell the sender. What its callback raises is its own: other messages have theirs too."""
        try:
            callback(message_id, error)
        except Exception as raised:  # noqa: BLE001  # anybody's code; the loop's handler tells of it
            self._loop.call_exception_handler(
                {"message": f"a send callback of {self.topic} raised", "exception": raised}
            )

    def _make_progress(self) -> None:
        """There is room now, or nothing left to wait for."""
        while self._waiting and self._pending.has_room(len(self._waiting[0].payload)):
            self._submit(self._waiting.popleft())
        if not self._pending and not self._waiting:
            self._drained.set()

    # ---- time-outs

    def _set_timer(self) -> None:
        """One timer, for the oldest message."""
        deadline_s = self._pending.deadline_s
        self._timer = None
        if deadline_s is not None and deadline_s < math.inf:
            self._timer = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        timeout_s = self._options.send_timeout_s
        assert timeout_s is not None
        for send in self._pending.expire(self._loop.time()):
            self._answer(send.callback, None, SendTimedOut(send.sequence_id, timeout_s))
        self._set_timer()
        self._make_progress()

    # ---- attaching

    def start(self, attachment: Attachment, run: asyncio.Task[object]) -> None:
        """Called once by the client: ``run`` is the task that keeps us attached."""
        self._attachment = attachment
        self._run = run

    async def attach(self, connection: Connection) -> None:
        """Ask the broker to take us; see ``Attachable``."""
        connection.register_producer(self.producer_id, self)
        producer = api.CommandProducer(
            topic=str(self.topic),
            producer_id=self.producer_id,
            request_id=0,
            producer_name=self.name or None,
            epoch=self._epoch,
            user_provided_producer_name=self._options.name is not None,
            producer_access_mode=api.ProducerAccessMode.Value(self._options.access_mode.label),
            topic_epoch=self._topic_epoch,
            metadata=key_values(self._options.properties),
        )
        try:
            answer = await connection.request(
                BaseCommand(type=BaseCommand.PRODUCER, producer=producer)
            )
        except BaseException as error:
            connection.unregister_producer(self.producer_id)
            if isinstance(error, RequestTimedOut | asyncio.CancelledError):
                # The broker may take us yet, and would then refuse us the next time.
                connection.tell(self._close_command())
            raise
        success = answer.producer_success
        self.name = success.producer_name
        if success.HasField("topic_epoch"):
            self._topic_epoch = success.topic_epoch
        if self._next_sequence_id is None:
            initial = self._options.initial_sequence_id
            self._next_sequence_id = 1 + (success.last_sequence_id if initial is None else initial)

    def attached(self, connection: Connection) -> None:
        """The broker takes messages from now on: first of all those without receipt."""
        self._connection = connection
        self._epoch += 1
        self._max_message_bytes = connection.max_message_bytes
        for send in self._pending:
            connection.write(send.head, send.payload)

    def gave_up(self, error: ClientError) -> None:
        """There will be no further attempt: everything pending fails."""
        if self._end is not None:
            return
        self._end = error
        if self._timer is not None:
            self._timer.cancel()
        if self._run is not None:
            self._run.cancel()
        if self._connection is not None:
            self._connection.unregister_producer(self.producer_id)
            self._connection = None
        for send in self._pending.take_all():
            self._answer(send.callback, None, error)
        while self._waiting:
            self._answer(self._waiting.popleft().callback, None, error)
        self._drained.set()

    # ---- closing

    async def close(self) -> None:
        """Wait a while for the receipts of what was sent, then leave the broker.

        What has no receipt by then fails with ``Closed``. Closing twice is harmless.
        """
        if self._end is not None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.close_timeout_s):
                await self.flush()
        connection = self._connection
        self.gave_up(Closed(f"the producer of {self.topic}"))
        if connection is not None:
            with suppress(TimeoutError, ClientError):
                async with asyncio.timeout(self._options.close_timeout_s):
                    await connection.request(self._close_command())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _close_command(self) -> BaseCommand:
        close = api.CommandCloseProducer(producer_id=self.producer_id, request_id=0)
        return BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close)
