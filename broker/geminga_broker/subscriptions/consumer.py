"""One consumer: a client's place in a subscription, its permits, and what it was sent.

Delivering writes ready frames into the session's outgoing buffer: the header is built by hand, the
stored payload follows as it came. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from geminga_broker.client_session import ClientSession
from geminga_broker.managed_ledger.acknowledged import Acknowledged, bits_set
from geminga_broker.managed_ledger.payloads import message_count, without_broker_entry
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.subscriptions.decisions.redelivery_counts import RedeliveryCounts
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_protocol.pulsar.message import NO_CONSUMER_EPOCH, MessageEncoder
from geminga_runtime.clock import Clock
from geminga_server.metrics import Meter

# More messages than anybody holds.
NO_LIMIT = 1 << 62

# What a consumer may have room for: stats show it as a number of 32 bits, and nobody sends so many.
PERMITS_MAX = 2**31 - 1

# Bytes handed to a session in one go; then it is asked again whether its socket takes more.
DELIVERY_BYTES_MAX = 1024 * 1024


class ConsumerListener(Protocol):
    """What a consumer's client is told besides messages; ``sessions`` implements it."""

    def active_changed(self, consumer: Consumer, *, is_active: bool) -> None:
        """Whether it is the active one of its Failover subscription has changed."""
        ...

    def closed(self, consumer: Consumer) -> None:
        """The topic let it go (a seek, an unload): its client must subscribe again."""
        ...

    def reached_end(self, consumer: Consumer) -> None:
        """The topic is terminated and everything acknowledged: no message will come any more."""
        ...


