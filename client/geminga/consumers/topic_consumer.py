"""One topic of a consumer, or one partition: its messages, from delivery to acknowledgement.

The topic's channel, its lane in the receiver queue, and its entries that are to be delivered again
are kept in step here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from geminga._channels.consumer_channel import ConsumerChannel
from geminga._channels.pending.acks import AckGroup, Position, ack_set
from geminga._channels.registry import Channels
from geminga.consumers.dead_letters import LetterPublisher
from geminga.consumers.incoming.chunks import PendingChunks
from geminga.consumers.incoming.entries import BodyOpener, Entry, EntryOpener
from geminga.consumers.incoming.read_position import ReadPosition
from geminga.consumers.incoming.values import ValueReader
from geminga.consumers.options import ConsumerSettings
from geminga.consumers.receiver_queue import Lane
from geminga.consumers.redelivery import RedeliveryTimer
from geminga.consumers.table_rows import Inbox
from geminga.crypto.decryption import Decryptor
from geminga.errors import ClientError, DecryptionFailed, NotAcknowledgeable
from geminga.message_ids import MessageId, to_proto
from geminga.messages import Message
from geminga.schemas.schema import Schema, proto_of
from geminga_protocol.pulsar.api_pb2 import CommandMessage, MessageIdData
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

# A batch may bring more messages than were asked for, the largest batch at most. A broker that
# sends still more ignores permits, and the consumer leaves it.
OVERSHOOT_MESSAGES_MAX = 1 << 20

# A refused message is delivered again at most so much later than ``nack_delay_s`` says.
NACK_GRANULARITY_S = 0.1
# The same for a message that was not acknowledged in time: ``ack_timeout_s`` has so many parts.
ACK_TIMEOUT_PARTITIONS = 10

# So many entries are kept because they become dead letters when they are refused once more. The
# oldest ones beyond it are delivered again instead, and are dead when they come.
LAST_CHANCES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """What the topics of one consumer have in common."""

    subscription: str
    settings: ConsumerSettings
    schema: Schema[Any] | None
    clock: Clock
    # Publishes dead letters and retry letters, if the consumer has a policy for them.
    letters: LetterPublisher | None = None
    # Where a reader, or a consumer whose subscription is not durable, begins. ``None`` for a
    # durable subscription, of which the broker knows where it is.
    start: MessageId | None = None
    is_start_inclusive: bool = False
    # Does it acknowledge what it takes by itself, and read each message once?
    is_reader: bool = False


# The way of an entry from the broker to its end:
#
#   channel.on_entry ─▶ _held: its schema is asked for ─▶ lane of the queue ─▶ ``_taken`` ─▶ user
#                                                                                              │
#     channel.acknowledge ◀── ``acknowledge`` ◀────────────────────────────────────────────────┤
#     channel.redeliver ◀── _nacks, after a delay ◀── ``refuse`` ◀─────────────────────────────┤
#                       ◀── _unacknowledged, after ``ack_timeout_s`` ◀─────────────────────────┘
#
# A reconnection or a seek (``_forget_arrived``) empties the first two places and both timers: the
# broker sends those entries again, or they lie before the place sought. The permit of a message
# goes back once: in ``_taken``, or as soon as it is certain that the user will not get it.
class TopicConsumer:
    """Receives one topic into its lane of ``queue``. ``on_end`` is called when it has ended."""

    def __init__(
        self,
        channels: Channels,
        topic: TopicName,
        spec: SubscriptionSpec,
        queue: Inbox,
        on_end: Callable[[TopicConsumer, ClientError], None],
    ) -> None:
        settings = spec.settings
        self.topic = str(topic)
        self._topic = topic
        self.partition = topic.partition_index
        self.channel = self._new_channel(channels, spec, on_end)
        # Has a broker accepted it once? Set by the owner, which opens the channel.
        self.is_open = False
        self._settings = settings
        self._queue = queue
        self._lane = Lane(self._taken)
        self._pending_chunks = PendingChunks(
            settings.chunked_messages_max, settings.chunk_timeout_s, spec.clock
        )
        self._pending_chunks.on_expired = self.channel.acknowledge
        self._pending_chunks.on_dropped = self._ask_again_later
        self._values = None if spec.schema is None else ValueReader(spec.schema)
        self._arrived_max = settings.receiver_queue_size + OVERSHOOT_MESSAGES_MAX
        # Entries that wait, in their order, until a broker has told the schema of the first one.
        self._held: list[Entry] = []
        # Does a task ask for schemas?
        self._is_learning = False
        self._channels = channels
        decryptor = None if settings.decryption is None else Decryptor(settings.decryption)
        bodies = BodyOpener(self._pending_chunks, decryptor)
        consumes_encrypted = settings.crypto_failure_action == "consume"
        self._opener = EntryOpener(self.topic, self._values, bodies, consumes_encrypted)
        # Entries that were refused, and (with an ``ack_timeout_s``) those that were received and
        # not acknowledged: both are asked for again when their time has come.
        self._nacks = RedeliveryTimer(NACK_GRANULARITY_S, self._redeliver)
        self._unacknowledged: RedeliveryTimer | None = None
        if (timeout_s := settings.ack_timeout_s) is not None:
            granularity_s = timeout_s / ACK_TIMEOUT_PARTITIONS
            self._unacknowledged = RedeliveryTimer(granularity_s, self._redeliver)
        self._letters = spec.letters
        # The messages of entries that become dead letters when they are refused once more.
        self._last_chances: dict[Position, list[Message[Any]]] = {}
        # The entry that came last, whatever became of it.
        self.last_position: Position | None = None
        self._is_reader = spec.is_reader
        # How far a reader or a subscription that is not durable is, and was before the move that is
        # under way.
        self._reading: ReadPosition | None = None
        if spec.start is not None:
            self._reading = ReadPosition(start=spec.start, is_inclusive=spec.is_start_inclusive)
        # Read only while the channel is seeking. After the move it is stale, until the next one
        # sets it.
        self._left: ReadPosition | None = None
        # The message in a batch to which the subscription was last moved. Those before it in its
        # batch are left out: by default Apache Pulsar's brokers send the whole batch.
        self._sought: MessageId | None = None

    def _new_channel(
        self,
        channels: Channels,
        spec: SubscriptionSpec,
        on_end: Callable[[TopicConsumer, ClientError], None],
    ) -> ConsumerChannel:
        channel = ConsumerChannel(
            channels,
            self._topic,
            spec.subscription,
            spec.settings,
            is_durable=spec.start is None,
        )
        info = None if spec.schema is None else spec.schema.schema_info
        channel.schema = None if info is None else proto_of(info)
        # A function, called at each attachment: a seek replaces ``_reading``.
        channel.start = lambda: None if self._reading is None else self._reading.start_message_id()
        channel.on_entry = self._entry_arrived
        channel.on_reset = self._forget_arrived
        channel.on_end = lambda error: on_end(self, error)
        return channel

    # ---- acknowledging

    def acknowledge(
        self, message: Message[Any] | MessageId, group: AckGroup | ConsumerChannel
    ) -> None:
        """Acknowledge a message to ``group``, which tells the broker.

        Raises ``NotAcknowledgeable``.
        """
        # HOT: most messages are acknowledged one by one.
        batch_index = message.batch_index
        if batch_index >= 0:
            acks = message.batch_acks
            if acks is None:
                # An id that was kept as bytes knows nothing of the other messages of its batch.
                assert isinstance(message, MessageId)
                if not self._settings.batch_index_acks or message.batch_size <= batch_index:
                    raise NotAcknowledgeable(
                        f"{message} is in a batch: only the id that came with it can acknowledge "
                        "it, or, with batch_index_acks, one that knows the size of the batch"
                    )
                # This calls all other messages open, also those that are acknowledged. A broker
                # keeps only the bits that are set on both sides, so that none is opened again.
                others = ((1 << message.batch_size) - 1) & ~(1 << batch_index)
                group.acknowledge(message.position, lambda: others)
                return
            if not acks.acknowledge(batch_index):
                # Without ``batch_index_acks`` brokers only know whole entries: they hear of it with
                # the last message of the batch.
                if self._settings.batch_index_acks:
                    group.acknowledge(message.position, acks.open_indexes)
                return
        # The entry is done with as a whole: it need not come again. Of a batch this line is reached
        # once all its messages are acknowledged, so that a refused message of it stays in
        # ``_nacks`` until then.
        position = message.position
        self._nacks.remove(position)
        if self._last_chances:
            self._last_chances.pop(position, None)
        if self._unacknowledged is not None:
            self._unacknowledged.remove(position)
        group.acknowledge(position)
        # The chunks before the last are entries of their own, which no message refers to: they are
        # acknowledged with the whole, or would come again without end.
        for earlier in message.chunks:
            group.acknowledge(earlier)

    def acknowledge_up_to(
        self, message: Message[Any] | MessageId, group: AckGroup | ConsumerChannel
    ) -> None:
        """Acknowledge a message and all before it to ``group``. Raises ``NotAcknowledgeable``.

        Within a batch, and without ``batch_index_acks``, that is everything up to the entry before
        the batch. The first entry of a ledger has no known entry before it: then it is nothing, and
        the next cumulative acknowledgement covers the rest.
        """
        kind = self._settings.type
        if kind.tracks_entries:
            raise NotAcknowledgeable(
                f"a {kind.label} subscription has no order to acknowledge up to"
            )
        ledger_id, entry_id = message.position
        if message.batch_index >= 0:
            acks = message.batch_acks
            if acks is None or not acks.acknowledge_up_to(message.batch_index):
                if acks is not None and self._settings.batch_index_acks:
                    self._stop_timers_up_to((ledger_id, entry_id - 1))
                    group.acknowledge_up_to((ledger_id, entry_id), acks.open_indexes)
                    return
                entry_id -= 1
        if entry_id >= 0:
            self._stop_timers_up_to((ledger_id, entry_id))
            group.acknowledge_up_to((ledger_id, entry_id))

    def _stop_timers_up_to(self, position: Position) -> None:
        """Ask again for no entry up to this one: all of them are acknowledged as wholes."""
        self._nacks.remove_up_to(position)
        if self._unacknowledged is not None:
            self._unacknowledged.remove_up_to(position)

    def refuse(self, message: Message[Any] | MessageId) -> None:
        """Have a message delivered again later, together with its batch."""
        count = message.redelivery_count if isinstance(message, Message) else 0
        # A bare id does not tell how often its message was delivered: it gets the delay of the
        # first refusal.
        delay_s = self._settings.nack_delay(count)
        # All chunks come again, since a message is put together from its first chunk on.
        for position in (*message.chunks, message.position):
            if self._unacknowledged is not None:
                self._unacknowledged.remove(position)
            self._nacks.add(position, delay_s)

    def _taken(self, messages: Sequence[Message[Any]]) -> None:
        """Account for messages that have left the queue: the user has them now."""
        self.channel.return_permits(len(messages))
        if self._unacknowledged is not None:
            timeout_s = self._settings.ack_timeout_s
            assert timeout_s is not None
            for message in messages:
                self._unacknowledged.add(message.position, timeout_s)
        # What is taken during a move is from before it, and counts in case the move fails. Counted
        # in ``_reading``, the place to which it moves, it would undo the move when the channel
        # attaches again.
        reading = self._left if self.channel.is_seeking else self._reading
        if reading is not None:
            reading.last = messages[-1]
            if self._is_reader:
                self.channel.acknowledge_up_to(messages[-1].position)

    def _ask_again_later(self, position: Position) -> None:
        self._nacks.add(position, self._settings.nack_delay_s)

    def _redeliver(self, positions: list[Position]) -> None:
        """Ask again for entries that were refused, or not acknowledged in time; those that had
        their last chance become dead letters."""
        again: list[Position] = []
        for position in positions:
            messages = self._last_chances.pop(position, None)
            # A list, no generator: ``all`` would stop at the first message that finds no room.
            made = [self._make_letter(message) for message in messages or ()]
            if messages is None or not all(made):
                again.append(position)
        if again:
            self.channel.redeliver(again)

    def _make_letter(self, message: Message[Any]) -> bool:
        """Make a dead letter of a message, unless it was acknowledged; says whether there is room
        for the letter."""
        assert self._letters is not None
        if message.batch_acks is not None and not message.batch_acks.is_open(message.batch_index):
            return True
        return self._letters.add_dead(message, self._letter_settled)

    def _letter_settled(self, message: Message[Any], error: ClientError | None) -> None:
        if self.channel.error is not None:
            return
        if error is None:
            # Only now: a message that was acknowledged before its letter is stored could be lost.
            self.acknowledge(message, self.channel)
        else:
            self._ask_again_later(message.position)

    def _without_dead(self, messages: list[Message[Any]]) -> list[Message[Any]]:
        """The messages of one entry that are not dead; the others become dead letters."""
        letters = self._letters
        assert letters is not None
        # The broker counts: 0 for the first delivery. A count above the limit means that the last
        # chance led to no letter, for example since its consumer was gone by then. Those messages
        # never reach the user.
        count = messages[0].redelivery_count
        if count > letters.redeliveries_max:
            return [message for message in messages if not self._make_letter(message)]
        if count == letters.redeliveries_max:
            # The last delivery: messages that are refused now become letters without another one.
            self._last_chances[messages[0].position] = messages
            if len(self._last_chances) > LAST_CHANCES_MAX:
                del self._last_chances[next(iter(self._last_chances))]
        return messages

    # ---- the subscription

    async def seek(self, to: MessageId | int) -> None:
        """Move the subscription to a message, or to a publish time in milliseconds since 1970.

        Raises ``ClientError``; what the consumer leaves out is then what it was before.
        """
        if isinstance(to, int):
            proto: MessageIdData | int = to
        else:
            # A message in chunks is named by its last one, and can only be put together from the
            # first.
            proto = to_proto(to.first_chunk or to)
            if to.batch_index > 0:  # of its batch, this message and those behind it are open
                whole = (1 << max(to.batch_size, to.batch_index + 1)) - 1
                proto.ack_set.extend(ack_set(lambda: whole & ~((1 << to.batch_index) - 1)))
        # To be restored if the seek fails.
        before = self._reading, self._sought

        # Called once there is a broker to ask, which may be long after this: until then messages
        # are taken, and attachments made, as before.
        def begin() -> None:
            self._sought = None if isinstance(to, int) or to.batch_index <= 0 else to
            if self._reading is not None:
                # The broker may close the reader to move it, which then attaches at its place.
                self._left, self._reading = self._reading, self._reading.moved(to)

        try:
            await self.channel.seek(proto, begin)
        except BaseException:
            # Also where the outcome is unknown: the caller is told that the move failed, and a
            # reader goes on from its old place.
            self._reading, self._sought = before
            raise

    async def has_more(self) -> bool:
        """Does the topic of a reader have a message behind the one that was taken last?"""
        answer = await self.channel.last_message_id()
        return self._reading is not None and self._reading.has_more(answer)

    # ---- what arrives

    def _entry_arrived(self, command: CommandMessage, buffer: bytes, start: int, end: int) -> None:
        """Open an entry and hand its messages on, or hold it until its schema is known."""
        # The lane holds messages and ``_held`` entries; no more exact count is needed for a bound
        # that a broker reaches only by ignoring permits. Both are dropped when the channel attaches
        # again.
        if len(self._lane.messages) + len(self._held) > self._arrived_max:
            log.error("more messages than asked for", extra={"consumer": self.channel.title})
            self.channel.leave()
            return
        entry = self._opener.open(command, buffer, start, end)
        if entry.error is not None:
            told = {
                "consumer": self.channel.title,
                "position": entry.position,
                "reason": str(entry.error),
            }
            action = self._settings.crypto_failure_action
            if isinstance(entry.error, DecryptionFailed) and action == "discard":
                log.warning("encrypted message discarded", extra=told)
                self.channel.acknowledge(entry.position)
            else:
                # Another consumer may have the key, or a later one know the feature.
                log.error("unreadable message", extra=told)
                self._ask_again_later(entry.position)
            self.channel.return_permits(entry.sent_messages)
            return
        # Behind an entry that waits all others wait, too: messages keep their order.
        if self._values is not None and (self._held or self._wants_schema_of(entry)):
            self._held.append(entry)
            if not self._is_learning:
                self._is_learning = True
                self._channels.spawn(self._learn_schemas(), name=f"learn schemas of {self.topic}")
            return
        self._hand_on(entry)

    def _hand_on(self, entry: Entry) -> None:
        """Put the messages of an entry into the queue, except those that were not asked for."""
        messages = entry.messages
        if self.channel.is_seeking:
            messages = []  # from before the move
        elif self._reading is not None and self._is_reader:
            messages = [each for each in messages if not self._reading.is_past(each)]
            if not messages and self._reading.since_ms is not None and self._reading.last is None:
                # It lies before the time to which the reader was moved: no message of it is ever
                # taken, which would acknowledge it. By acknowledgements the broker knows what a
                # reader still has to read.
                self.channel.acknowledge_up_to(entry.position)
        elif self._sought is not None and entry.position == self._sought.position:
            # Those before the index count as acknowledged, so that the batch is acknowledged once
            # the messages from there on are.
            index = self._sought.batch_index
            for each in messages:
                if each.batch_index < index and each.batch_acks is not None:
                    each.batch_acks.acknowledge(each.batch_index)
            messages = [each for each in messages if each.batch_index >= index]
        # Behind the filters above: a message that they leave out must not become a letter.
        if self._letters is not None and messages:
            messages = self._without_dead(messages)
        # At once, since no user takes them: a topic whose entries are all left out would otherwise
        # use up its permits, and the broker would send no more.
        if len(messages) < entry.sent_messages:
            self.channel.return_permits(entry.sent_messages - len(messages))
        self.last_position = entry.position
        self._queue.put(self._lane, messages)

    def _wants_schema_of(self, entry: Entry) -> bool:
        return (
            self._values is not None
            and bool(entry.messages)
            and self._values.wants(entry.messages[0].schema_version)
        )

    async def _learn_schemas(self) -> None:
        """Hand on the held entries in their order, asking a broker for each schema they need."""
        while self._held:
            # Read anew in each round: during the wait for a schema the channel may have been reset,
            # and other entries may be held now.
            entry = self._held[0]
            if not self._wants_schema_of(entry):
                # Nothing is awaited between this and handing it on, so that entries keep their
                # order.
                del self._held[0]
                self._hand_on(entry)
                continue
            version = entry.messages[0].schema_version
            assert version is not None
            assert self._values is not None
            try:
                # It asks again by itself, for as long as an operation may take. So the next round
                # of this loop needs no delay of its own.
                writer = await self._channels.schema(self._topic, version)
            except ClientError as error:
                # A refusal is kept. A broker that cannot tell at the moment is asked again, as long
                # as the channel is open.
                if not error.retry or self.channel.error is not None:
                    self._values.refuse(version, error)
            else:
                self._values.learn(version, writer)
        # Nothing is awaited since the loop found ``_held`` empty: an entry that comes from here on
        # spawns the next task.
        self._is_learning = False

    def _forget_arrived(self) -> int:
        """Drop what has come and was not received, and all timers: it comes again, or is past
        after a seek. Says how many messages were dropped."""
        self.stop_timers()
        held = sum(entry.sent_messages for entry in self._held)
        self._held.clear()
        return held + self._queue.clear(self._lane)

    # ---- life

    def stop_timers(self) -> None:
        """Ask for no entry again: the channel attaches anew, or has ended."""
        self._nacks.clear()
        self._last_chances.clear()
        self._pending_chunks.clear()
        if self._unacknowledged is not None:
            self._unacknowledged.clear()

    async def close(self) -> None:
        """Tell the broker what is acknowledged, and leave it. Closing twice is harmless."""
        self._held.clear()
        if self.channel.error is None:
            # A group may go on without this topic. Messages of it could be received then, though
            # not be acknowledged any more.
            self._queue.clear(self._lane)
            await self.channel.close()
