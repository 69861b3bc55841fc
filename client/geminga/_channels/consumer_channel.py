"""Receives the entries of one topic for a subscription, and acknowledges them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from geminga._channels.channel import Channel, Channels
from geminga._channels.pending.acks import (
    ACK_IDS_MAX,
    AckGroup,
    Acks,
    OpenIndexes,
    Position,
    ack_set,
)
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
from geminga_protocol.pulsar.integers import UINT64_MAX, unsigned
from geminga_protocol.pulsar.topic_names import TopicName

# Hashes of keys lie below; ranges of a sticky consumer are told in them.
KEY_HASHES = 1 << 16


@dataclass(frozen=True, slots=True)
class KeySharedPolicy:
    """How the consumers of a Key_Shared subscription share its keys.

    Without ``ranges`` the broker shares the keys out; with them a consumer gets the keys whose hash
    (0 to 65535) lies in one of the ``(first, last)``, both included. ``allow_out_of_order`` lets a
    consumer that joins have messages of a key while another still holds earlier ones. Raises
    ``ValueError`` for a range that is none.
    """

    ranges: Sequence[tuple[int, int]] = ()
    allow_out_of_order: bool = False

    def __post_init__(self) -> None:
        for first, last in self.ranges:
            if not 0 <= first <= last < KEY_HASHES:
                raise ValueError(f"({first}, {last}) is no range of the hashes 0 to 65535")


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
    subscription_properties: Mapping[str, str] | None = None
    priority_level: int = 0
    # Of a compacted topic only the newest message of every key.
    read_compacted: bool = False
    # Whether subscribing makes the topic, where brokers make topics by their being used.
    create_topic: bool = True
    replicate_subscription_state: bool = False
    # Only of a Key_Shared subscription: who gets which keys.
    key_shared: KeySharedPolicy | None = None
    # As upstream's: enough to keep a consumer busy over a distance.
    receiver_queue_size: int = 1000
    # Acknowledgements are collected for so long, and until there are so many; as upstream's.
    ack_group_s: float = 0.1
    ack_group_max: int = ACK_IDS_MAX
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
    messages that were. A subscription that is not durable ends with its connection: ``start`` is
    asked at each attachment behind which message it begins. ``schema`` is what the broker is told
    of the schema.
    """

    __slots__ = (
        "_ack_timer",
        "_acks",
        "_is_durable",
        "_is_paused",
        "_options",
        "_permits_max",
        "_permits_returned",
        "_permits_withheld",
        "activations",
        "has_reached_end",
        "is_active",
        "is_seeking",
        "name",
        "on_entry",
        "on_reset",
        "schema",
        "start",
        "subscription",
    )

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
        # How often a Failover subscription chose this one, on whatever connection.
        self.activations = 0
        # Is the topic terminated, and everything delivered?
        self.has_reached_end = False
        # Is the subscription being moved? What is delivered meanwhile is past.
        self.is_seeking = False
        self.start: Callable[[], MessageIdData | None] = lambda: None
        self.schema: api.Schema | None = None
        self.on_entry: EntryHandler = _ignore
        self.on_reset: Callable[[], int] = lambda: 0
        self._options = options
        self._is_durable = is_durable
        self._permits_returned = 0
        self._permits_max = options.receiver_queue_size
        # What is returned of these is not granted again: there were more than there may be now.
        self._permits_withheld = 0
        self._is_paused = False
        self._acks = AckGroup()
        self._ack_timer: asyncio.Handle | None = None

    # ---- permits and acknowledgements

    def return_permits(self, permits: int) -> None:
        """So many messages have left the owner, or never got in: others may come instead."""
        self._permits_returned += permits
        if self._permits_returned * 2 >= self._permits_max:
            self.grant_permits()

    def grant_permits(self) -> None:
        """Tell the broker of the permits that were returned, however few."""
        if self._is_paused or self._connection is None:
            return
        withheld = min(self._permits_withheld, self._permits_returned)
        self._permits_withheld -= withheld
        permits, self._permits_returned = self._permits_returned - withheld, 0
        if permits:
            self._connection.write(self._flow(permits))

    def limit_permits(self, permits_max: int) -> None:
        """From now on at most so many messages may come ahead; more may be there already."""
        assert permits_max >= 1
        more, self._permits_max = permits_max - self._permits_max, permits_max
        if more < 0:
            self._permits_withheld -= more
            return
        paid_off = min(more, self._permits_withheld)
        self._permits_withheld -= paid_off
        if self._connection is not None:  # else attaching grants all
            self.return_permits(more - paid_off)

    def pause(self) -> None:
        """Grant nothing until ``resume``; what was granted before may still come."""
        self._is_paused = True

    def resume(self) -> None:
        """Grant what was returned since ``pause``, and go on."""
        self._is_paused = False
        self.grant_permits()

    def acknowledge(self, position: Position, open_indexes: OpenIndexes | None = None) -> None:
        """Say that an entry is done with, or that those of its messages are that are not open.

        The broker is told with others, by the options' ``ack_group_s`` and ``ack_group_max``, and
        does not confirm it (see ``acknowledge_confirmed``); without a broker, when there is one.
        """
        self._acks.acknowledge(position, open_indexes)
        self._schedule_acks()

    def acknowledge_up_to(
        self, position: Position, open_indexes: OpenIndexes | None = None
    ) -> None:
        """Say that an entry and all before it are done with; told as by ``acknowledge``."""
        self._acks.acknowledge_up_to(position, open_indexes)
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
        if self._ack_timer is None:
            if self._acks:
                self._ack_timer = self._loop.call_later(self._options.ack_group_s, self.send_acks)
        elif len(self._acks) == self._options.ack_group_max:
            self._ack_timer.cancel()
            # Not at once: what a command brought is often acknowledged in the same turn.
            self._ack_timer = self._loop.call_soon(self.send_acks)

    def send_acks(self) -> None:
        """Tell the broker what was acknowledged; without one it waits until there is."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        if self._connection is not None and self._acks:
            for command in self._ack_commands(self._acks.take()):
                self._connection.write(encode_command(command))

    def _ack_commands(self, acks: Acks) -> list[BaseCommand]:
        commands: list[BaseCommand] = []
        if acks.cumulative is not None:
            upto = [(acks.cumulative, acks.cumulative_open)]
            commands.append(self._ack_command(CommandAck.Cumulative, upto))
        commands += [self._ack_command(CommandAck.Individual, part) for part in acks.in_commands()]
        return commands

    def _ack_command(
        self,
        ack_type: CommandAck.AckType.ValueType,
        entries: list[tuple[Position, OpenIndexes | None]],
    ) -> BaseCommand:
        ack = CommandAck(consumer_id=self.id, ack_type=ack_type)
        # One for each entry: made elsewhere and copied in, each would take twice as long.
        add = ack.message_id.add
        for (ledger_id, entry_id), open_indexes in entries:
            # As ``unsigned`` makes them, without two calls for each.
            message_id = add(ledgerId=ledger_id & UINT64_MAX, entryId=entry_id & UINT64_MAX)
            if open_indexes is not None:
                message_id.ack_set.extend(ack_set(open_indexes))
        return BaseCommand(type=BaseCommand.ACK, ack=ack)

    def _flow(self, permits: int) -> bytes:
        flow = api.CommandFlow(consumer_id=self.id, messagePermits=permits)
        return encode_command(BaseCommand(type=BaseCommand.FLOW, flow=flow))

    # ---- the subscription

    async def seek(self, to: MessageIdData | int, begin: Callable[[], None] = lambda: None) -> None:
        """Set the subscription to a message id, or to a publish time in milliseconds since 1970.

        ``begin`` is called when there is a broker that is asked: what ``start`` gives from then on
        is to be where the subscription goes. Raises ``ClientError``; when the connection broke,
        whether the subscription was moved is not known.
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
        begin()
        self._backoff.reset()  # being let go for that is no failure, however often it happens
        try:
            await connection.request(BaseCommand(type=BaseCommand.SEEK, seek=seek))
            if self.is_seeking:
                self._acks.take()
                self.return_permits(self.on_reset())
        finally:
            self.is_seeking = False

    async def last_message_id(self) -> api.CommandGetLastMessageIdResponse:
        """The id of the topic's last message, whose entry id is -1 if there is none, and, of some
        brokers, up to where the subscription has everything acknowledged.

        Raises ``ClientError``.
        """
        connection = await self._attached_connection(self._options.operation_timeout_s)
        asked = api.CommandGetLastMessageId(consumer_id=self.id, request_id=0)
        answer = await connection.request(
            BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=asked)
        )
        return answer.getLastMessageIdResponse

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
        self.activations += is_active

    def reached_end(self) -> None:
        """The topic is terminated, and everything was delivered."""
        self.has_reached_end = True

    # ---- attaching

    def end(self, error: ClientError) -> None:
        """Attach no more; what was acknowledged until now is still told."""
        self.send_acks()
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
            read_compacted=options.read_compacted,
            start_message_id=self.start(),
            metadata=key_values(options.properties),
            subscription_properties=key_values(options.subscription_properties),
            # The command's default is that it does.
            force_topic_creation=None if options.create_topic else False,
            replicate_subscription_state=options.replicate_subscription_state or None,
            schema=self.schema,
            keySharedMeta=_key_shared_meta(options),
            initialPosition=CommandSubscribe.InitialPosition.Value(options.initial_position.label),
        )
        return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe)

    def _close_command(self) -> BaseCommand:
        close = api.CommandCloseConsumer(consumer_id=self.id, request_id=0)
        return BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)

    def _accepted(self, answer: BaseCommand) -> None:
        """A subscription's answer says nothing more than that."""

    def _resume(self, connection: Connection) -> None:
        del connection  # it is ours already
        if self.is_seeking:
            # The broker let go of the consumer to move the subscription, and accepts it again when
            # that is done; the answer to the seek may come later than the first new messages.
            self.is_seeking = False
            self._acks.take()
        self.on_reset()
        self._permits_withheld = 0
        # The broker hears what was acknowledged meanwhile before it may deliver it again.
        self.send_acks()
        self._permits_returned = self._permits_max
        self.grant_permits()

    def _ended(self, error: ClientError) -> None:
        """Nothing waits here: messages, and the callers that wait for them, are the owner's."""


def _key_shared_meta(options: ConsumerChannelOptions) -> api.KeySharedMeta | None:
    policy = options.key_shared
    if policy is None or options.type is not SubscriptionType.KEY_SHARED:
        return None
    return api.KeySharedMeta(
        keySharedMode=api.STICKY if policy.ranges else api.AUTO_SPLIT,
        hashRanges=[api.IntRange(start=first, end=last) for first, last in policy.ranges],
        allowOutOfOrderDelivery=policy.allow_out_of_order,
    )


def _message_ids(positions: list[Position]) -> list[MessageIdData]:
    return [
        MessageIdData(ledgerId=unsigned(ledger_id), entryId=unsigned(entry_id))
        for ledger_id, entry_id in positions
    ]


def _ignore(_: CommandMessage, __: bytes, ___: int, ____: int) -> None:
    """Until the owner of a channel says what it wants to hear."""
