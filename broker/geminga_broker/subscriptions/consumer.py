"""One consumer: a client's place in a subscription, its permits, and the entries it was sent.

Delivering writes complete frames into the session's outgoing buffer: the header is built by hand,
the stored payload follows unchanged. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from geminga_broker.client_session import ClientSession
from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged, bits_set
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.managed_ledger.reading.payloads import message_count, without_broker_entry
from geminga_broker.subscriptions.decisions.redelivery_counts import RedeliveryCounts
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_protocol.pulsar.message import NO_CONSUMER_EPOCH, MessageEncoder
from geminga_runtime.clock import Clock
from geminga_server.metrics import Meter

# More messages than any consumer holds.
NO_LIMIT = 1 << 62

# The most permits a consumer may have: stats show them as a 32-bit number.
PERMITS_MAX = 2**31 - 1

# Bytes handed to a session in one go; then the dispatcher checks again whether its socket takes
# more.
DELIVERY_BYTES_MAX = 1024 * 1024


class ConsumerEvent(Enum):
    """What a consumer tells its client besides messages."""

    # It is the active consumer of its Failover subscription, or waits until it is.
    ACTIVE = auto()
    INACTIVE = auto()
    # The topic closed it (a seek, an unload): its client must subscribe again.
    CLOSED = auto()
    # The topic is terminated and everything acknowledged: no message will come any more.
    REACHED_END = auto()


class Sent(NamedTuple):
    """What the consumers of one subscription were sent since its topic was loaded."""

    messages: int = 0
    size_bytes: int = 0
    # Entries sent, or skipped because they were acknowledged; 0 without a log.
    entries: int = 0
    # Entries read from bookies for that.
    entries_fetched: int = 0


class Consumer:
    """A connected consumer. ``tell`` is called with it and what its client must know."""

    def __init__(
        self,
        session: ClientSession,
        request: SubscribeRequest,
        *,
        clock: Clock,
        tell: Callable[[Consumer, ConsumerEvent], None],
    ) -> None:
        consumer_id, partition = request.consumer.consumer_id, request.partition
        self.session = session
        self.tell = tell
        self.consumer_id = consumer_id
        self.name = request.consumer.name
        self.priority = request.priority
        self.partition = partition
        self.metadata = request.metadata
        self.key_shared = request.key_shared
        # Unix time.
        self.connected_at_ms = clock.wall_ms()
        # The client knows that no message will come any more. Set by ``Dispatcher.tell_end``.
        self.is_end_told = False
        # How many more messages the client takes. May go below zero: a batch is never split.
        # Granted by FLOW: most clients grant more when half of their receiver queue is used up.
        self.permits = 0
        # Only subscriptions that deliver in order use these two.
        self.epoch = request.epoch
        self.reads_compacted = request.reads_compacted
        # Whether the client is sent the metadata that brokers put in front of messages.
        self.gets_broker_entries = session.gets_broker_entries
        self.takes_any_schema = request.takes_any_schema
        # The entries that it holds, each with its number of unacknowledged messages, and the sum of
        # these. Only tracking dispatchers fill them. In the order of sending, not of the log:
        # redelivered entries come last.
        self.pending: dict[EntryId, int] = {}
        self.unacknowledged = 0
        self.is_blocked_on_unacknowledged = False
        # So many unacknowledged messages block the consumer.
        self.unacknowledged_max = NO_LIMIT
        self._clock = clock
        self._encoder = MessageEncoder(consumer_id, partition)
        self._encoder_in_order = self._encoder
        if request.epoch != NO_CONSUMER_EPOCH:
            self._encoder_in_order = MessageEncoder(consumer_id, partition, request.epoch)
        # Rates of the four counters that ``SubscriptionRegistry.tick`` names.
        self.meter = Meter(None, 0, 0, 0, 0)
        # Since the consumer connected. Redelivered messages count as sent once more.
        self.messages_out = 0
        self.bytes_out = 0
        self.entries_out = 0
        self.messages_redelivered = 0
        self.messages_acknowledged = 0
        # Unix times; 0 for never.
        self.last_flow_ms = 0
        self.last_sent_ms = 0
        self.last_acknowledged_ms = 0

    def begin_epoch(self, epoch: int) -> None:
        """Send ``epoch`` with messages that are delivered in order from now on.

        A client that asks for all messages again begins a new epoch and drops messages of earlier
        ones, which may still be on their way. An earlier epoch changes nothing here.
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

    # Sending

    def look(self, payload: bytes) -> tuple[int, bytes]:
        """How many messages a stored entry has for consumers, and the payload that this consumer is
        sent; 0 messages if the entry is a marker."""
        sent = without_broker_entry(payload)
        return message_count(sent), payload if self.gets_broker_entries else sent

    def deliver_in_order(
        self,
        ledger_id: int,
        run: list[Entry],
        acknowledged: Acknowledged,
        pass_over: Callable[[int, int], None],
    ) -> int:
        """Send entries of ``run`` while permits last, without the acknowledged ones; return how
        many of ``run`` that used.

        ``pass_over`` is called for entries that have no messages. For subscriptions with one active
        consumer, which do not track single entries.
        """
        # HOT: everything that a message needs is in local variables.
        out = self.session.out
        header = self._encoder_in_order.header
        permits = self.permits
        has_holes = acknowledged.ahead_count > 0
        has_partial = bool(acknowledged.partial_entries)
        used = sent = size_bytes = 0
        frames_before = len(out)
        for entry_id, payload, count in run:
            # Checked before each entry: the last one may be a batch of more than was permitted.
            if permits <= 0:
                break
            used += 1
            if has_holes and acknowledged.is_acknowledged(ledger_id, entry_id):
                continue
            messages = count
            if not messages:
                # Not counted yet: only its metadata tells how many messages it has.
                messages, payload = self.look(payload)  # noqa: PLW2901 (what is sent of it)
                if not messages:
                    pass_over(ledger_id, entry_id)
                    continue
            # Of a batch that is acknowledged in part, the client is told which messages remain.
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
            # Each entry is two pieces in the buffer: its header, and its payload.
            self._count_sent((len(out) - frames_before) // 2, sent, size_bytes)
            self.note_time()
        return used

    def deliver_untracked(self, position: Position, payload: bytes, messages: int) -> None:
        """Send one entry that is neither acknowledged nor sent again."""
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
        """Send entries of ``run``, none of which is acknowledged, and hold them until they are;
        return how many that used.

        It stops once ``messages_max`` messages are sent, or as many as the consumer may hold, and
        before an entry whose messages are not counted yet.
        """
        # HOT: everything that a message needs is in local variables.
        out, pending = self.session.out, self.pending
        header = self._encoder.header
        # The usual case: no batch is acknowledged in part, no entry was given back.
        is_plain = not acknowledged.partial_entries and not redeliveries
        # Permits and limits are checked against the messages sent so far: a batch may exceed them.
        sent_max = min(messages_max, self.permits, self.unacknowledged_max - self.unacknowledged)
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
            # Held from here on, received or not: if the consumer leaves, the entry goes to others.
            pending[position] = messages
            sent += messages
            size_bytes += len(payload)
        # Counters once for the run, not for each message.
        self.permits -= sent
        self.unacknowledged += sent
        if self.unacknowledged >= self.unacknowledged_max:
            self.is_blocked_on_unacknowledged = True
        if sent:
            self._count_sent(used, sent, size_bytes)
        return used

    def _count_sent(self, entries: int, messages: int, size_bytes: int) -> None:
        self.entries_out += entries
        self.messages_out += messages
        self.bytes_out += size_bytes
        # The session writes its buffer at the end of this turn of the event loop.
        self.session.delivered(size_bytes)

    def note_time(self) -> None:
        """Note when messages were last sent; called once for all that are sent together."""
        self.last_sent_ms = self._clock.wall_ms()

    # Entries that it holds

    def forget(self, position: EntryId) -> bool:
        """Hold an entry no more; False if this consumer did not hold it."""
        # Without unblocking: the caller does that once for all entries.
        messages = self.pending.pop(position, None)
        if messages is None:
            return False
        self.unacknowledged -= messages
        return True

    def forget_all(self, ids: Iterable[EntryId]) -> list[EntryId]:
        """Hold many entries no more; return those that this consumer did not hold."""
        # HOT: clients acknowledge by the thousand.
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
        """Hold nothing any more."""
        self.pending.clear()
        self.unacknowledged = 0
        self.is_blocked_on_unacknowledged = False

    def hold_only(self, position: EntryId, messages: int) -> bool:
        """Hold only ``messages`` messages of an entry; False if this consumer does not hold it."""
        # An acknowledgement that comes twice must not count twice.
        held = self.pending.get(position)
        if held is None:
            return False
        # ``unacknowledged`` stays the sum over ``pending``.
        if messages < held:
            self.pending[position] = messages
            self.unacknowledged -= held - messages
        return True

    def limit_unacknowledged(self, messages_max: int) -> None:
        """Block the consumer once it holds ``messages_max`` messages; 0 for no limit."""
        self.unacknowledged_max = messages_max or NO_LIMIT
        if self.is_blocked_on_unacknowledged:
            self.unblock()
        elif self.unacknowledged >= self.unacknowledged_max:
            self.is_blocked_on_unacknowledged = True

    def unblock(self) -> bool:
        """Unblock the consumer if it holds at most half of its limit; False while it stays
        blocked."""
        # Half, as upstream: going on after each acknowledgement would send message by message.
        if self.unacknowledged <= self.unacknowledged_max // 2:
            self.is_blocked_on_unacknowledged = False
        return not self.is_blocked_on_unacknowledged