class Consumer:
    """A connected consumer. ``permits`` may go below zero: a batch is never split.

    Subscriptions that deliver in order use its ``epoch``, and ``reads_compacted``: whether it is
    sent only what compaction leaves of the topic. ``gets_broker_entries`` says whether its client
    is sent what brokers write in front of messages.
    """

    def __init__(
        self,
        session: ClientSession,
        request: SubscribeRequest,
        *,
        clock: Clock,
        listener: ConsumerListener,
    ) -> None:
        consumer_id, partition = request.consumer.consumer_id, request.partition
        self.session = session
        self.listener = listener
        self.consumer_id = consumer_id
        self.name = request.consumer.name
        self.priority = request.priority
        self.partition = partition
        self.metadata = request.metadata
        self.key_shared = request.key_shared
        self.connected_at_ms = clock.wall_ms()
        self._is_end_told = False
        self.permits = 0
        self.epoch = request.epoch
        self.reads_compacted = request.reads_compacted
        self.gets_broker_entries = session.gets_broker_entries
        self.takes_any_schema = request.takes_any_schema
        self.unacknowledged = 0
        self.pending: dict[EntryId, int] = {}
        self.is_blocked_on_unacknowledged = False
        self._unacknowledged_max = NO_LIMIT
        self._clock = clock
        self._encoder = MessageEncoder(consumer_id, partition)
        self._encoder_in_order = self._encoder
        if request.epoch != NO_CONSUMER_EPOCH:
            self._encoder_in_order = MessageEncoder(consumer_id, partition, request.epoch)
        self.meter = Meter(None, 0, 0, 0, 0)
        self.messages_out = 0
        self.bytes_out = 0
        self.entries_out = 0
        self.messages_redelivered = 0
        self.messages_acknowledged = 0
        self.last_flow_ms = 0
        self.last_sent_ms = 0
        self.last_acknowledged_ms = 0

    def tell_end(self) -> None:
        """Its topic is terminated, and it has acknowledged everything: tell its client once."""
        if not self._is_end_told:
            self._is_end_told = True
            self.listener.reached_end(self)

    def begin_epoch(self, epoch: int) -> None:
        """Messages sent in order bear ``epoch`` from now on; an earlier one changes nothing.

        A client that asks for all messages again drops those that were sent before and still come.
        """
        if epoch > self.epoch:
            self.epoch = epoch
            self._encoder_in_order = MessageEncoder(self.consumer_id, self.partition, epoch)

    @property
    def can_take(self) -> bool:
        """Whether a message may be sent now."""
        return (
            self.permits > 0 and self.session.is_writable and not self.is_blocked_on_unacknowledged
        )

    @property
    def room(self) -> int:
        """How many messages may be sent now."""
        if not self.can_take:
            return 0
        return min(self.permits, self._unacknowledged_max - self.unacknowledged)

    def look(self, payload: bytes) -> tuple[int, bytes]:
        """How many messages an entry as it is stored has for consumers, and what this one is sent
        of it; 0 where there is nothing to send."""
        sent = without_broker_entry(payload)
        return message_count(sent), payload if self.gets_broker_entries else sent

    def deliver_in_order(
        self,
        ledger_id: int,
        run: list[Entry],
        acknowledged: Acknowledged,
        pass_over: Callable[[int, int], None],
    ) -> int:
        """Send entries of ``run`` while permits last, skipping acknowledged ones; how many it used.

        ``pass_over`` is called for those that have no messages. For subscriptions with one active
        consumer, which track no single message.
        """
        out = self.session.out
        header = self._encoder_in_order.header
        permits = self.permits
        has_holes = acknowledged.has_holes
        has_partial = bool(acknowledged.partial_entries)
        used = sent = size_bytes = 0
        frames_before = len(out)
        for entry_id, payload, count in run:
            if permits <= 0:
                break
            used += 1
            if has_holes and acknowledged.is_acknowledged(ledger_id, entry_id):
                continue
            messages = count
            if not messages:
                messages, payload = self.look(payload)  # noqa: PLW2901 (what is sent of it)
                if not messages:
                    pass_over(ledger_id, entry_id)
                    continue
            ack_set = acknowledged.remaining_indexes(ledger_id, entry_id) if has_partial else None
            if ack_set is not None:
                messages = min(messages, bits_set(ack_set))
            out.append(header(ledger_id, entry_id, len(payload), 0, ack_set or ()))
            out.append(payload)
            permits -= messages
            sent += messages
            size_bytes += len(payload)
            if size_bytes > DELIVERY_BYTES_MAX:
                break
        self.permits = permits
        if sent:
            # An entry is two pieces: its header, and what is stored.
            self._count_sent((len(out) - frames_before) // 2, sent, size_bytes)
            self.note_time()
        return used

    def deliver_untracked(self, position: Position, payload: bytes, messages: int) -> None:
        """Send one entry that nobody will ask about again."""
        out = self.session.out
        out.append(self._encoder.header(position[0], position[1], len(payload)))
        out.append(payload)
        self.permits -= messages
        self._count_sent(1, messages, len(payload))

    def deliver(
        self,
        ledger_id: int,
        run: list[Entry],
        messages_max: int,
        acknowledged: Acknowledged,
        redeliveries: RedeliveryCounts,
    ) -> int:
        """Send entries of ``run``, none of which is acknowledged, and remember them until they are;
        how many it used.

        It ends when ``messages_max`` messages are sent, or as many as the consumer may have, and
        before an entry that must be looked at.
        """
        out, pending = self.session.out, self.pending
        header = self._encoder.header
        is_plain = not acknowledged.partial_entries and not redeliveries
        sent_max = min(messages_max, self.permits, self._unacknowledged_max - self.unacknowledged)
        used = sent = size_bytes = 0
        for entry_id, payload, messages in run:
            if sent >= sent_max or not messages or size_bytes > DELIVERY_BYTES_MAX:
                break
            used += 1
            position = (ledger_id, entry_id)
            if is_plain:
                out.append(header(ledger_id, entry_id, len(payload)))
            else:
                times = redeliveries.get(position)
                ack_set = acknowledged.remaining_indexes(ledger_id, entry_id) or ()
                if ack_set:
                    messages = min(messages, bits_set(ack_set))  # noqa: PLW2901 (what is sent of it)
                if times:
                    self.messages_redelivered += messages
                out.append(header(ledger_id, entry_id, len(payload), times, ack_set))
            out.append(payload)
            pending[position] = messages
            sent += messages
            size_bytes += len(payload)
        self.permits -= sent
        self.unacknowledged += sent
        if self.unacknowledged >= self._unacknowledged_max:
            self.is_blocked_on_unacknowledged = True
        if sent:
            self._count_sent(used, sent, size_bytes)
        return used

    def _count_sent(self, entries: int, messages: int, size_bytes: int) -> None:
        self.entries_out += entries
        self.messages_out += messages
        self.bytes_out += size_bytes
        self.session.delivered(size_bytes)

    def note_time(self) -> None:
        """It was sent something just now: called once for all that is sent together."""
        self.last_sent_ms = self._clock.wall_ms()

    def forget(self, position: EntryId) -> bool:
        """An entry needs no acknowledgement any more; False when it was not sent to this one."""
        messages = self.pending.pop(position, None)
        if messages is None:
            return False
        self.unacknowledged -= messages
        return True

    def forget_all(self, ids: Iterable[EntryId]) -> list[EntryId]:
        """Many entries need no acknowledgement any more; returns those not sent to this one."""
        take = self.pending.pop
        messages = 0
        foreign: list[EntryId] = []
        for each in ids:
            count = take(each, None)
            if count is None:
                foreign.append(each)
            else:
                messages += count
        self.unacknowledged -= messages
        return foreign

    def forget_everything(self) -> None:
        """Nothing that it was sent needs an acknowledgement any more."""
        self.pending.clear()
        self.unacknowledged = 0
        self.is_blocked_on_unacknowledged = False

    def hold_only(self, position: EntryId, messages: int) -> bool:
        """Of an entry only so many messages need an acknowledgement still; False when it was not
        sent to this one."""
        held = self.pending.get(position)
        if held is None:
            return False
        if messages < held:
            self.pending[position] = messages
            self.unacknowledged -= held - messages
        return True

    def limit_unacknowledged(self, messages_max: int) -> None:
        """It may hold so many messages unacknowledged before it gets no more; 0: any number."""
        self._unacknowledged_max = messages_max or NO_LIMIT
        if self.is_blocked_on_unacknowledged:
            self.unblock()
        elif self.unacknowledged >= self._unacknowledged_max:
            self.is_blocked_on_unacknowledged = True

    def unblock(self) -> bool:
        """Let it have messages again once enough was acknowledged; False while it stays blocked."""
        if self.unacknowledged <= self._unacknowledged_max // 2:
            self.is_blocked_on_unacknowledged = False
        return not self.is_blocked_on_unacknowledged
