"""Receives the messages of one topic for a subscription, and acknowledges them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from geminga._channels.ack_group import AckGroup, Position
from geminga._channels.consumer_channel import ConsumerChannel, ConsumerChannelOptions
from geminga.entries import open_entry
from geminga.errors import ClientError, Closed, NotAcknowledgeable, UnreadableMessage
from geminga.messages import (
    Message,
    MessageId,
    acknowledge,
    acknowledge_up_to,
    from_proto,
    to_proto,
)
from geminga.receiver_queue import ReceiverQueue
from geminga_protocol.pulsar.api_pb2 import CommandMessage
from geminga_protocol.pulsar.integers import signed

log = logging.getLogger(__name__)

# A batch may bring more messages than were asked for, the largest batch at most. A broker that
# sends still more does not count, and is left.
OVERSHOOT_MESSAGES_MAX = 1 << 20

# Beyond it, the oldest refusals are not delayed any further: what is held stays bounded.
NACKS_HELD_MAX = 100_000


@dataclass(frozen=True, slots=True)
class ConsumerOptions(ConsumerChannelOptions):
    """What a consumer is to be like.

    Up to ``receiver_queue_size`` messages are fetched ahead of ``receive``. A refused message
    (``nack``) is asked for again after ``nack_delay_s``. Of the consumers of a Shared
    subscription those with a lower ``priority_level`` are served first.
    """

    nack_delay_s: float = 60.0


class Consumer:
    """Made by ``Client.consumer``; closed by ``close``, by ``async with``, or by the client.

    Delivery is at least once: after a broken connection everything not acknowledged comes again,
    what ``receive`` has given before included.
    """

    def __init__(self, channel: ConsumerChannel, options: ConsumerOptions) -> None:
        self._channel = channel
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._topic = str(channel.topic)
        self._queue = ReceiverQueue(channel.return_permits)
        self._nacks = Nacks()
        self._nack_timer: asyncio.TimerHandle | None = None
        channel.on_entry = self._entry_arrived
        channel.on_reset = self._forget_arrived
        channel.on_end = self._ended
        channel.on_close = self.close

    @property
    def topic(self) -> str:
        """The whole name of the topic."""
        return self._topic

    @property
    def subscription(self) -> str:
        """The name of the subscription."""
        return self._channel.subscription

    @property
    def name(self) -> str:
        """The consumer's name, made up if the options have none."""
        return self._channel.name

    @property
    def consumer_id(self) -> int:
        """The consumer's number, which no other producer or consumer of the client has."""
        return self._channel.id

    @property
    def is_connected(self) -> bool:
        """Is a broker delivering at this moment?"""
        return self._channel.is_connected

    @property
    def is_active(self) -> bool:
        """Is it this consumer's turn? Of a Failover subscription's one is active, else each is."""
        return self._channel.is_active

    @property
    def has_reached_end(self) -> bool:
        """Is the topic terminated, and everything delivered?"""
        return self._channel.has_reached_end

    # ---- receiving

    async def receive(self) -> Message:
        """The next message, waited for; limit the wait with ``asyncio.timeout``.

        Raises ``Closed``, or the ``BrokerRefused`` that ended the consumer.
        """
        return await self._queue.get()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message; ``async for`` ends when the consumer is closed."""
        try:
            return await self.receive()
        except Closed:
            raise StopAsyncIteration from None

    # ---- acknowledging

    def ack(self, message: Message | MessageId) -> None:
        """Say that a message is done with and need not be delivered again.

        The broker is told at the end of this turn of the loop, and does not confirm it (see
        ``ack_confirmed``). A batch counts when all its messages are acknowledged. Raises
        ``NotAcknowledgeable`` or the error that ended the consumer.
        """
        self._channel.check_open()
        position = acknowledge(_id(message))
        if position is not None:
            self._nacks.remove(position)
            self._channel.acknowledge(position)

    def ack_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge a message and all before it; for Exclusive and Failover subscriptions.

        Raises ``NotAcknowledgeable`` or the error that ended the consumer.
        """
        self._channel.check_open()
        self._check_ordered()
        position = acknowledge_up_to(_id(message))
        if position is not None:
            self._channel.acknowledge_up_to(position)

    async def ack_confirmed(self, *messages: Message | MessageId, cumulative: bool = False) -> None:
        """Acknowledge messages, and wait until the broker has noted it.

        Of a batch nothing is said, nor waited for, before all its messages are acknowledged.
        Raises ``ConnectionLost``, ``RequestTimedOut`` or ``BrokerRefused`` when that is not
        known; the broker is then told again later, and the same call may be made again.
        """
        self._channel.check_open()
        # Apart from the others, which may leave at any time without being confirmed.
        group = AckGroup()
        for message in messages:
            if cumulative:
                self._check_ordered()
                position = acknowledge_up_to(_id(message))
                if position is not None:
                    group.acknowledge_up_to(position)
            else:
                position = acknowledge(_id(message))
                if position is not None:
                    self._nacks.remove(position)
                    group.acknowledge(position)
        await self._channel.acknowledge_confirmed(group.take())

    def nack(self, message: Message | MessageId) -> None:
        """Refuse a message: it is delivered again after the options' ``nack_delay_s``.

        Messages that came in one batch are delivered again together.
        """
        self._channel.check_open()
        message_id = _id(message)
        self._refuse((message_id.ledger_id, message_id.entry_id))

    def redeliver_unacknowledged(self) -> None:
        """Ask for everything again that was delivered to this consumer and not acknowledged."""
        self._channel.check_open()
        self._channel.redeliver_all()

    def _check_ordered(self) -> None:
        kind = self._options.type
        if kind.tracks_entries:
            raise NotAcknowledgeable(
                f"a {kind.label} subscription has no order to acknowledge up to"
            )

    def _refuse(self, position: Position) -> None:
        self._nacks.add(position, self._loop.time() + self._options.nack_delay_s)
        if self._nack_timer is None:
            self._set_nack_timer()

    def _set_nack_timer(self) -> None:
        due_s = self._nacks.next_due_s
        self._nack_timer = None if due_s is None else self._loop.call_at(due_s, self._send_nacks)

    def _send_nacks(self) -> None:
        due = self._nacks.take_due(self._loop.time())
        if due:
            self._channel.redeliver(due)
        self._set_nack_timer()

    # ---- the subscription

    async def seek(self, to: MessageId | int) -> None:
        """Set the subscription to a message id, or to a publish time in milliseconds since 1970.

        The next message received is that one (or the first published then or later); what was
        fetched before is thrown away. Raises ``ClientError``; when the connection broke, whether
        the subscription was moved is not known.
        """
        self._channel.check_open()
        await self._channel.seek(to if isinstance(to, int) else to_proto(to))

    async def last_message_id(self) -> MessageId:
        """The id of the topic's last message; its ``entry_id`` is -1 if there is none.

        Raises ``ClientError``.
        """
        return from_proto(await self._channel.last_message_id())

    async def unsubscribe(self) -> None:
        """Delete the subscription, with all it knows, and close. Raises ``ClientError``."""
        self._channel.check_open()
        await self._channel.unsubscribe()

    # ---- what the channel tells

    def _entry_arrived(self, command: CommandMessage, buffer: bytes, start: int, end: int) -> None:
        if len(self._queue) > self._options.receiver_queue_size + OVERSHOOT_MESSAGES_MAX:
            log.error("more messages than asked for", extra={"consumer": self._channel.title})
            self._channel.leave()
            return
        try:
            entry = open_entry(self._topic, command, buffer, start, end)
        except UnreadableMessage as error:
            position = (signed(command.message_id.ledgerId), signed(command.message_id.entryId))
            log.error(  # noqa: TRY400  # the reason is in the error, the place says nothing
                "unreadable message",
                extra={
                    "consumer": self._channel.title,
                    "position": position,
                    "reason": str(error),
                },
            )
            self._refuse(position)
            self._channel.return_permits(1)
            return
        if self._channel.is_seeking:
            self._channel.return_permits(entry.sent_messages)
        else:
            self._queue.put(entry.messages, left_out=entry.sent_messages - len(entry.messages))

    def _forget_arrived(self) -> int:
        """What has come and was not received comes again, or is past after a seek."""
        self._nacks.clear()
        return self._queue.clear()

    def _ended(self, error: ClientError) -> None:
        """Nothing more comes; what has come can still be received."""
        if self._nack_timer is not None:
            self._nack_timer.cancel()
        self._queue.end(error)

    # ---- closing

    async def close(self) -> None:
        """Tell the broker what is acknowledged, and leave it. Closing twice is harmless."""
        if self._channel.error is None:
            self._queue.clear()
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


