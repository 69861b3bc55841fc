"""Key_Shared subscriptions: all messages of a key go to one consumer, in order.

``KeySharedDistribution`` decides which consumer has which keys. Reading goes on past entries whose
consumer cannot take them now, so that a slow consumer does not hold up the keys of others; but the
number of entries that were read and wait is limited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.subscriptions.decisions.key_shared_policy import KeySharedPolicy
from geminga_broker.subscriptions.dispatch.cursor_reader import RUN_ENTRIES_MAX
from geminga_broker.subscriptions.dispatch.tracking_dispatcher import (
    DUE_AT_ONCE_MAX,
    TrackingDispatcher,
)
from geminga_broker.subscriptions.distribution.key_shared import KeySharedDistribution

# No more entries are fetched once fetched entries of this size wait for their consumers: they stay
# in memory, because otherwise they would be fetched twice.
LOOK_AHEAD_BYTES_MAX = 64 * 1024 * 1024


@dataclass(eq=False)
class KeySharedDispatcher(TrackingDispatcher):
    """Sends each consumer the entries of its keys."""

    policy: KeySharedPolicy
    distribution: KeySharedDistribution = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._distribution = self.distribution = KeySharedDistribution(
            self.policy, self.consumers, self.reader.is_done
        )

    # Look-ahead

    @property
    def may_read_on(self) -> bool:
        """Whether there is room for more new entries that must be fetched."""
        # While no entry waits, none would ever make room.
        waits = bool(self.distribution.replay)
        return not waits or self.reader.read_ahead.size_bytes < LOOK_AHEAD_BYTES_MAX

    @property
    def _is_full(self) -> bool:
        """Whether so many entries wait that no more are read."""
        distribution = self.distribution
        return len(distribution.replay) >= distribution.look_ahead_max or not self.may_read_on

    def acknowledged_all(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Forget acknowledged entries; True if that lets other entries be sent or read."""
        was_full = bool(unheld) and self._is_full
        # Between the two questions: it takes what is acknowledged out of the queues.
        goes_on = super().acknowledged_all(ids, unheld)
        return goes_on or (was_full and not self._is_full)

    def skip_acknowledged(self) -> None:
        """The cursor was moved on: what it has passed neither waits nor is held any more."""
        # First what waits: the rest releases what consumers hold, which may drain hashes and let
        # waiting entries be queued.
        self.distribution.replay.discard_upto(self.cursor.mark_delete)
        self.reader.read_ahead.drop_upto(self.cursor.mark_delete)
        super().skip_acknowledged()

    # Sending

    def dispatch(self) -> None:
        """Send what can be sent: waiting entries first, then new ones."""
        distribution = self.distribution
        if distribution.due or self.reader.has_due:
            self._queue_due()
        # Consumer by consumer, not by position: order matters only within a key, and all entries of
        # a key wait for the same consumer.
        if distribution.replay:
            for consumer in self.consumers:
                queue = distribution.replay.queues.get(consumer)
                # Sending to one consumer never changes the queue of another.
                while queue and consumer.can_take and self._may_send():
                    if not self._replay_turn(consumer, queue, RUN_ENTRIES_MAX):
                        break
        while len(distribution.replay) < distribution.look_ahead_max and self._may_send():
            # Reading is of use only if some consumer can be sent new entries.
            if not any(map(distribution.wants_new, self.consumers)):
                return
            # New entries may belong to any consumer: those for a busy one are queued, up to the
            # look-ahead.
            found = self.reader.next_run()
            if found is None:
                return
            ledger_id, run = found
            if self._throttle is None:
                used = self._spread(ledger_id, run)
            else:
                used = self._send_slowly(ledger_id, run, partial(self._spread, ledger_id))
            # The throttle lets nothing pass now, and calls ``dispatch`` later.
            if not used:
                return
            self.entries_sent += used
            self.reader.advance(ledger_id, run, used)

    def _queue_due(self) -> None:
        """Queue due entries for the consumers of their keys, which are in the entries."""
        distribution, due, reader = self.distribution, self.distribution.due, self.reader
        # Most of the waiting entries may be for a consumer that takes none: due entries for the
        # others must find room beside them.
        room = DUE_AT_ONCE_MAX + distribution.look_ahead_max - distribution.waiting_count
        due.add_all(reader.take_due(min(room, DUE_AT_ONCE_MAX)))
        while due:
            # Only entries whose key is read can be queued for a consumer; acknowledged ones need no
            # reading.
            first = Position(*due.first)
            if reader.is_done(first):
                due.take(1)
                continue
            entries = reader.first_of(due, RUN_ENTRIES_MAX)
            if not entries:
                return  # the next dispatch continues, when they are fetched
            distribution.queue_run(first[0], entries, self.cursor.mark_delete)
            due.take(len(entries))

    def _spread(self, ledger_id: int, run: list[Entry]) -> int:
        """Send each entry to the consumer of its key, or queue it for that consumer; return how
        many entries that used."""
        # Acknowledged entries are skipped: the next entry to read lies behind them.
        to_send = self.cursor.acknowledged.still_open(ledger_id, run)
        if not to_send:
            return len(run)
        # Decided for the whole run before the first entry is sent: sending changes permits.
        shares, used = self.distribution.share_out(ledger_id, to_send, self.cursor.mark_delete)
        for consumer, share in shares.items():
            # Sending stops at the consumer's permits; the rest of its share waits.
            waiting = share.entries
            if consumer is not None and share.is_wanted:
                sent = self._send_run(consumer, ledger_id, waiting, consumer.permits)
                consumer.note_time()
                waiting = waiting[sent:]
            if waiting:
                ids = [(ledger_id, entry[0]) for entry in waiting]
                self.distribution.queue_for(consumer, ids)
                self.reader.set_aside(ledger_id, waiting)
        # By the entry that comes next, not by count: acknowledged ones before it are used up as
        # well.
        return len(run) if used == len(to_send) else run.index(to_send[used])
