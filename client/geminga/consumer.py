"""Receives the messages of one topic for a subscription, and acknowledges them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from types import TracebackType
from typing import Self

from geminga._transport.connection import Connection
from geminga.ack_group import AckGroup, Acks, Position
from geminga.attachment import Attachment
from geminga.consumer_options import ConsumerOptions
from geminga.errors import (
    ClientError,
    Closed,
    NotAcknowledgeable,
    RequestTimedOut,
    UnreadableMessage,
)
from geminga.inbox import Inbox
from geminga.message_ids import MessageId
from geminga.messages import Message
from geminga.nacks import Nacks
from geminga.properties import key_values
from geminga.received import open_entry
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand, CommandAck, CommandSubscribe
from geminga_protocol.pulsar.commands import encode_command
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.integers import signed, unsigned
from geminga_protocol.pulsar.topic_names import TopicName

log = logging.getLogger(__name__)

# A batch may bring more messages than were asked for, the largest batch at most. A broker that
# sends still more does not count, and is left.
OVERSHOOT_MESSAGES_MAX = 1 << 20


class Consumer:
    """Made by ``Client.consumer``; closed by ``close``, by ``async with``, or by the client.

    Delivery is at least once: after a broken connection everything not acknowledged comes again,
    what ``receive`` has given before included.
    """

    def __init__(
        self,
        topic: TopicName,
        subscription: str,
        consumer_id: int,
        name: str,
        options: ConsumerOptions,
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self.consumer_id = consumer_id
        self.name = name
        # Of a Failover subscription's consumers one is active; of others each is.
        self.is_active = options.type is not SubscriptionType.FAILOVER
        # Is the topic terminated, and everything delivered?
        self.has_reached_end = False
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._attachment: Attachment | None = None
        self._run: asyncio.Task[object] | None = None
        self._connection: Connection | None = None
        self._inbox = Inbox(options.receiver_queue_size, self._grant)
        self._acks = AckGroup()
        self._is_ack_due = False
        self._nacks = Nacks()
        self._nack_timer: asyncio.TimerHandle | None = None
        self._is_seeking = False
        self._end: ClientError | None = None

    # ---- receiving

    @property
    def is_connected(self) -> bool:
        """Is a broker delivering at this moment?"""
        return self._connection is not None

    async def receive(self) -> Message:
        """The next message, waited for; limit the wait with ``asyncio.timeout``.

        Raises ``Closed``, or the ``BrokerRefused`` that ended the consumer.
        """
        return await self._inbox.get()

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
        self._check_open()
        self._note_ack(self._acks, _id(message))
        self._schedule_acks()

    def ack_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge a message and all before it; for Exclusive and Failover subscriptions.

        Raises ``NotAcknowledgeable`` or the error that ended the consumer.
        """
        self._check_open()
        self._note_cumulative_ack(self._acks, _id(message))
        self._schedule_acks()

    async def ack_confirmed(self, *messages: Message | MessageId, cumulative: bool = False) -> None:
        """Acknowledge messages, and wait until the broker has noted it.

        Of a batch nothing is said, nor waited for, before all its messages are acknowledged.
        Raises ``ConnectionLost``, ``RequestTimedOut`` or ``BrokerRefused`` when that is not
        known; the broker is then told again later, and the same call may be made again.
        """
        self._check_open()
        # Apart from the others, which may leave at any time without being confirmed.
        group = AckGroup()
        for message in messages:
            if cumulative:
                self._note_cumulative_ack(group, _id(message))
            else:
                self._note_ack(group, _id(message))
        acks = group.take()
        commands = self._ack_commands(acks)
        try:
            connection = await self._attached_connection()
            await asyncio.gather(*[connection.request(command) for command in commands])
        except (ClientError, asyncio.CancelledError):
            self._acks.put_back(acks)
            self._schedule_acks()
            raise

    def nack(self, message: Message | MessageId) -> None:
        """Refuse a message: it is delivered again after the options' ``nack_delay_s``.

        Messages that came in one batch are delivered again together.
        """
        self._check_open()
        self._refuse(_position(_id(message)))

    def redeliver_unacknowledged(self) -> None:
        """Ask for everything again that was delivered to this consumer and not acknowledged."""
        self._check_open()
        self._inbox.drop_all()
        self._nacks.clear()
        if self._connection is not None:
            self._redeliver(self._connection, [])

    def _note_ack(self, group: AckGroup, message_id: MessageId) -> None:
        if group.acknowledge(message_id):
            self._nacks.remove(_position(message_id))

    def _note_cumulative_ack(self, group: AckGroup, message_id: MessageId) -> None:
        if self._options.type.tracks_entries:
            raise NotAcknowledgeable(
                f"a {self._options.type.label} subscription has no order to acknowledge up to"
            )
        group.acknowledge_up_to(message_id)

    def _schedule_acks(self) -> None:
        if not self._is_ack_due and self._acks:
            self._is_ack_due = True
            self._loop.call_soon(self._send_acks)

    def _send_acks(self) -> None:
        """Tell the broker; without one they wait until there is."""
        self._is_ack_due = False
        if self._connection is not None:
            for command in self._ack_commands(self._acks.take()):
                self._connection.write(encode_command(command))

    def _ack_commands(self, acks: Acks) -> list[BaseCommand]:
        commands: list[BaseCommand] = []
        if acks.cumulative is not None:
            commands.append(self._ack_command(CommandAck.Cumulative, [acks.cumulative]))
        commands += [
            self._ack_command(CommandAck.Individual, positions) for positions in acks.in_commands()
        ]
        return commands

    def _ack_command(
        self, ack_type: CommandAck.AckType.ValueType, positions: list[Position]
    ) -> BaseCommand:
        ack = CommandAck(
            consumer_id=self.consumer_id, ack_type=ack_type, message_id=_protos(positions)
        )
        return BaseCommand(type=BaseCommand.ACK, ack=ack)

    def _refuse(self, position: Position) -> None:
        self._nacks.add(position, self._loop.time() + self._options.nack_delay_s)
        if self._nack_timer is None:
            self._set_nack_timer()

    def _set_nack_timer(self) -> None:
        due_s = self._nacks.next_due_s
        self._nack_timer = None if due_s is None else self._loop.call_at(due_s, self._send_nacks)

    def _send_nacks(self) -> None:
        due = self._nacks.take_due(self._loop.time())
        if due and self._connection is not None:
            self._redeliver(self._connection, due)
        self._set_nack_timer()

    def _redeliver(self, connection: Connection, positions: list[Position]) -> None:
        """Ask for these entries again; for everything unacknowledged if there are none."""
        redeliver = api.CommandRedeliverUnacknowledgedMessages(
            consumer_id=self.consumer_id, message_ids=_protos(positions)
        )
        connection.write(
            encode_command(
                BaseCommand(
                    type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                    redeliverUnacknowledgedMessages=redeliver,
                )
            )
        )

    # ---- the subscription

    async def seek(self, to: MessageId | int) -> None:
        """Set the subscription to a message id, or to a publish time in milliseconds since 1970.

        The next message received is that one (or the first published then or later); what was
        fetched before is thrown away. Raises ``ClientError``; when the connection broke, whether
        the subscription was moved is not known.
        """
        self._check_open()
        connection = await self._attached_connection()
        seek = api.CommandSeek(consumer_id=self.consumer_id, request_id=0)
        if isinstance(to, MessageId):
            seek.message_id.CopyFrom(to.to_proto())
        else:
            seek.message_publish_time = to
        # The broker closes the consumer before it answers; until then old messages may come.
        self._is_seeking = True
        try:
            await connection.request(BaseCommand(type=BaseCommand.SEEK, seek=seek))
            if self._is_seeking:
                self._forget_delivered()
        finally:
            self._is_seeking = False

    def _forget_delivered(self) -> None:
        """The subscription was moved: what came before, and what was said of it, is past."""
        self._inbox.drop_all()
        self._nacks.clear()
        self._acks.take()

    async def last_message_id(self) -> MessageId:
        """The id of the topic's last message; its ``entry_id`` is -1 if there is none.

        Raises ``ClientError``.
        """
        connection = await self._attached_connection()
        asked = api.CommandGetLastMessageId(consumer_id=self.consumer_id, request_id=0)
        answer = await connection.request(
            BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=asked)
        )
        return MessageId.from_proto(answer.getLastMessageIdResponse.last_message_id)

    async def unsubscribe(self) -> None:
        """Delete the subscription, with all it knows, and close. Raises ``ClientError``."""
        self._check_open()
        connection = await self._attached_connection()
        asked = api.CommandUnsubscribe(consumer_id=self.consumer_id, request_id=0)
        await connection.request(BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=asked))
        self.gave_up(Closed(self._title))

    async def _attached_connection(self) -> Connection:
        assert self._attachment is not None
        return await self._attachment.connection(self._options.operation_timeout_s)

    # ---- what the connection tells

    def delivered(self, command: api.CommandMessage, buffer: bytes, start: int, end: int) -> None:
        """An entry came; its payload is ``buffer[start:end]``."""
        if len(self._inbox) > self._options.receiver_queue_size + OVERSHOOT_MESSAGES_MAX:
            log.error("more messages than asked for", extra={"consumer": self._title})
            self._leave()
            return
        try:
            entry = open_entry(str(self.topic), command, buffer, start, end)
        except UnreadableMessage as error:
            position = (signed(command.message_id.ledgerId), signed(command.message_id.entryId))
            log.error(  # noqa: TRY400  # the reason is in the error, the place says nothing
                "unreadable message",
                extra={"consumer": self._title, "position": position, "reason": str(error)},
            )
            self._refuse(position)
            self._inbox.put([], left_out=1)
            return
        if self._is_seeking:
            self._inbox.put([], left_out=entry.sent_messages)
        else:
            left_out = entry.sent_messages - len(entry.messages)
            self._inbox.put(entry.messages, left_out=left_out)

    def active_changed(self, *, is_active: bool) -> None:
        """A Failover subscription chose this consumer, or another."""
        self.is_active = is_active

    def reached_end(self) -> None:
        """The topic is terminated, and everything was delivered."""
        self.has_reached_end = True

    def detached(self, connection: Connection, broker_url: str | None) -> None:
        """The broker let go of us, or the connection broke; acknowledgements wait."""
        if connection is self._connection:
            self._connection = None
        if self._attachment is not None:
            self._attachment.detached(connection, broker_url)

    def _grant(self, permits: int) -> None:
        if self._connection is not None:
            flow = api.CommandFlow(consumer_id=self.consumer_id, messagePermits=permits)
            self._connection.write(encode_command(BaseCommand(type=BaseCommand.FLOW, flow=flow)))

    def _leave(self) -> None:
        """Leave the broker; the attachment comes back."""
        connection = self._connection
        if connection is not None:
            connection.unregister_consumer(self.consumer_id)
            connection.tell(self._close_command())
            self.detached(connection, None)

    # ---- attaching

    def start(self, attachment: Attachment, run: asyncio.Task[object]) -> None:
        """Called once by the client: ``run`` is the task that keeps us attached."""
        self._attachment = attachment
        self._run = run

    async def attach(self, connection: Connection) -> None:
        """Ask the broker to take us; see ``Attachable``."""
        connection.register_consumer(self.consumer_id, self)
        options = self._options
        subscribe = CommandSubscribe(
            topic=str(self.topic),
            subscription=self.subscription,
            subType=CommandSubscribe.SubType.Value(options.type.label),
            consumer_id=self.consumer_id,
            request_id=0,
            consumer_name=self.name,
            priority_level=options.priority_level,
            durable=True,
            metadata=key_values(options.properties),
            initialPosition=CommandSubscribe.InitialPosition.Value(options.initial_position.label),
        )
        try:
            await connection.request(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe))
        except BaseException as error:
            connection.unregister_consumer(self.consumer_id)
            if isinstance(error, RequestTimedOut | asyncio.CancelledError):
                # The broker may take us yet, and would then refuse us the next time.
                connection.tell(self._close_command())
            raise

    def attached(self, connection: Connection) -> None:
        """The broker delivers from now on; first it hears what was acknowledged meanwhile."""
        self._connection = connection
        if self._is_seeking:
            # Whom it let go to move the subscription it takes back when that is done; the answer
            # to the seek may come later than the first new messages.
            self._is_seeking = False
            self._forget_delivered()
        self._nacks.clear()
        self._send_acks()
        self._inbox.begin_anew()

    def gave_up(self, error: ClientError) -> None:
        """There will be no further attempt: what has come can still be received."""
        if self._end is not None:
            return
        self._end = error
        self._send_acks()
        if self._nack_timer is not None:
            self._nack_timer.cancel()
        if self._run is not None:
            self._run.cancel()
        if self._connection is not None:
            self._connection.unregister_consumer(self.consumer_id)
            self._connection = None
        self._inbox.end(error)

    # ---- closing

    async def close(self) -> None:
        """Tell the broker what is acknowledged, and leave it. Closing twice is harmless."""
        if self._end is not None:
            return
        connection = self._connection
        self.gave_up(Closed(self._title))
        self._inbox.drop_all()
        if connection is not None:
            with suppress(TimeoutError, ClientError):
                async with asyncio.timeout(self._options.operation_timeout_s):
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

    def _check_open(self) -> None:
        if self._end is not None:
            raise self._end

    @property
    def _title(self) -> str:
        return f"the consumer of {self.topic} for {self.subscription}"

    def _close_command(self) -> BaseCommand:
        close = api.CommandCloseConsumer(consumer_id=self.consumer_id, request_id=0)
        return BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)


def _id(message: Message | MessageId) -> MessageId:
    return message.message_id if isinstance(message, Message) else message


def _position(message_id: MessageId) -> Position:
    return message_id.ledger_id, message_id.entry_id


def _protos(positions: list[Position]) -> list[api.MessageIdData]:
    return [
        api.MessageIdData(ledgerId=unsigned(ledger_id), entryId=unsigned(entry_id))
        for ledger_id, entry_id in positions
    ]
