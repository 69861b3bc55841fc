"""Receives the entries of one topic for a subscription, and acknowledges them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from geminga._channels.ack_group import AckGroup, Acks, Position
from geminga._channels.channel import Channel, Channels
from geminga._transport.connection import Connection
from geminga.errors import ClientError, Closed
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandMessage,
    CommandSubscribe,
    MessageIdData,
)
from geminga_protocol.pulsar.commands import encode_command, key_values
from geminga_protocol.pulsar.enums import InitialPosition, SubscriptionType
from geminga_protocol.pulsar.integers import unsigned
from geminga_protocol.pulsar.topic_names import TopicName


@dataclass(frozen=True, slots=True)
class ConsumerChannelOptions:
    """What a broker is told of a consumer, and how much it sends ahead.

    Up to ``receiver_queue_size`` messages are sent before the consumer takes them. Of the consumers
    of a Shared subscription those with a lower ``priority_level`` are served first. ``name`` is
    made up if it is ``None``.
    """

    type: SubscriptionType = SubscriptionType.EXCLUSIVE
    name: str | None = None
    initial_position: InitialPosition = InitialPosition.LATEST
    properties: Mapping[str, str] | None = None
    priority_level: int = 0
    # Of a compacted topic only the newest message of every key.
    reads_compacted: bool = False
    # As upstream's: enough to keep a consumer busy over a distance.
    receiver_queue_size: int = 1000
    # For requests of the consumer itself: seek, unsubscribe, closing.
    operation_timeout_s: float = 30.0


# Gets an entry: the command, and the buffer in which its payload stands from start to end.
EntryHandler = Callable[[CommandMessage, bytes, int, int], None]


class ConsumerChannel(Channel):
    """A consumer that takes entries as they are stored, and counts permits.

    A broker sends no more messages than it was granted permits; the owner returns the permit of
    each message that it is done with, and half a queue of them is granted at once. Delivery is at
    least once: whenever the broker begins anew, everything not acknowledged comes again.

    The owner sets, before ``open``: ``on_entry``, which gets the entries; and ``on_reset``, which
    forgets what came and was not taken yet, because it comes again or is past, and says how many
    messages that were. A subscription that is not durable ends with its connection: the owner
    moves ``start_message_id`` on, behind which the next one begins.
    """

    def __init__(
        self,
        channels: Channels,
        topic: TopicName,
        subscription: str,
        options: ConsumerChannelOptions,
        *,
        is_durable: bool = True,
    ) -> None:
        title = f"the consumer of {topic} for {subscription}"
        super().__init__(channels, topic, title, options.operation_timeout_s)
        assert options.receiver_queue_size >= 1
        self.subscription = subscription
        self.name = options.name or channels.random_name()
        # Of a Failover subscription's consumers one is active; of others each is.
        self.is_active = options.type is not SubscriptionType.FAILOVER
        # Is the topic terminated, and everything delivered?
        self.has_reached_end = False
        # Is the subscription being moved? What is delivered meanwhile is past.
        self.is_seeking = False
        self.start_message_id: MessageIdData | None = None
        self.on_entry: EntryHandler = _ignore
        self.on_reset: Callable[[], int] = lambda: 0
        self._options = options
        self._is_durable = is_durable
        self._permits_returned = 0
        self._permits_returned_max = max(1, options.receiver_queue_size // 2)
        self._acks = AckGroup()
        self._is_ack_scheduled = False

    # ---- permits and acknowledgements

    def return_permits(self, permits: int) -> None:
        """So many messages have left the owner, or never got in: others may come instead.

        Less than none when messages that had left came back.
        """
        self._permits_returned += permits
        if self._permits_returned >= self._permits_returned_max:
            permits, self._permits_returned = self._permits_returned, 0
            if self._connection is not None:
                self._connection.write(self._flow(permits))

    def acknowledge(self, position: Position) -> None:
        """Say that an entry is done with.

        The broker is told at the end of this turn of the loop, and does not confirm it (see
        ``acknowledge_confirmed``); without a broker, when there is one.
        """
        self._acks.acknowledge(position)
        self._schedule_acks()

    def acknowledge_up_to(self, position: Position) -> None:
        """Say that an entry and all before it are done with; told as by ``acknowledge``."""
        self._acks.acknowledge_up_to(position)
        self._schedule_acks()

    async def acknowledge_confirmed(self, acks: Acks) -> None:
        """Say that entries are done with, and wait until the broker has noted it.

        Raises ``ConnectionLost``, ``RequestTimedOut`` or ``BrokerRefused`` when that is not
        known; the broker is then told again later.
        """
        commands = self._ack_commands(acks)
        try:
            connection = await self._attached_connection(self._options.operation_timeout_s)
            await asyncio.gather(*[connection.request(command) for command in commands])
        except (ClientError, asyncio.CancelledError):
            self._acks.put_back(acks)
            self._schedule_acks()
            raise

    def redeliver(self, positions: list[Position]) -> None:
        """Ask for these entries again; without a broker they come again anyway."""
        if self._connection is not None:
            redeliver = api.CommandRedeliverUnacknowledgedMessages(
                consumer_id=self.id, message_ids=_message_ids(positions)
            )
            command = BaseCommand(
                type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                redeliverUnacknowledgedMessages=redeliver,
            )
            self._connection.write(encode_command(command))

    def redeliver_all(self) -> None:
        """Ask for everything again that was delivered and not acknowledged."""
        self.return_permits(self.on_reset())
        self.redeliver([])  # none named: all

    def _schedule_acks(self) -> None:
        if not self._is_ack_scheduled and self._acks:
            self._is_ack_scheduled = True
            self._loop.call_soon(self._send_acks)

    def _send_acks(self) -> None:
        """Tell the broker; without one they wait until there is."""
        self._is_ack_scheduled = False
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
        message_ids = _message_ids(positions)
        ack = CommandAck(consumer_id=self.id, ack_type=ack_type, message_id=message_ids)
        return BaseCommand(type=BaseCommand.ACK, ack=ack)

    def _flow(self, permits: int) -> bytes:
        flow = api.CommandFlow(consumer_id=self.id, messagePermits=permits)
        return encode_command(BaseCommand(type=BaseCommand.FLOW, flow=flow))

    # ---- the subscription

    async def seek(self, to: MessageIdData | int) -> None:
        """Set the subscription to a message id, or to a publish time in milliseconds since 1970.

        Raises ``ClientError``; when the connection broke, whether the subscription was moved is
        not known.
        """
        connection = await self._attached_connection(self._options.operation_timeout_s)
        seek = api.CommandSeek(consumer_id=self.id, request_id=0)
        if isinstance(to, int):
            seek.message_publish_time = to
        else:
            seek.message_id.CopyFrom(to)
        # Most brokers close the consumer before they answer, and it attaches again: ``_resume``
        # then knows that what comes next is new. The answer may come later than that.
        self.is_seeking = True
        try:
            await connection.request(BaseCommand(type=BaseCommand.SEEK, seek=seek))
            if self.is_seeking:
                self._acks.take()
                self.return_permits(self.on_reset())
        finally:
            self.is_seeking = False

    async def last_message_id(self) -> MessageIdData:
        """The id of the topic's last message; its entry id is -1 if there is none.

        Raises ``ClientError``.
        """
        connection = await self._attached_connection(self._options.operation_timeout_s)
        asked = api.CommandGetLastMessageId(consumer_id=self.id, request_id=0)
        answer = await connection.request(
            BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=asked)
        )
        return answer.getLastMessageIdResponse.last_message_id

    async def unsubscribe(self) -> None:
        """Delete the subscription, with all it knows, and end. Raises ``ClientError``."""
        connection = await self._attached_connection(self._options.operation_timeout_s)
        asked = api.CommandUnsubscribe(consumer_id=self.id, request_id=0)
        await connection.request(BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=asked))
        self.end(Closed(self.title))

    # ---- what the connection tells

    def delivered(self, command: CommandMessage, buffer: bytes, start: int, end: int) -> None:
        """An entry came; its payload is ``buffer[start:end]``."""
        self.on_entry(command, buffer, start, end)

    def active_changed(self, *, is_active: bool) -> None:
        """A Failover subscription chose this consumer, or another."""
        self.is_active = is_active

    def reached_end(self) -> None:
        """The topic is terminated, and everything was delivered."""
        self.has_reached_end = True

    # ---- attaching

    def end(self, error: ClientError) -> None:
        """Attach no more; what was acknowledged until now is still told."""
        self._send_acks()
        super().end(error)

    def _register(self, connection: Connection) -> None:
        connection.register_consumer(self.id, self)

    def _unregister(self, connection: Connection) -> None:
        connection.unregister_consumer(self.id)

    def _attach_command(self) -> BaseCommand:
        options = self._options
        subscribe = CommandSubscribe(
            topic=str(self.topic),
            subscription=self.subscription,
            subType=CommandSubscribe.SubType.Value(options.type.label),
            consumer_id=self.id,
            request_id=0,
            consumer_name=self.name,
            priority_level=options.priority_level,
            durable=self._is_durable,
            read_compacted=options.reads_compacted,
            start_message_id=self.start_message_id,
            metadata=key_values(options.properties),
            initialPosition=CommandSubscribe.InitialPosition.Value(options.initial_position.label),
        )
        return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe)

    def _close_command(self) -> BaseCommand:
        close = api.CommandCloseConsumer(consumer_id=self.id, request_id=0)
        return BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)

    def _accepted(self, answer: BaseCommand) -> None:
        """A subscription's answer says nothing more than that."""

    def _resume(self, connection: Connection) -> None:
        if self.is_seeking:
            # The broker let go of the consumer to move the subscription, and accepts it again when
            # that is done; the answer to the seek may come later than the first new messages.
            self.is_seeking = False
            self._acks.take()
        self.on_reset()
        self._permits_returned = 0
        # The broker hears what was acknowledged meanwhile before it may deliver it again.
        self._send_acks()
        connection.write(self._flow(self._options.receiver_queue_size))

    def _ended(self, error: ClientError) -> None:
        """Nothing waits here: messages, and the callers that wait for them, are the owner's."""


def _message_ids(positions: list[Position]) -> list[MessageIdData]:
    return [
        MessageIdData(ledgerId=unsigned(ledger_id), entryId=unsigned(entry_id))
        for ledger_id, entry_id in positions
    ]


def _ignore(_: CommandMessage, __: bytes, ___: int, ____: int) -> None:
    """Until the owner of a channel says what it wants to hear."""
