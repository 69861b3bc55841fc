"""Key_Shared subscriptions: all messages of a key go to one consumer, in order (PIP-379).

A consumer has the keys that its policy's selector gives it. Reading goes on past entries whose
consumer cannot take them now, so that nobody waits for another's keys, but only so far: entries
that were read and wait are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.cursor_reader import RUN_ENTRIES_MAX
from geminga_broker.subscriptions.key_shared.draining import Draining, Held
from geminga_broker.subscriptions.key_shared.key_hashes import UNKNOWN, KeyHashes
from geminga_broker.subscriptions.key_shared.keyed_replay import KeyedReplay
from geminga_broker.subscriptions.key_shared.policy import AUTO_SPLIT, HashRange, KeySharedPolicy
from geminga_broker.subscriptions.key_shared.receivers import Receivers
from geminga_broker.subscriptions.key_shared.selector import new_selector
from geminga_broker.subscriptions.key_shared.share import Share
from geminga_broker.subscriptions.replay_queue import ReplayQueue
from geminga_broker.subscriptions.tracking_dispatcher import TrackingDispatcher

# Entries that wait for their consumers when no more are read
# (keySharedLookAheadMsgInReplayThresholdPerConsumer, ...PerSubscription).
LOOK_AHEAD_PER_CONSUMER_MAX = 2_000
LOOK_AHEAD_MAX = 20_000
# Bytes of entries that were fetched and wait for their consumers when no more are fetched: they are
# kept, or they would be fetched twice.
LOOK_AHEAD_BYTES_MAX = 64 * 1024 * 1024


class KeySharedDispatcher(TrackingDispatcher):
    """Gives each consumer the entries of its keys."""

    def __init__(
        self, managed_ledger: ManagedLedger, cursor: Cursor, policy: KeySharedPolicy
    ) -> None:
        super().__init__(managed_ledger, cursor)
        self.policy = policy
        self._keys = new_selector(policy)
        self._hashes = KeyHashes(self._keys.hash_of)
        self._draining = Draining()
        self._receivers = Receivers(self._keys, self._draining)
        self._replay = KeyedReplay()
        # Delayed entries that are due, whose keys are still to be read.
        self._due = ReplayQueue()

    # Who takes part

    def in_the_way(self, key_shared: KeySharedPolicy) -> Consumer | None:
        """A consumer that has some of the ranges that a further one names."""
        return self._keys.holder(key_shared.ranges)

    def check_room(self, key_shared: KeySharedPolicy = AUTO_SPLIT) -> None:
        """Raise ``ConsumerNotAssigned`` where a consumer names ranges that it cannot have."""
        self._keys.check(key_shared.ranges)

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part: it gets its share of the keys."""
        super().add(consumer)
        self._keys.add(consumer)
        self._reassign()

    def remove(self, consumer: Consumer) -> None:
        """``consumer`` is gone; its keys, and what it held of them, go to others."""
        self.consumers.remove(consumer)
        self._keys.remove(consumer)
        held = list(consumer.pending)
        consumer.pending.clear()
        if not self.consumers:
            self._begin_again()
            return
        self._draining.left(consumer)
        self._reassign(held)
        self.dispatch()

    def _reassign(self, given_back: Sequence[EntryId] = ()) -> None:
        """Keys have changed hands. Those of which a consumer still holds entries stay with it until
        it has acknowledged them; where order does not matter they need not. What was given back
        waits for the new ones."""
        if not self.policy.allows_out_of_order:
            self._draining.reassigned(self._keys.select, self.consumers, self._hashes)
        self._receivers.clear()
        self._replay.reassign(self._hashes, self._receivers.__getitem__)
        self._let_wait(given_back)

    def _let_wait(self, ids: Sequence[EntryId]) -> None:
        hashes = self._hashes.of(ids)
        if UNKNOWN in hashes:  # the mark passed them in consumers' hands: their ledger was trimmed
            ids = [each for each in ids if not self.reader.is_done(each)]
            hashes = self._hashes.of(ids)
        self._replay.add_all(ids, hashes, self._receivers.__getitem__)

    def _begin_again(self) -> None:
        super()._begin_again()
        self._hashes.clear()
        self._draining.clear()
        self._receivers.clear()
        self._replay.clear()
        self._due.clear()

    # What comes back

    def acknowledged_all(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Forget many; True where others waited for that."""
        goes_on = self._given_up(ids)
        replay = self._replay
        if unheld and replay:
            was_full = self._is_full
            for each, key_hash in zip(unheld, self._hashes.of(unheld), strict=True):
                replay.discard(each, key_hash, self._receivers[key_hash])
            self.reader.fetched.drop(unheld)
            goes_on |= was_full and not self._is_full
        if self.redeliveries:
            for each in ids:
                self.redeliveries.forget(each)
        return goes_on or (self.is_blocked_on_unacknowledged and self._may_send())

    def _given_up(self, ids: Sequence[EntryId]) -> bool:
        """Nobody holds these any more; True where others waited for that."""
        drained = self._draining.given_up(ids)
        for key_hash in drained:
            self._receivers.pop(key_hash, None)
        return self._replay.unblock(drained, self._receivers.__getitem__)

    def skip_acknowledged(self) -> None:
        """The cursor was moved on: what it has passed neither waits nor is held any more."""
        self._replay.discard_upto(self.cursor.mark_delete)
        self.reader.fetched.drop_upto(self.cursor.mark_delete)
        super().skip_acknowledged()

    def redeliver(self, consumer: Consumer, positions: Iterable[EntryId] | None) -> None:
        """Replay what ``consumer`` gives back."""
        wanted = list(consumer.pending) if positions is None else positions
        given_back = [position for position in wanted if consumer.forget(position)]
        for position in given_back:
            self.redeliveries.increment(position)
        self._let_wait(given_back)
        self._given_up(given_back)
        consumer.unblock()
        self.dispatch()

    # Sending

    @property
    def wanted_from(self) -> Position:
        """The first position that is still to be sent to somebody, what waits among them."""
        return Position(*min(self._replay.firsts, default=self.reader.position))

    @property
    def redelivery_backlog(self) -> int:
        """Entries that were read and wait for their consumer."""
        return len(self._replay) + len(self._due)

    @property
    def _look_ahead_max(self) -> int:
        return min(LOOK_AHEAD_PER_CONSUMER_MAX * len(self.consumers), LOOK_AHEAD_MAX)

    @property
    def may_read_on(self) -> bool:
        """Whether there is room for more that is new and must be fetched."""
        # While nothing waits, nothing would make room.
        return self.reader.fetched.size_bytes < LOOK_AHEAD_BYTES_MAX or not self._replay

    @property
    def _is_full(self) -> bool:
        """Whether so much waits that no more is read."""
        return len(self._replay) >= self._look_ahead_max or not self.may_read_on

    @property
    def _due_max(self) -> int:
        # As many as ever: most of those that wait may be for one that takes nothing.
        return super()._due_max + self._look_ahead_max

    def dispatch(self) -> None:
        """Send what can be sent: what waits first, then new entries."""
        if self._due or self.reader.has_due:
            self._due.add_all(self._take_due())
            self._key_due()
        if self._replay:
            for consumer in self.consumers:
                self._replay_to(consumer)
        while self._dispatch_new():
            pass

    def _key_due(self) -> None:
        """Let entries that are due wait for the consumers of their keys."""
        due = self._due
        while due:
            first = Position(*due.first)
            if self.reader.is_done(first):
                due.take(1)
                continue
            entries = self.reader.first_of(due, RUN_ENTRIES_MAX)
            if not entries:
                return  # it goes on when they are fetched
            at_hand = [(first[0], entry_id) for entry_id, _, _ in entries]
            hashes = self._hashes.of_run(first[0], entries, self.cursor.mark_delete)
            self._replay.add_all(at_hand, hashes, self._receivers.__getitem__)
            due.take(len(at_hand))

    def _replay_to(self, consumer: Consumer) -> None:
        queue = self._replay.queues.get(consumer)
        while queue and consumer.can_take and self._may_send():
            if not self._replay_turn(consumer, queue, RUN_ENTRIES_MAX):
                return

    def _dispatch_new(self) -> bool:
        """Send a run of new entries, or let them wait; False when no more can be read now, or
        nobody has use for it."""
        if len(self._replay) >= self._look_ahead_max or not self._may_send():
            return False
        if not any(self._wants_new(each) for each in self.consumers):
            return False
        found = self.reader.next_run()
        if found is None:
            return False
        ledger_id, run = found
        if self._throttle is None:
            used = self._spread(ledger_id, run)
        else:
            used = self._send_slowly(
                self._throttle,
                ledger_id,
                run,
                lambda allowed: self._spread(ledger_id, allowed),
            )
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
        shares, used = self._share_out(ledger_id, to_send)
        for consumer, share in shares.items():
            if consumer is None:
                self._let_nobodys_wait(ledger_id, share.entries)
            else:
                self._send_share(ledger_id, consumer, share)
        return len(run) if used == len(to_send) else run.index(to_send[used])

    def _share_out(
        self, ledger_id: int, run: list[Entry]
    ) -> tuple[dict[Consumer | None, Share], int]:
        """What of ``run`` is whose, up to where nobody can take more, or too many wait; and how
        many entries that are."""
        hashes = self._hashes.of_run(ledger_id, run, self.cursor.mark_delete)
        receivers = self._receivers
        waiting_left = self._look_ahead_max - len(self._replay)
        shares: dict[Consumer | None, Share] = {}
        used = 0
        for entry, key_hash in zip(run, hashes, strict=True):
            used += 1
            consumer = receivers[key_hash]
            share = shares.get(consumer)
            if share is None:
                share = shares[consumer] = Share(self._room(consumer))
            share.entries.append(entry)
            if share.room > 0:
                share.room -= entry[2] or 1
                if share.room <= 0 and not self._can_go_on(shares):
                    break
            else:
                waiting_left -= 1
                if waiting_left <= 0:
                    break
        return shares, used

    def _room(self, consumer: Consumer | None) -> int:
        """How many messages of new entries can be sent to it."""
        return consumer.room if consumer is not None and self._wants_new(consumer) else 0

    def _can_go_on(self, shares: Mapping[Consumer | None, Share]) -> bool:
        """Whether anybody can take more than its share."""
        return any(
            shares[each].room > 0 if each in shares else self._wants_new(each)
            for each in self.consumers
        )

    def _send_share(self, ledger_id: int, consumer: Consumer, share: Share) -> None:
        """Send ``consumer`` of its share what it can take; the rest waits for it."""
        waiting = share.entries
        if share.is_wanted:
            sent = self._send_run(consumer, ledger_id, waiting, consumer.permits)
            consumer.note_time()
            waiting = waiting[sent:]
        if waiting:
            self._replay.add_for(consumer, [(ledger_id, entry[0]) for entry in waiting])
            self.reader.set_aside(ledger_id, waiting)

    def _let_nobodys_wait(self, ledger_id: int, entries: list[Entry]) -> None:
        """Let entries wait until their hashes are drained, or somebody's."""
        ids = [(ledger_id, entry[0]) for entry in entries]
        hashes = self._hashes.of(ids)
        draining = self._draining.hashes
        for key_hash in hashes if draining else ():
            if key_hash in draining:
                draining[key_hash].blocked_attempts += 1
        self._replay.add_all(ids, hashes, self._receivers.__getitem__)
        self.reader.set_aside(ledger_id, entries)

    def _wants_new(self, consumer: Consumer) -> bool:
        """Whether a new entry can be sent to it. Where order matters those come first that it is
        still to get: while they are fetched it needs no others."""
        return consumer.can_take and (
            self.policy.allows_out_of_order or not self._replay.queues.get(consumer)
        )

    # Asking

    def ranges_of(self, consumer: Consumer) -> list[HashRange]:
        """The hashes of the keys that ``consumer`` gets."""
        return self._keys.ranges_of(consumer)

    def draining_of(self, consumer: Consumer) -> dict[int, Held]:
        """The hashes that are another's by now, but of which ``consumer`` still holds entries."""
        draining = self._draining.hashes
        return {
            key_hash: draining[key_hash]
            for key_hash in sorted(draining)
            if draining[key_hash].consumer is consumer
        }

    def drained_total(self, consumer: Consumer) -> int:
        """How many hashes ``consumer`` has drained."""
        return self._draining.drained_total.get(consumer, 0)
