"""Receives the entries of one topic for a subscription, and acknowledges them.

The channel counts permits, collects acknowledgements and moves the subscription. What an entry
holds, its owner knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from geminga._channels.channel import Channel
from geminga._channels.pending.acks import (
    ACK_IDS_MAX,
    AckGroup,
    Acks,
    OpenIndexes,
    Position,
    ack_set,
)
from geminga._channels.registry import Channels
from geminga._transport.connection import Connection, EntryHandler
from geminga.errors import ClientError, Closed
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    MessageIdData,
)
from geminga_protocol.pulsar.commands import encode_command, key_values
from geminga_protocol.pulsar.enums import InitialPosition, SubscriptionType
from geminga_protocol.pulsar.messages.integers import UINT64_MAX, unsigned
from geminga_protocol.pulsar.topics.topic_names import TopicName

# Key_Shared subscriptions hash keys to 0..65535; ranges of a sticky consumer are given in these
# (``KeySharedPolicy.DEFAULT_HASH_RANGE_SIZE`` of upstream's Java client).
KEY_HASHES = 1 << 16


@dataclass(frozen=True, slots=True)
class KeySharedPolicy:
    """How the consumers of a Key_Shared subscription share its keys (``key_shared`` of
    ``ConsumerOptions``).

    With ``ranges`` the consumer gets the keys whose hash (0 to 65535) lies in one of the
    ``(first, last)``, both included: ``KeySharedPolicy([(0, 32767)])`` is half of the keys. The
    ranges of all consumers must not overlap. Without ranges the broker divides the keys.
    ``allow_out_of_order`` lets a consumer that joins receive messages of a key while another
    consumer still holds earlier ones of it.

    Raises ``ValueError`` for a range that is empty or lies outside of the hashes.
    """

    ranges: Sequence[tuple[int, int]] = ()
    allow_out_of_order: bool = False

    def __post_init__(self) -> None:
        for first, last in self.ranges:
            if not 0 <= first <= last < KEY_HASHES:
                raise ValueError(f"({first}, {last}) is no range of the hashes 0 to 65535")


@dataclass(frozen=True, slots=True)
class ConsumerChannelOptions:
    """What SUBSCRIBE says about a consumer, and how much is sent to it ahead."""

    type: SubscriptionType = SubscriptionType.EXCLUSIVE
    # Chosen at random if it is ``None``.
    name: str | None = None
    # Where a new subscription begins.
    initial_position: InitialPosition = InitialPosition.LATEST
    # What brokers show of the consumer, and of the subscription.
    properties: Mapping[str, str] | None = None
    subscription_properties: Mapping[str, str] | None = None
    # Of the consumers of a Shared subscription those with a lower one are served first.
    priority_level: int = 0
    # Of a compacted topic only the newest message of every key.
    read_compacted: bool = False
    # Whether subscribing makes the topic, where brokers make topics by their being used.
    create_topic: bool = True
    replicate_subscription_state: bool = False
    # Only of a Key_Shared subscription: which consumer gets which keys.
    key_shared: KeySharedPolicy | None = None
    # So many messages are sent before the consumer takes them. As upstream's: enough to keep a
    # consumer busy over a distance.
    receiver_queue_size: int = 1000
    # Acknowledgements are collected for so long, and until there are so many; as upstream's.
    ack_group_s: float = 0.1
    ack_group_max: int = ACK_IDS_MAX
    # For requests of the consumer itself: seek, unsubscribe, closing.
    operation_timeout_s: float = 30.0


# Where the permits are, while the channel is attached:
#
#    at the broker ─▶ used up by an entry on its way, or with the owner ─▶ _permits_returned
#          ▲                                                                     │
#          └───────────────────────── FLOW ◀─────────────────────────────────────┤
#                                      dropped, while _permits_withheld > 0 ◀────┘
#
# The three places together have ``_permits_max + _permits_withheld``. A broker may send more
# messages than it has permits, by the size of the last batch, and then owes the rest. An attachment
# knows nothing of the one before: all permits begin at the broker.
class ConsumerChannel(Channel):
    """A consumer that takes entries as they are stored, and counts permits.

    A broker sends no more messages than it was granted permits; the owner returns the permit of
    each message that it is done with, and half a queue of them is granted at once. Delivery is at
    least once: whenever the broker begins anew, everything not acknowledged comes again.

    The owner sets ``on_entry``, ``on_reset``, ``start`` and ``schema`` before ``open``.
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
        # Is the subscription being moved? What is delivered meanwhile is from before the move.
        self.is_seeking = False
        # Says, at each attachment, behind which message a subscription begins that is not durable:
        # the broker forgets it with the connection.
        self.start: Callable[[], MessageIdData | None] = lambda: None
        # The schema that SUBSCRIBE carries.
        self.schema: api.Schema | None = None
        # Gets the entries, from the connection itself.
        self.on_entry: EntryHandler = lambda _, __, ___, ____: None
        # Forgets what came and was not taken yet, because it comes again or is past; says how many
        # messages that were.
        self.on_reset: Callable[[], int] = lambda: 0
        self._options = options
        self._is_durable = is_durable
        # Permits that the owner returned and the broker was not granted yet.
        self._permits_returned = 0
        self._permits_max = options.receiver_queue_size
        # So many of the permits that come back are not granted again: ``limit_permits`` lowered the
        # limit while more messages were on their way.
        self._permits_withheld = 0
        self._is_paused = False
        self._acks = AckGroup()
        self._ack_timer: asyncio.Handle | None = None

    # ---- permits and acknowledgements

    def return_permits(self, permits: int) -> None:
        """Let the broker send so many more: the owner is done with as many, or never took them."""
        self._permits_returned += permits
        # One command for half a queue: one for each message would cost as much as the message. The
        # broker does not run dry meanwhile: it still has the other half.
        if self._permits_returned * 2 >= self._permits_max:
            self.grant_permits()

    def grant_permits(self) -> None:
        """Grant the broker the permits that were returned, however few."""
        # Nothing is lost: ``resume`` grants what was returned, and attaching grants everything
        # anew.
        if self._is_paused or self._connection is None:
            return
        withheld = min(self._permits_withheld, self._permits_returned)
        self._permits_withheld -= withheld
        permits, self._permits_returned = self._permits_returned - withheld, 0
        if permits:
            flow = api.CommandFlow(consumer_id=self.id, messagePermits=permits)
            self._connection.write(encode_command(BaseCommand(type=BaseCommand.FLOW, flow=flow)))

    def limit_permits(self, permits_max: int) -> None:
        """Have at most so many messages sent ahead from now on; more may be there already."""
        assert permits_max >= 1
        # Permits cannot be taken back from a broker. With a lower limit, so many that come back are
        # kept; with a higher one, kept ones are given out before new ones.
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
        """Grant what was returned since ``pause``, and go on granting."""
        self._is_paused = False
        self.grant_permits()

    def acknowledge(self, position: Position, open_indexes: OpenIndexes | None = None) -> None:
        """Acknowledge an entry, or those of its messages that are not open.

        It is sent together with others, after ``ack_group_s`` or once there are
        ``ack_group_max``, and the broker does not confirm it (see ``acknowledge_confirmed``).
        While there is no broker the acknowledgement is kept.
        """
        self._acks.acknowledge(position, open_indexes)
        self._schedule_acks()

    def acknowledge_up_to(
        self, position: Position, open_indexes: OpenIndexes | None = None
    ) -> None:
        """Acknowledge an entry and all before it; told as by ``acknowledge``."""
        self._acks.acknowledge_up_to(position, open_indexes)
        self._schedule_acks()

    async def acknowledge_confirmed(self, acks: Acks) -> None:
        """Acknowledge entries, and wait until the broker has stored that.

        Raises ``ConnectionLost``, ``RequestTimedOut`` or ``BrokerRefused`` when that is not
        known; the broker is then told again later.
        """
        # Built before the wait: what of a batch is open is asked for now, so that the confirmation
        # is for what the caller acknowledged.
        commands = self._ack_commands(acks)
        try:
            connection = await self._attached_connection(self._options.operation_timeout_s)
            await asyncio.gather(*[connection.request(command) for command in commands])
        except (ClientError, asyncio.CancelledError):
            # A timeout does not say whether the broker has stored them. Acknowledging twice is
            # harmless.
            self._acks.put_back(acks)
            self._schedule_acks()
            raise

    def redeliver(self, positions: list[Position]) -> None:
        """Ask for these entries again; without a broker they come again anyway."""
        if self._connection is not None:
            redeliver = api.CommandRedeliverUnacknowledgedMessages(
                consumer_id=self.id,
                message_ids=[
                    MessageIdData(ledgerId=unsigned(ledger_id), entryId=unsigned(entry_id))
                    for ledger_id, entry_id in positions
                ],
            )
            command = BaseCommand(
                type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                redeliverUnacknowledgedMessages=redeliver,
            )
            self._connection.write(encode_command(command))

    def redeliver_all(self) -> None:
        """Have everything delivered again that was delivered and not acknowledged."""
        # What was forgotten was paid for by permits, and the same messages come again for new ones.
        self.return_permits(self.on_reset())
        self.redeliver([])  # the command names none for all

    def _schedule_acks(self) -> None:
        if self._ack_timer is None:
            if self._acks:
                self._ack_timer = self._loop.call_later(self._options.ack_group_s, self.send_acks)
        # Equal, and not more: further acknowledgements of this turn find that the command is about
        # to leave.
        elif len(self._acks) == self._options.ack_group_max:
            self._ack_timer.cancel()
            # Not at once: all messages of one command are often acknowledged in the same turn.
            self._ack_timer = self._loop.call_soon(self.send_acks)

    def send_acks(self) -> None:
        """Tell the broker what was acknowledged; without a broker it is kept."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        # Without a broker the group is kept; ``_resume`` sends it over the next connection.
        if self._connection is not None and self._acks:
            for command in self._ack_commands(self._acks.take()):
                self._connection.write(encode_command(command))

    def _ack_commands(self, acks: Acks) -> list[BaseCommand]:
        commands: list[BaseCommand] = []
        if acks.cumulative is not None:
            upto = [(acks.cumulative, acks.cumulative_open)]
            commands.append(self._ack_command(CommandAck.Cumulative, upto))
        # After a long time without a broker there may be more than one command carries.
        entries = list(acks.individual.items())
        for start in range(0, len(entries), ACK_IDS_MAX):
            some = entries[start : start + ACK_IDS_MAX]
            commands.append(self._ack_command(CommandAck.Individual, some))
        return commands

    def _ack_command(
        self,
        ack_type: CommandAck.AckType.ValueType,
        entries: list[tuple[Position, OpenIndexes | None]],
    ) -> BaseCommand:
        # Without a request id the broker answers nothing; ``Connection.request`` sets one where the
        # answer is waited for.
        ack = CommandAck(consumer_id=self.id, ack_type=ack_type)
        # One for each entry: made elsewhere and copied in, each would take twice as long.
        add = ack.message_id.add
        for (ledger_id, entry_id), open_indexes in entries:
            # As ``unsigned`` makes them, without two calls for each.
            message_id = add(ledgerId=ledger_id & UINT64_MAX, entryId=entry_id & UINT64_MAX)
            if open_indexes is not None:
                message_id.ack_set.extend(ack_set(open_indexes))
        return BaseCommand(type=BaseCommand.ACK, ack=ack)

    # ---- the subscription

    async def seek(self, to: MessageIdData | int, begin: Callable[[], None] = lambda: None) -> None:
        """Move the subscription to a message id, or to a publish time in milliseconds since 1970.

        ``begin`` is called just before a broker is asked: from then on ``start`` must name the
        place to which the subscription moves. Raises ``ClientError``; when the connection broke,
        whether the subscription was moved is not known.
        """
        connection = await self._attached_connection(self._options.operation_timeout_s)
        # ``request`` sets the number.
        seek = api.CommandSeek(consumer_id=self.id, request_id=0)
        if isinstance(to, int):
            seek.message_publish_time = to
        else:
            seek.message_id.CopyFrom(to)
        # Most brokers close the consumer before they answer, and it attaches again: ``_resume``
        # then ends the move, since the answer may come later than the first new messages.
        self.is_seeking = True
        # Nothing is awaited between these lines and the writing of the request, so that no message
        # is taken in between.
        begin()
        self._backoff.reset()  # being closed for a move is no failure, however often it happens
        try:
            await connection.request(BaseCommand(type=BaseCommand.SEEK, seek=seek))
            if self.is_seeking:
                # This broker moved the subscription without closing the consumer. Acknowledgements
                # from before the move must not reach the moved subscription.
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

    def told(self, command: BaseCommand) -> None:
        """A Failover subscription chose this consumer or another; or all is delivered."""
        if command.type == BaseCommand.ACTIVE_CONSUMER_CHANGE:
            self.is_active = command.active_consumer_change.is_active
            # Counted even if it was active before: a broker tells it to every new attachment.
            self.activations += self.is_active
        else:
            # The topic is terminated, and everything was delivered.
            self.has_reached_end = True

    # ---- attaching

    def end(self, error: ClientError) -> None:
        """Attach no more; what was acknowledged until now is still told."""
        # Before ``super().end``, which gives up the connection.
        self.send_acks()
        super().end(error)

    def _directory(self, connection: Connection) -> MutableMapping[int, Any]:
        return connection.consumers

    def _attach_command(self) -> BaseCommand:
        options = self._options
        key_shared: api.KeySharedMeta | None = None
        policy = options.key_shared
        if policy is not None and options.type is SubscriptionType.KEY_SHARED:
            key_shared = api.KeySharedMeta(
                keySharedMode=api.STICKY if policy.ranges else api.AUTO_SPLIT,
                hashRanges=[api.IntRange(start=first, end=last) for first, last in policy.ranges],
                allowOutOfOrderDelivery=policy.allow_out_of_order,
            )
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
            # Asked for at each attachment: an owner that keeps its own place has moved on since.
            start_message_id=self.start(),
            metadata=key_values(options.properties),
            subscription_properties=key_values(options.subscription_properties),
            # The command's default is that subscribing makes the topic.
            force_topic_creation=None if options.create_topic else False,
            replicate_subscription_state=options.replicate_subscription_state or None,
            schema=self.schema,
            keySharedMeta=key_shared,
            initialPosition=CommandSubscribe.InitialPosition.Value(options.initial_position.label),
        )
        return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe)

    def _close_command(self) -> BaseCommand:
        close = api.CommandCloseConsumer(consumer_id=self.id, request_id=0)
        return BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)

    def _resume(self, connection: Connection) -> None:
        del connection  # it is ``self._connection`` already
        # What was delivered over the last connection and not acknowledged comes again: ``on_reset``
        # below drops what still waits to be received, or it would be received twice.
        if self.is_seeking:
            # The broker let go of the consumer to move the subscription, and accepts it again when
            # that is done; the answer to the seek may come later than the first new messages.
            self.is_seeking = False
            self._acks.take()
        self.on_reset()
        self._permits_withheld = 0
        # The broker hears what was acknowledged meanwhile before it may deliver it again.
        self.send_acks()
        # A new attachment has no permits: it gets all of them, whatever the last one had left.
        self._permits_returned = self._permits_max
        self.grant_permits()
