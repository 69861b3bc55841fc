"""What the dispatchers of Shared and Key_Shared subscriptions have in common.

Each entry that was sent is tracked until it is acknowledged. Entries that a consumer gives back, or
held when it left, are replayed, lowest position first. All consumers together hold a limited number
of messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.policies.unacknowledged import NO_LIMITS, UnacknowledgedLimits
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.redelivery_counts import RedeliveryCounts
from geminga_broker.subscriptions.dispatch.dispatcher import Dispatcher
from geminga_broker.subscriptions.distribution.key_shared import KeySharedDistribution
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue
from geminga_broker.subscriptions.distribution.shared import SharedDistribution

# Delayed entries that become due before other subscriptions get a turn. If more wait to be sent
# already, none does.
DUE_AT_ONCE_MAX = 1000


# The way of an entry:
#
#     read ──▶ sent: in ``pending`` of one consumer ──▶ acknowledged: forgotten
#       │                    ▲              │
#       └─▶ waiting, in the ─┘              │ given back, or its consumer left
#           distribution ◀──────────────────┘
#
# It is at one place at a time: waiting, or held by one consumer.
@dataclass(eq=False)
class TrackingDispatcher(Dispatcher):
    """Sends entries to several consumers as ``_distribution`` decides, and tracks them."""

    # Replaced by the subscription's own, which outlive this dispatcher.
    redeliveries: RedeliveryCounts = field(default_factory=RedeliveryCounts, init=False)
    # Decides which consumer gets which entry; set by the subclass.
    _distribution: SharedDistribution | KeySharedDistribution = field(init=False)
    _limits: UnacknowledgedLimits = field(default=NO_LIMITS, init=False)

    # Limits on unacknowledged messages

    def limit(self, limits: UnacknowledgedLimits) -> None:
        """Apply ``limits`` from now on."""
        self._limits = limits
        for consumer in self.consumers:
            consumer.limit_unacknowledged(limits.per_consumer)
        if self.consumers:
            self.dispatch()

    def _may_send(self) -> bool:
        """Whether the consumers together may hold more. Once they are at the limit, nothing is sent
        until they have acknowledged half of it: one message at a time would cost far more."""
        limit = self._limits.per_subscription
        if not limit:
            self.is_blocked_on_unacknowledged = False
            return True
        held = sum(each.unacknowledged for each in self.consumers)
        was_blocked = self.is_blocked_on_unacknowledged
        self.is_blocked_on_unacknowledged = (2 * held if was_blocked else held) >= limit
        return not self.is_blocked_on_unacknowledged

    # Consumers

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part."""
        # Before it can be sent anything, so that the limit holds from its first message on.
        consumer.limit_unacknowledged(self._limits.per_consumer)
        self._distribution.add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove ``consumer``; what it held goes to the others."""
        # These do not count as given back. In the order of sending.
        held = list(consumer.pending)
        consumer.pending.clear()
        # Which takes it out of ``consumers`` too, so that nothing is sent to it below.
        self._distribution.left(consumer, held)
        if self.consumers:
            self.dispatch()
        else:
            # Unacknowledged entries are read again from the log: no list of them is kept for
            # consumers that may never come.
            self.rewind()

    def redeliver(self, consumer: Consumer, positions: Iterable[EntryId] | None) -> None:
        """Replay what ``consumer`` gives back: ``positions``, or all that it holds for None."""
        wanted = list(consumer.pending) if positions is None else positions
        # Ids come from the client: only those that it holds count.
        given_back = [position for position in wanted if consumer.forget(position)]
        for position in given_back:
            # Counted before they are sent again, which tells clients the count.
            self.redeliveries.increment(position)
        self._distribution.given_back(consumer, given_back)
        # It holds less now. Before the dispatch, which may send it other entries.
        consumer.unblock()
        self.dispatch()

    # The cursor moves

    def acknowledged_all(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Forget acknowledged entries, of which only those in ``unheld`` may still wait to be sent.
        True if that lets entries be sent that could not be before."""
        # HOT: called for each acknowledgement. What waits may be kept in what was read ahead.
        goes_on = self._distribution.acknowledged(ids, unheld)
        # What a consumer held was taken out of the read-ahead when it was sent.
        if unheld:
            self.reader.read_ahead.drop(unheld)
        if self.redeliveries:
            for each in ids:
                self.redeliveries.forget(each)
        return goes_on or (self.is_blocked_on_unacknowledged and self._may_send())

    def rewind(self) -> None:
        """Begin again after the mark-delete position: the next consumer is the first one again."""
        super().rewind()
        self.is_blocked_on_unacknowledged = False
        # Counts that are stored with the cursor outlive the consumers; others end with them. If the
        # cursor was reset, the subscription has dropped the counts before.
        if not self.cursor.config.cursor_redelivery_counts:
            self.redeliveries.clear()
        for consumer in self.consumers:
            consumer.forget_everything()
        # After the consumers have forgotten theirs: an entry neither waits nor is held until it is
        # read again.
        self._distribution.clear()

    def skip_acknowledged(self) -> None:
        """The cursor was moved on: what it has passed is neither sent nor held any more."""
        super().skip_acknowledged()
        mark = self.cursor.mark_delete
        for consumer in self.consumers:
            # Not sorted: what another consumer gave back was sent after later entries.
            passed = [position for position in consumer.pending if position <= mark]
            if passed:
                consumer.forget_all(passed)
                consumer.unblock()
                # None of them waits: each was held by this consumer.
                self.acknowledged_all(passed, ())

    def skip(self, ids: list[EntryId]) -> None:
        """Entries were acknowledged without the consumers: they are neither sent nor held any
        more."""
        super().skip_acknowledged()
        # Which consumer holds which of them is not known: ask each that holds any.
        for consumer in self.consumers:
            if consumer.pending:
                consumer.forget_all(ids)
                consumer.unblock()
        self.acknowledged_all(ids, ids)

    # Entries that wait to be sent

    @property
    def wanted_from(self) -> Position:
        """The first position that is still to be sent, waiting entries among them."""
        first, position = self._distribution.first_waiting, self.reader.position
        return position if first is None else min(Position(*first), position)

    @property
    def redelivery_backlog(self) -> int:
        """How many entries wait to be sent, for the first time or again."""
        return self._distribution.waiting_count

    def _replay_turn(self, consumer: Consumer, queue: ReplayQueue, messages_max: int) -> bool:
        """Send ``consumer`` the first entries of ``queue``. False if they must wait until they are
        fetched, or for the dispatch rate."""
        # Only the first is checked here: others leave the queue when they are acknowledged, or when
        # their run is sent.
        first = Position(*queue.first)
        # Acknowledged since it was queued, or trimmed with its ledger.
        if self.reader.is_done(first):
            queue.take(1)
            self.reader.read_ahead.drop((first,))
            self.redeliveries.forget(first)
            return True
        at_hand = self.reader.first_of(queue, messages_max)
        if not at_hand:
            return False
        ledger_id = first[0]
        if self._throttle is None:
            used = self._send_open(consumer, ledger_id, messages_max, at_hand)
        else:
            send = partial(self._send_open, consumer, ledger_id, messages_max)
            used = self._send_slowly(ledger_id, at_hand, send)
        if not used:
            return False
        # After the sending: an error in between leaves the entries in the queue.
        queue.take(used)
        self.reader.read_ahead.drop((ledger_id, each[0]) for each in islice(at_hand, used))
        consumer.note_time()
        self.entries_sent += used
        return True

    # Sending

    def _send_open(
        self, consumer: Consumer, ledger_id: int, messages_max: int, run: list[Entry]
    ) -> int:
        """Send ``consumer`` the entries of ``run`` that are not acknowledged, while its turn lasts;
        return how many of ``run`` that used."""
        # Usually none is acknowledged, and ``still_open`` returns the run itself.
        to_send = self.cursor.acknowledged.still_open(ledger_id, run)
        sent = self._send_run(consumer, ledger_id, to_send, messages_max)
        if to_send is run:
            return sent
        used = len(run) if sent == len(to_send) else run.index(to_send[sent])
        # Acknowledged entries are skipped with them, or leave the queue: no consumer will forget
        # their counts.
        for entry_id in {each[0] for each in run[:used]}.difference(each[0] for each in to_send):
            self.redeliveries.forget((ledger_id, entry_id))
        return used

    def _send_run(
        self, consumer: Consumer, ledger_id: int, run: list[Entry], messages_max: int
    ) -> int:
        """Send ``consumer`` entries, none of which is acknowledged, until it has had
        ``messages_max`` messages or can take no more; return how many of them that used."""
        acknowledged, redeliveries = self.cursor.acknowledged, self.redeliveries
        # A batch is never split: the last one of a turn may take the permits below this.
        turn_ends_at = max(0, consumer.permits - messages_max)
        used = 0
        while used < len(run) and consumer.permits > turn_ends_at and consumer.can_take:
            rest = run[used:] if used else run
            room = consumer.permits - turn_ends_at
            sent = consumer.deliver(ledger_id, rest, room, acknowledged, redeliveries)
            used += sent or 1
            if sent:
                continue
            # It stopped before an entry of which it is not known how many messages it has.
            entry_id, payload, _ = entry = rest[0]
            # Chunks have no count (``take_payload``), so each of them comes this way.
            taker = self._distribution.taker(consumer, (ledger_id, entry_id), payload)
            if taker is None:
                self.reader.set_aside(ledger_id, [entry])
                continue
            if taker is not consumer:
                taker.note_time()
            messages, payload = taker.look(payload)
            if messages:
                known = [(entry_id, payload, messages)]
                taker.deliver(ledger_id, known, messages, acknowledged, redeliveries)
            else:
                self.reader.pass_over(ledger_id, entry_id)
                redeliveries.forget((ledger_id, entry_id))
        return used
