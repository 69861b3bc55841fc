"""Sends payloads to one topic, in order and across reconnections, until each has a receipt.

A payload is complete when it comes here, and numbered: the channel keeps it, sends it, sends it
again on the next connection, and reports what became of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from geminga._channels.channel import Channel
from geminga._channels.pending.sends import PendingSend, PendingSends, ReceiptOutOfOrder
from geminga._channels.registry import Channels
from geminga._transport.connection import Connection
from geminga._transport.requests import LATE_S
from geminga.errors import ClientError, SendTimedOut, refusal
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand, MessageIdData
from geminga_protocol.pulsar.commands import key_values
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.frames import MAX_MESSAGE_BYTES_DEFAULT
from geminga_protocol.pulsar.send import encode_send
from geminga_protocol.pulsar.topics.topic_names import TopicName

log = logging.getLogger(__name__)

ContextT = TypeVar("ContextT")


@dataclass(frozen=True, slots=True)
class ProducerChannelOptions:
    """What PRODUCER says about a producer, and how much may be pending for how long."""

    # Chosen by the broker if it is ``None``.
    name: str | None = None
    # What brokers show of the producer.
    properties: Mapping[str, str] | None = None
    access_mode: AccessMode = AccessMode.SHARED
    # A subscription that the topic gets if the producer makes it.
    initial_subscription: str | None = None
    # What the topic's schema must be compatible with.
    schema: api.Schema | None = None
    # Whether payloads are encrypted: a namespace may demand it.
    is_encrypted: bool = False
    # A payload without a receipt fails after so long (``None``: never), which does not mean that it
    # will not be stored.
    send_timeout_s: float | None = 30.0
    # As upstream's Java client: enough to keep a broker busy over a distance.
    pending_messages_max: int = 1000
    # For messages so large that a thousand of them would be too much.
    pending_bytes_max: int = 64 * 1024 * 1024
    # How long closing waits for the receipts of what was sent, and then for the broker.
    close_timeout_s: float = 5.0


# Called with a payload's context, and its id once it is stored or the error that came instead.
SettledCallback = Callable[[ContextT, MessageIdData | None, ClientError | None], None]


# What becomes of a payload in ``pending``. In whatever order answers come, ``on_settled`` is called
# in the order of sending:
#
#    receipt for the oldest ─────────────────────────────────▶ settled, stored
#    receipt for a later one: the broker lost the oldest ────▶ all are sent again
#    refused for good (NotAllowed) ─▶ waits for those in front ─▶ settled, with the error
#    refused for the moment ─────────────────────────────────▶ all are sent again
#    no answer until its deadline ───────────────────────────▶ settled, SendTimedOut
#    the channel ends (topic terminated, fenced, closed) ────▶ settled, with the channel's error
#
# Outside of these methods the oldest payload is never a refused one: ``_answer_refused`` has taken
# it.
class ProducerChannel(Channel, Generic[ContextT]):
    """A producer that sends payloads as they are to be stored, numbered by its owner.

    Payloads that have no receipt when the connection breaks are sent again on the next one, in the
    same order with the same sequence ids: they may be stored twice (unless the topic deduplicates),
    and none is left out.

    The owner sets ``on_settled`` and ``on_room`` before ``open``.
    """

    __slots__ = (
        "_drained",
        "_epoch",
        "_options",
        "_timer",
        "_topic_epoch",
        "last_sequence_id",
        "max_message_bytes",
        "name",
        "on_room",
        "on_settled",
        "pending",
        "schema_version",
    )

    def __init__(
        self, channels: Channels, topic: TopicName, options: ProducerChannelOptions
    ) -> None:
        super().__init__(channels, topic, f"the producer of {topic}", options.close_timeout_s)
        # Chosen by the broker if the options have none, and then known when the channel is open.
        self.name = options.name or ""
        # Of the last message that the broker stored under this name before; -1 if none is known.
        self.last_sequence_id = -1
        # Of the schema in the topic's registry; None without a schema.
        self.schema_version: bytes | None = None
        # How large a payload the broker takes, which each broker says when it is connected.
        self.max_message_bytes = MAX_MESSAGE_BYTES_DEFAULT
        # Called once for each payload, with the context that it was sent with. What it raises goes
        # to the loop's exception handler.
        self.on_settled: SettledCallback[ContextT] = lambda _, __, ___: None
        # Called when less is pending than before.
        self.on_room: Callable[[], None] = lambda: None
        self._options = options
        # Counts the attachments. A broker that still knows an older one of this name lets the newer
        # one replace it, instead of refusing it as busy.
        self._epoch = 0
        # With an exclusive access mode: the term in which this producer has the topic. A broker
        # with a later one has accepted another producer since, and fences this one.
        self._topic_epoch: int | None = None
        # The payloads that wait for their receipts. The owner asks it for room, and for counts.
        self.pending: PendingSends[ContextT] = PendingSends(
            options.pending_messages_max, options.pending_bytes_max
        )
        # One timer for all: it runs at the deadline of the oldest payload.
        self._timer: asyncio.TimerHandle | None = None
        # What ``flush`` waits for; ``None`` where no caller does.
        self._drained: asyncio.Event | None = None

    # ---- sending

    def send(
        self,
        payload: bytes | memoryview,
        sequence_id: int,
        context: ContextT,
        *,
        front: bytes = b"",
        num_messages: int = 1,
        highest_sequence_id: int = 0,
        is_chunk: bool = False,
    ) -> None:
        """Send a payload; without a broker it waits for one.

        How much is pending is bounded by the owner: by ``pending.has_room``, or by a bound of its
        own, as the send window of ``Producer``.

        ``num_messages`` and ``highest_sequence_id``, that of its last message, describe a batch. A
        payload may come in two pieces, of which ``front`` is the first: joining them would copy a
        large one. The owner must not send after the channel has ended (``check_open``).
        """
        assert self.error is None, "what is sent now would never be settled"
        head = encode_send(
            self.id,
            sequence_id,
            len(front) + len(payload),
            num_messages=num_messages,
            highest_sequence_id=highest_sequence_id,
            is_chunk=is_chunk,
        )
        if front:
            head += front
        timeout_s = self._options.send_timeout_s
        deadline_s = math.inf if timeout_s is None else self._loop.time() + timeout_s
        # Kept before it is written: a connection that breaks now is followed by one on which
        # everything kept is sent again.
        self.pending.add(
            PendingSend(sequence_id, head, payload, deadline_s, context, highest_sequence_id)
        )
        if self._timer is None:
            self._set_timer()
        # Otherwise ``_resume`` sends it.
        if self._connection is not None:
            self._connection.write(head, payload)

    async def flush(self) -> None:
        """Wait until no payload is pending: all are stored, or have failed."""
        if self.pending.sends:
            if self._drained is None:
                self._drained = asyncio.Event()
            await self._drained.wait()

    async def close(self) -> None:
        """Wait up to ``close_timeout_s`` for the receipts of what was sent, then leave the broker.

        What has no receipt by then fails with ``Closed``. Closing twice is harmless.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._close_timeout_s):
                # Here the channel may still attach anew, to send again what has no receipt; behind
                # this block it cannot.
                await self.flush()
        await super().close()

    # ---- what the connection tells

    def receipt(self, receipt: api.CommandSendReceipt) -> None:
        """A payload is stored."""
        self._settle(receipt.sequence_id, receipt.message_id)

    def send_error(self, error: api.CommandSendError) -> None:
        """A payload is not stored: whether another attempt helps depends on the error."""
        reason = refusal(error.error, error.message)
        # No broker will ever accept another payload of this producer.
        if error.error in (api.TopicTerminatedError, api.ProducerFenced):
            self.end(reason)
        # Storing failed, and may succeed another time. The payloads behind it must not be stored
        # before it: all are sent again, in order.
        elif error.error != api.NotAllowedError:
            self._send_all_again(str(reason))
        elif self.pending.refuse(error.sequence_id, reason):
            # This payload would be refused another time, too. The broker may refuse it before those
            # in front of it have their receipts: its sender is notified in order.
            self._answer_refused()
        else:
            # No payload here has that number: the error is for one that was settled before, or the
            # order is lost.
            self._settle(error.sequence_id, None)

    def _settle(self, sequence_id: int, message_id: MessageIdData | None) -> None:
        try:
            send = self.pending.confirm(sequence_id)
        except ReceiptOutOfOrder as reason:
            self._send_all_again(str(reason))
            return
        if send is not None:
            self._answer(send, message_id, None)
            self._answer_refused()

    def _answer_refused(self) -> None:
        """Report the refused payloads whose turn has come, then that there is more room."""
        # Refused payloads have waited for those in front of them, so that callbacks are called in
        # the order of sending.
        for send in self.pending.take_refused():
            self._answer(send, None, send.refusal)
        # The owner before ``flush``: what it sends now keeps ``flush`` waiting.
        self.on_room()
        if not self.pending.sends:
            self._wake_flushes()

    def _send_all_again(self, reason: str) -> None:
        """Leave the broker and come back: everything pending is then sent again, in order."""
        log.warning("sending again", extra={"topic": str(self.topic), "reason": reason})
        self.leave()

    def _answer(
        self,
        send: PendingSend[ContextT],
        message_id: MessageIdData | None,
        error: ClientError | None,
    ) -> None:
        try:
            self.on_settled(send.context, message_id, error)
        except Exception as raised:  # noqa: BLE001  # a user's code: other messages have theirs too
            self._loop.call_exception_handler(
                {"message": f"a send callback of {self.topic} raised", "exception": raised}
            )

    def _wake_flushes(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    # ---- timeouts

    def _set_timer(self) -> None:
        """Set the timer to the deadline of the oldest payload, if it has one."""
        self._timer = None
        # All have the same timeout, so that deadlines go up along the queue.
        sends = self.pending.sends
        if sends and sends[0].deadline_s < math.inf:
            self._timer = self._loop.call_at(sends[0].deadline_s, self._expire)

    def _expire(self) -> None:
        timeout_s = self._options.send_timeout_s
        assert timeout_s is not None
        assert self._timer is not None
        if self._loop.time() > self._timer.when() + LATE_S:
            # The loop was blocked, and may run its timers before it reads: receipts may be there.
            self._timer = self._loop.call_later(LATE_S, self._expire)
            return
        # It may be stored all the same: a receipt that comes later finds nothing here, and is
        # dropped.
        for send in self.pending.expire(self._loop.time()):
            timed_out = SendTimedOut(send.sequence_id, timeout_s)
            self._answer(send, None, send.refusal or timed_out)
        self._set_timer()
        self._answer_refused()

    # ---- attaching

    def _directory(self, connection: Connection) -> MutableMapping[int, Any]:
        return connection.producers

    def _attach_command(self) -> BaseCommand:
        options = self._options
        producer = api.CommandProducer(
            topic=str(self.topic),
            producer_id=self.id,
            request_id=0,
            producer_name=self.name or None,
            epoch=self._epoch,
            user_provided_producer_name=options.name is not None,
            producer_access_mode=api.ProducerAccessMode.Value(options.access_mode.label),
            topic_epoch=self._topic_epoch,
            metadata=key_values(options.properties),
            schema=options.schema,
            encrypted=options.is_encrypted or None,
            initial_subscription_name=options.initial_subscription,
        )
        return BaseCommand(type=BaseCommand.PRODUCER, producer=producer)

    def _close_command(self) -> BaseCommand:
        close = api.CommandCloseProducer(producer_id=self.id, request_id=0)
        return BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close)

    def _accepted(self, answer: BaseCommand) -> None:
        success = answer.producer_success
        # Kept for all later attachments: by this name a topic that deduplicates knows the
        # producer's numbers.
        self.name = success.producer_name
        if self._options.schema is not None and success.HasField("schema_version"):
            self.schema_version = success.schema_version
        if success.HasField("topic_epoch"):
            self._topic_epoch = success.topic_epoch
        if self._epoch == 0:
            # Later on the owner has numbered messages itself, and the broker knows some of them.
            self.last_sequence_id = success.last_sequence_id

    def _resume(self, connection: Connection) -> None:
        # With the next PRODUCER command, which the broker then takes for the newer one.
        self._epoch += 1
        self.max_message_bytes = connection.max_message_bytes
        for send in self.pending.sends:
            # A refused one only waits for its turn to be reported.
            if send.refusal is None:
                connection.write(send.head, send.payload)

    def _ended(self, error: ClientError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # By the order of the queue, as if all had reached their deadlines.
        for send in self.pending.expire(math.inf):
            self._answer(send, None, send.refusal or error)
        self._wake_flushes()
