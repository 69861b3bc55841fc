"""One topic of a consumer, or one partition: what comes from it, and what becomes of that.

The lane of the topic in the receiver queue, its channel, and the entries that are to be delivered
again are kept in step here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from geminga._channels.channel import Channels
from geminga._channels.consumer_channel import ConsumerChannel
from geminga._channels.pending.acks import AckGroup, OpenIndexes, Position, ack_set
from geminga.consumers.dead_letters import LetterPublisher
from geminga.consumers.incoming.chunks import PendingChunks
from geminga.consumers.incoming.entries import Entry, EntryOpener
from geminga.consumers.incoming.read_position import ReadPosition
from geminga.consumers.incoming.values import ValueReader
from geminga.consumers.options import ConsumerSettings
from geminga.consumers.receiver_queue import Inbox, Lane
from geminga.consumers.redelivery import RedeliveryTimer
from geminga.crypto.decryption import Decryptor
from geminga.errors import (
    ClientError,
    DecryptionFailed,
    NotAcknowledgeable,
    UnreadableMessage,
)
from geminga.message_ids import MessageId, from_proto, to_proto
from geminga.messages import Message
from geminga.schemas.schema import Schema, proto_of
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import CommandMessage, MessageIdData
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

# A batch may bring more messages than were asked for, the largest batch at most. A broker that
# sends still more does not count, and is left.
OVERSHOOT_MESSAGES_MAX = 1 << 20

# How much later than asked for a refused message may be asked for again.
NACK_GRANULARITY_S = 0.1
# The same for one that was not acknowledged in time, as a part of that time.
ACK_TIMEOUT_PARTITIONS = 10

# Entries kept because they become dead letters when they are refused once more. The oldest beyond
# it are delivered again instead, and are dead when they come.
LAST_CHANCES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """What the topics of one consumer have in common.

    A reader, and a consumer whose subscription is not durable, has a ``start`` of its own instead
    of a subscription that a broker keeps.
    """

    subscription: str
    settings: ConsumerSettings
    schema: Schema[Any] | None
    clock: Clock
    letters: LetterPublisher | None = None
    start: MessageId | None = None
    is_start_inclusive: bool = False
    is_reader: bool = False

    def read_position(self) -> ReadPosition | None:
        """Where a reader, or a subscription that no broker keeps, begins."""
        if self.start is None:
            return None
        return ReadPosition(self.start, is_inclusive=self.is_start_inclusive)

    def told_schema(self) -> api.Schema | None:
        """What brokers are told of the schema."""
        info = None if self.schema is None else self.schema.schema_info
        return None if info is None else proto_of(info)


class TopicConsumer:
    """Receives one topic into its lane of ``queue``. ``on_end`` is told when no more will come."""

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
        name, is_durable = spec.subscription, spec.start is None
        self.channel = ConsumerChannel(channels, topic, name, settings, is_durable=is_durable)
        # Was it accepted by a broker once?
        self.is_open = False
        self.channel.schema = spec.told_schema()
        self._settings = settings
        self._queue = queue
        self._lane = Lane(self._taken)
        self._pending_chunks = PendingChunks(
            settings.chunked_messages_max, settings.chunk_timeout_s, spec.clock
        )
        self._pending_chunks.on_expired = self._acknowledge_entries
        self._pending_chunks.on_dropped = self._ask_again_later
        self._values = None if spec.schema is None else ValueReader(spec.schema)
        self._arrived_max = settings.receiver_queue_size + OVERSHOOT_MESSAGES_MAX
        # Entries that wait until the schema is known that the first of them was written with.
        self._held: list[Entry] = []
        self._is_learning = False
        self._channels = channels
        self._opener = EntryOpener(
            self.topic,
            self._values,
            self._pending_chunks,
            None if settings.decryption is None else Decryptor(settings.decryption),
            consumes_encrypted=settings.crypto_failure_action == "consume",
        )
        self._nacks = RedeliveryTimer(NACK_GRANULARITY_S, self._redeliver)
        self._unacknowledged: RedeliveryTimer | None = None
        if (timeout_s := settings.ack_timeout_s) is not None:
            granularity_s = timeout_s / ACK_TIMEOUT_PARTITIONS
            self._unacknowledged = RedeliveryTimer(granularity_s, self._redeliver)
        self._letters = spec.letters
        self._last_chances: dict[Position, list[Message[Any]]] = {}
        # The entry that came last, whatever became of it.
        self.last_position: Position | None = None
        # Of a reader, and of a subscription that no broker keeps.
        self._is_reader = spec.is_reader
        self._reading = spec.read_position()
        self._left: ReadPosition | None = None  # where it was, while it is moved
        # The message in a batch that a subscription was last set to: what is before it in its
        # batch was not asked for. Brokers that keep no acknowledgements within batches (Apache
        # Pulsar's default) send the whole batch all the same.
        self._sought: MessageId | None = None
        self.channel.start = self._start_message_id
        self.channel.on_entry = self._entry_arrived
        self.channel.on_reset = self._forget_arrived
        self.channel.on_end = lambda error: on_end(self, error)

    # ---- acknowledging

    def acknowledge(
        self, message: Message[Any] | MessageId, group: AckGroup | ConsumerChannel
    ) -> None:
        """Acknowledge a message to ``group``, by which the broker is told.

        Raises ``NotAcknowledgeable``.
        """
        if message.batch_index >= 0:
            open_indexes = self._open_after(message)
            if open_indexes is not None:
                if self._settings.batch_index_acks:
                    group.acknowledge(message.position, open_indexes)
                return
        position = message.position
        self._forget(position)
        group.acknowledge(position)
        for earlier in message.chunks:
            group.acknowledge(earlier)

    def _open_after(self, message: Message[Any] | MessageId) -> OpenIndexes | None:
        """What is open of a batch when one of its messages is acknowledged; ``None`` if nothing."""
        acks = message.batch_acks
        if acks is not None:
            return None if acks.acknowledge(message.batch_index) else acks.open_indexes
        batch_index = message.batch_index
        assert isinstance(message, MessageId)
        if not self._settings.batch_index_acks or message.batch_size <= batch_index:
            raise NotAcknowledgeable(
                f"{message} is in a batch: only the id that came with it can acknowledge it, "
                "or, with batch_index_acks, one that knows the size of the batch"
            )
        others = ((1 << message.batch_size) - 1) & ~(1 << batch_index)
        return lambda: others

    def acknowledge_up_to(
        self, message: Message[Any] | MessageId, group: AckGroup | ConsumerChannel
    ) -> None:
        """Acknowledge a message and all before it to ``group``. Raises ``NotAcknowledgeable``.

        In the midst of a batch, and without batch index acknowledgements, that is up to the entry
        before the batch, if it is known: that of the ledger before waits for the next one.
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
                    group.acknowledge_up_to((ledger_id, entry_id), acks.open_indexes)
                    return
                entry_id -= 1
        if entry_id >= 0:
            group.acknowledge_up_to((ledger_id, entry_id))

    def refuse(self, message: Message[Any] | MessageId) -> None:
        """Have a message delivered again later, and those that came with it."""
        count = message.redelivery_count if isinstance(message, Message) else 0
        delay_s = self._settings.nack_delay(count)
        for position in (*message.chunks, message.position):
            if self._unacknowledged is not None:
                self._unacknowledged.remove(position)
            self._nacks.add(position, delay_s)

    def redeliver_all(self) -> None:
        """Ask for everything again that was delivered and not acknowledged."""
        self.channel.redeliver_all()

    def _taken(self, messages: Sequence[Message[Any]]) -> None:
        """Messages have left the queue: the user has them."""
        self.channel.return_permits(len(messages))
        if self._unacknowledged is not None:
            timeout_s = self._settings.ack_timeout_s
            assert timeout_s is not None
            for message in messages:
                self._unacknowledged.add(message.position, timeout_s)
        # What is taken during a move is from before it, and counts should the move fail. Counted in
        # ``_reading``, where it goes, it would undo the move when the channel attaches again.
        reading = self._left if self.channel.is_seeking else self._reading
        if reading is not None:
            reading.take(messages[-1])
            if self._is_reader:
                self.channel.acknowledge_up_to(messages[-1].position)

    def _forget(self, position: Position) -> None:
        """An entry is acknowledged: it need not come again."""
        self._nacks.remove(position)
        if self._last_chances:
            self._last_chances.pop(position, None)
        if self._unacknowledged is not None:
            self._unacknowledged.remove(position)

    def _acknowledge_entries(self, positions: list[Position]) -> None:
        for position in positions:
            self.channel.acknowledge(position)

    def _ask_again_later(self, positions: list[Position]) -> None:
        for position in positions:
            self._nacks.add(position, self._settings.nack_delay_s)

    def _redeliver(self, positions: list[Position]) -> None:
        """These entries were refused, or not acknowledged in time."""
        again: list[Position] = []
        for position in positions:
            messages = self._last_chances.pop(position, None)
            buried = [self._bury(message) for message in messages or ()]
            if messages is None or not all(buried):
                again.append(position)
        if again:
            self.channel.redeliver(again)

    def _bury(self, message: Message[Any]) -> bool:
        """Make a dead letter of a message, unless it was acknowledged; says whether that goes."""
        assert self._letters is not None
        if message.batch_acks is not None and not message.batch_acks.is_open(message.batch_index):
            return True
        return self._letters.bury(message, self._buried)

    def _buried(self, message: Message[Any], error: ClientError | None) -> None:
        if self.channel.error is not None:
            return
        if error is None:
            self.acknowledge(message, self.channel)
        else:
            self._ask_again_later([message.position])

    def _without_dead(self, messages: list[Message[Any]]) -> list[Message[Any]]:
        """Of what came in one entry, what is to be received."""
        letters = self._letters
        assert letters is not None
        count = messages[0].redelivery_count
        if count > letters.redeliveries_max:
            return [message for message in messages if not self._bury(message)]
        if count == letters.redeliveries_max:
            self._last_chances[messages[0].position] = messages
            if len(self._last_chances) > LAST_CHANCES_MAX:
                del self._last_chances[next(iter(self._last_chances))]
        return messages

    def _start_message_id(self) -> MessageIdData | None:
        return None if self._reading is None else self._reading.start_message_id()

    # ---- the subscription

    async def seek(self, to: MessageId | int) -> None:
        """Set the subscription to a message, or to a publish time in milliseconds since 1970."""
        if isinstance(to, int):
            proto: MessageIdData | int = to
        else:
            proto = to_proto(to.first_chunk or to)
            if to.batch_index > 0:  # of its batch, this message and those behind it
                whole = (1 << max(to.batch_size, to.batch_index + 1)) - 1
                proto.ack_set.extend(ack_set(lambda: whole & ~((1 << to.batch_index) - 1)))
        before = self._reading, self._sought

        def begin() -> None:
            self._sought = None if isinstance(to, int) or to.batch_index <= 0 else to
            if self._reading is not None:
                # The broker may forget the reader while it moves it, and is then told anew.
                self._left, self._reading = self._reading, self._reading.moved(to)

        try:
            await self.channel.seek(proto, begin)
        except BaseException:
            self._reading, self._sought = before
            raise

    async def last_message_id(self) -> MessageId:
        """The id of the topic's last message; its ``entry_id`` is -1 if there is none."""
        answer = await self.channel.last_message_id()
        return from_proto(answer.last_message_id, self.partition, self.topic)

    async def has_more(self) -> bool:
        """Of a reader: is there a message behind the one that was taken last?"""
        answer = await self.channel.last_message_id()
        return self._reading is not None and self._reading.has_more(answer)

    # ---- what the channel tells

    def _entry_arrived(self, command: CommandMessage, buffer: bytes, start: int, end: int) -> None:
        if len(self._lane.messages) + len(self._held) > self._arrived_max:
            log.error("more messages than asked for", extra={"consumer": self.channel.title})
            self.channel.leave()
            return
        entry = self._opener.open(command, buffer, start, end)
        if entry.error is not None:
            self._put_aside(entry, entry.error)
            return
        if self._values is not None and (self._held or self._wants_schema_of(entry)):
            self._held.append(entry)
            if not self._is_learning:
                self._is_learning = True
                self._channels.spawn(self._learn_schemas(), name=f"learn schemas of {self.topic}")
            return
        self._hand_on(entry)

    def _hand_on(self, entry: Entry) -> None:
        messages = entry.messages
        if self.channel.is_seeking:
            messages = []
        elif self._reading is not None and self._is_reader:
            messages = [each for each in messages if not self._reading.is_past(each)]
            if not messages and self._reading.looks_for_time:
                # Nobody takes it: that it is done with is how the broker knows what is left.
                self.channel.acknowledge_up_to(entry.position)
        elif self._sought is not None and entry.position == self._sought.position:
            messages = _from_index(self._sought.batch_index, messages)
        if self._letters is not None and messages:
            messages = self._without_dead(messages)
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
        """Hand on what is held, in its order, asking for each schema that it needs."""
        while self._held:
            entry = self._held[0]
            if not self._wants_schema_of(entry):
                del self._held[0]
                self._hand_on(entry)
                continue
            version = entry.messages[0].schema_version
            assert version is not None
            assert self._values is not None
            try:
                writer = await self._channels.schema(self._topic, version)
            except ClientError as error:
                # A refusal is remembered: that no broker can tell now is none.
                if not error.retry or self.channel.error is not None:
                    self._values.refuse(version, error)
            else:
                self._values.learn(version, writer)
        self._is_learning = False

    def _put_aside(self, entry: Entry, error: UnreadableMessage) -> None:
        told = {"consumer": self.channel.title, "position": entry.position, "reason": str(error)}
        action = self._settings.crypto_failure_action
        if isinstance(error, DecryptionFailed) and action == "discard":
            log.warning("encrypted message discarded", extra=told)
            self.channel.acknowledge(entry.position)
        else:
            log.error("unreadable message", extra=told)
            self._nacks.add(entry.position, self._settings.nack_delay_s)
        self.channel.return_permits(entry.sent_messages)

    def _forget_arrived(self) -> int:
        """What has come and was not received comes again, or is past after a seek."""
        self._nacks.clear()
        self._last_chances.clear()
        self._pending_chunks.clear()
        if self._unacknowledged is not None:
            self._unacknowledged.clear()
        held = sum(entry.sent_messages for entry in self._held)
        self._held.clear()
        return held + self._queue.clear(self._lane)

    # ---- life

    async def open(self) -> None:
        """Have a broker accept it. Raises the ``ClientError`` for which none did."""
        await self.channel.open()
        self.is_open = True

    def ended(self) -> None:
        """The channel is over: what has come can still be received, and nothing comes again."""
        self._nacks.clear()
        self._last_chances.clear()
        self._pending_chunks.clear()
        if self._unacknowledged is not None:
            self._unacknowledged.clear()

    async def close(self) -> None:
        """Tell the broker what is acknowledged, and leave it. Closing twice is harmless."""
        self._held.clear()
        if self.channel.error is None:
            self._queue.clear(self._lane)
            await self.channel.close()


def _from_index(batch_index: int, messages: list[Message[Any]]) -> list[Message[Any]]:
    """Of the messages of a batch those from an index on. The ones before it are acknowledged
    here, so that the batch is once all others are."""
    kept: list[Message[Any]] = []
    for message in messages:
        if message.batch_index >= batch_index:
            kept.append(message)
        elif message.batch_acks is not None:
            message.batch_acks.acknowledge(message.batch_index)
    return kept