class Nacks:
    """Entries to be delivered again, each when its time has come (seconds of the loop's clock)."""

    def __init__(self, held_max: int = NACKS_HELD_MAX) -> None:
        self._held_max = held_max
        # In the order of their times, since all wait equally long; refusing again changes nothing.
        self._due_s: dict[Position, float] = {}

    def add(self, position: Position, due_s: float) -> None:
        """Ask for this entry again at ``due_s``, which never lies before that of an earlier one."""
        self._due_s.setdefault(position, due_s)

    def remove(self, position: Position) -> None:
        """Do not ask for this entry: it was acknowledged after all."""
        self._due_s.pop(position, None)

    @property
    def next_due_s(self) -> float | None:
        """When ``take_due`` has something to give; ``None`` without refusals."""
        first = next(iter(self._due_s.values()), None)
        return 0.0 if first is not None and len(self._due_s) > self._held_max else first

    def take_due(self, now_s: float) -> list[Position]:
        """The entries to ask for now."""
        due: list[Position] = []
        for position, due_s in self._due_s.items():
            if due_s > now_s and len(self._due_s) - len(due) <= self._held_max:
                break
            due.append(position)
        for position in due:
            del self._due_s[position]
        return due

    def clear(self) -> None:
        """Forget everything: a broker that we attach to anew delivers it all again."""
        self._due_s.clear()


def _id(message: Message | MessageId) -> MessageId:
    return message.message_id if isinstance(message, Message) else message
