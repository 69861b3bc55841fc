"""Key_Shared subscriptions: sends all messages of a key to one consumer, in order, as
``KeySharedDistribution`` says.

Reading goes on past entries whose consumer cannot take them now, so that nobody waits for another's
keys, but only so far: entries that were read and wait are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.dispatch.cursor_reader import RUN_ENTRIES_MAX
from geminga_broker.subscriptions.dispatch.tracking_dispatcher import TrackingDispatcher
from geminga_broker.subscriptions.distribution.key_shared import KeySharedDistribution, Share

# Bytes of entries that were fetched and wait for their consumers when no more are fetched: they are
# kept, or they would be fetched twice.
LOOK_AHEAD_BYTES_MAX = 64 * 1024 * 1024


class KeySharedDispatcher(TrackingDispatcher):
    """Gives each consumer the entries of its keys."""

    def __init__(
        self, managed_ledger: ManagedLedger, cursor: Cursor, policy: KeySharedPolicy
    ) -> None:
        super().__init__(managed_ledger, cursor)
        self.distribution = KeySharedDistribution(policy, self.consumers, self.reader.is_done)
        self._distribution = self.distribution

    def in_the_way(self, key_shared: KeySharedPolicy) -> Consumer | None:
        """A consumer that has some of the ranges that a further one names."""
        return self.distribution.keys.holder(key_shared.ranges)

    def check_room(self, key_shared: KeySharedPolicy = AUTO_SPLIT) -> None:
        """Raise ``ConsumerNotAssigned`` where a consumer names ranges that it cannot have."""
        self.distribution.keys.check(key_shared.ranges)

    def acknowledged_all(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Forget many; True where others waited for that."""
        was_full = bool(unheld) and self._is_full
        goes_on = super().acknowledged_all(ids, unheld)
        return goes_on or (was_full and not self._is_full)

    def skip_acknowledged(self) -> None:
        """The cursor was moved on: what it has passed neither waits nor is held any more."""
        self.distribution.replay.discard_upto(self.cursor.mark_delete)
        self.reader.fetched.drop_upto(self.cursor.mark_delete)
        super().skip_acknowledged()

    @property
    def may_read_on(self) -> bool:
        """Whether there is room for more that is new and must be fetched."""
        # While nothing waits, nothing would make room.
        waits = bool(self.distribution.replay)
        return not waits or self.reader.fetched.size_bytes < LOOK_AHEAD_BYTES_MAX

    @property
    def _is_full(self) -> bool:
        """Whether so much waits that no more is read."""
        distribution = self.distribution
        return len(distribution.replay) >= distribution.look_ahead_max or not self.may_read_on

    @property
    def _due_max(self) -> int:
        # As many as ever: most of those that wait may be for one that takes nothing.
        return super()._due_max + self.distribution.look_ahead_max

    def dispatch(self) -> None:
        """Send what can be sent: what waits first, then new entries."""
        distribution = self.distribution
        if distribution.due or self.reader.has_due:
            distribution.due.add_all(self._take_due())
            self._key_due()
        if distribution.replay:
            for consumer in self.consumers:
                self._replay_to(consumer)
        while self._dispatch_new():
            pass

    def _key_due(self) -> None:
        """Let entries that are due wait for the consumers of their keys."""
        due, reader = self.distribution.due, self.reader
        while due:
            first = Position(*due.first)
            if reader.is_done(first):
                due.take(1)
                continue
            entries = reader.first_of(due, RUN_ENTRIES_MAX)
            if not entries:
                return  # it goes on when they are fetched
            self.distribution.let_run_wait(first[0], entries, self.cursor.mark_delete)
            due.take(len(entries))

    def _replay_to(self, consumer: Consumer) -> None:
        queue = self.distribution.replay.queues.get(consumer)
        while queue and consumer.can_take and self._may_send():
            if not self._replay_turn(consumer, queue, RUN_ENTRIES_MAX):
                return

    def _dispatch_new(self) -> bool:
        """Send a run of new entries, or let them wait; False when no more can be read now, or
        nobody has use for it."""
        distribution = self.distribution
        if len(distribution.replay) >= distribution.look_ahead_max or not self._may_send():
            return False
        if not any(map(distribution.wants_new, self.consumers)):
            return False
        found = self.reader.next_run()
        if found is None:
            return False
        ledger_id, run = found
        if self._throttle is None:
            used = self._spread(ledger_id, run)
        else:
            used = self._send_slowly(ledger_id, run, partial(self._spread, ledger_id))
        if not used:
            return False
        self.entries_sent += used
        self.reader.advance(ledger_id, run, used)
        return True

    def _spread(self, ledger_id: int, run: list[Entry]) -> int:
        """Send each entry to whose it is, or let it wait for that one; how many it used."""
        to_send = self.cursor.acknowledged.still_open(ledger_id, run)
        if not to_send:
            return len(run)
        shares, used = self.distribution.share_out(ledger_id, to_send, self.cursor.mark_delete)
        for consumer, share in shares.items():
            self._send_share(ledger_id, consumer, share)
        return len(run) if used == len(to_send) else run.index(to_send[used])

    def _send_share(self, ledger_id: int, consumer: Consumer | None, share: Share) -> None:
        """Send ``consumer`` of its share what it can take; the rest waits for it."""
        waiting = share.entries
        if consumer is not None and share.is_wanted:
            sent = self._send_run(consumer, ledger_id, waiting, consumer.permits)
            consumer.note_time()
            waiting = waiting[sent:]
        if waiting:
            ids = [(ledger_id, entry[0]) for entry in waiting]
            self.distribution.let_wait_for(consumer, ids)
            self.reader.set_aside(ledger_id, waiting)
