"""Key_Shared subscriptions: all messages of a key go to one consumer, in order (PIP-379).

A consumer has the keys that its policy's selector gives it. Reading goes on past entries whose
consumer cannot take them now, so that nobody waits for another's keys, but only so far: entries
that were read and wait are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from magnetar_broker.log.cursor import Cursor
from magnetar_broker.log.managed_ledger import ManagedLedger
from magnetar_broker.log.positions import Entry, EntryId, Position
from magnetar_broker.subscriptions.consumer import Consumer
from magnetar_broker.subscriptions.dispatcher import RUN_ENTRIES_MAX
from magnetar_broker.subscriptions.key_shared.keyed_replay import KeyedReplay
from magnetar_broker.subscriptions.key_shared.keys_in_flight import Held, KeysInFlight
from magnetar_broker.subscriptions.key_shared.policy import AUTO_SPLIT, HashRange, KeySharedPolicy
from magnetar_broker.subscriptions.key_shared.selector import new_selector
from magnetar_broker.subscriptions.key_shared.share import Share
from magnetar_broker.subscriptions.replay_queue import ReplayQueue
from magnetar_broker.subscriptions.tracking_dispatcher import TrackingDispatcher
from magnetar_protocol.pulsar.sticky_key import sticky_key

# Entries that wait for their consumers when no more are read
# (keySharedLookAheadMsgInReplayThresholdPerConsumer, ...PerSubscription).
LOOK_AHEAD_PER_CONSUMER_MAX = 2_000
LOOK_AHEAD_MAX = 20_000


class KeySharedDispatcher(TrackingDispatcher):
    """Gives each consumer the entries of its keys."""

    FETCHED_RUNS_MAX = 4

    def __init__(
        self, managed_ledger: ManagedLedger, cursor: Cursor, policy: KeySharedPolicy
    ) -> None:
        super().__init__(managed_ledger, cursor)
        self.policy = policy
        self._keys = new_selector(policy)
        self._in_flight = KeysInFlight()
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
        if not self.consumers:
            consumer.pending.clear()
            self._begin_again()
            return
        for position in consumer.pending:
            self._give_back(position)
        consumer.pending.clear()
        self._in_flight.left(consumer)
        self._reassign()
        self.dispatch()

    def _reassign(self) -> None:
        """Keys have changed hands. Those of which a consumer still holds entries stay with it until
        it has acknowledged them; where order does not matter they need not."""
        if not self.policy.allows_out_of_order:
            self._in_flight.reassigned(self._keys.select, self.consumers)
        self._replay.reassign(self._receiver)

    def _receiver(self, key_hash: int) -> Consumer | None:
        """Who may get entries of the hash; None while it is draining, or where it is nobody's."""
        return None if key_hash in self._in_flight.draining else self._keys.select(key_hash)

    def _give_back(self, position: EntryId) -> int:
        """Let an entry wait that is in flight; the hash it drains with that, or 0."""
        key_hash = self._in_flight.hash_of(position)
        assert key_hash is not None, "what a consumer holds is in flight"
        drained = self._in_flight.remove(position)
        self._replay.add(position, key_hash, self._receiver(key_hash))
        return drained

    def _begin_again(self) -> None:
        super()._begin_again()
        self._in_flight.clear()
        self._replay.clear()
        self._due.clear()

    # What comes back

    def acknowledged(self, position: EntryId) -> bool:
        """Forget an entry; True where others waited for that."""
        return self.acknowledged_all((position,))

    def acknowledged_all(self, ids: Sequence[EntryId]) -> bool:
        """Forget many."""
        replay = self._replay
        was_full = len(replay) >= self._look_ahead_max
        goes_on = False
        drained, strangers = self._in_flight.remove_all(ids)
        for key_hash in drained:
            goes_on |= replay.unblock(key_hash, self._keys.select(key_hash))
        if replay:
            for each in strangers:
                replay.discard(each)
        if self.redeliveries:
            for each in ids:
                self.redeliveries.forget(each)
        goes_on |= was_full and len(replay) < self._look_ahead_max
        return goes_on or (self.is_blocked_on_unacknowledged and self._may_send())

    def redeliver(self, consumer: Consumer, positions: Iterable[EntryId] | None) -> None:
        """Replay what ``consumer`` gives back."""
        wanted = list(consumer.pending) if positions is None else positions
        for position in wanted:
            if consumer.forget(position):
                self.redeliveries.increment(position)
                drained = self._give_back(position)
                if drained:
                    self._replay.unblock(drained, self._keys.select(drained))
        consumer.unblock()
        self.dispatch()

    # Sending

    @property
    def wanted_from(self) -> Position:
        """The first position that is still to be sent to somebody, what waits among them."""
        return Position(*min(self._replay.first_ready, default=self.read_position))

    @property
    def redelivery_backlog(self) -> int:
        """Entries that were read and wait for their consumer."""
        return len(self._replay) + len(self._due)

    @property
    def _look_ahead_max(self) -> int:
        return min(LOOK_AHEAD_PER_CONSUMER_MAX * len(self.consumers), LOOK_AHEAD_MAX)

    def dispatch(self) -> None:
        """Send what can be sent: what waits first, then new entries."""
        if self.delayed is not None and (self._due or self.delayed.is_due):
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
            if self._is_done(first):
                due.take(1)
                continue
            wanted = due.near_first(RUN_ENTRIES_MAX, RUN_ENTRIES_MAX)
            run = self._entries_at(first, wanted[-1][1] - first[1] + 1)
            if not run:
                return  # it goes on when they are fetched
            at_hand = [each for each in wanted if each[1] - first[1] < len(run)]
            for position in at_hand:
                key_hash = self._keys.hash_of(sticky_key(run[position[1] - first[1]][1]))
                self._replay.add(position, key_hash, self._receiver(key_hash))
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
        found = self._next_run()
        if found is None:
            return False
        ledger_id, run = found
        if self._throttle is None:
            used = self._spread(ledger_id, run)
        else:
            used = self._send_slowly(
                self._throttle,
                self.cursor.acknowledged,
                ledger_id,
                run,
                lambda allowed: self._spread(ledger_id, allowed),
            )
            if not used:
                return False
        self.entries_sent += used
        self.read_position = Position(ledger_id, run[0][0] + used)
        return True

    def _spread(self, ledger_id: int, run: list[Entry]) -> int:
        """Send each entry to whose it is, or let it wait for that one; how many it used."""
        to_send = self.cursor.acknowledged.still_open(ledger_id, run)
        shares, used = self._share_out(to_send)
        for consumer, share in shares.items():
            self._send_share(ledger_id, consumer, share)
        return len(run) if used == len(to_send) else to_send[used][0] - run[0][0]

    def _share_out(self, run: list[Entry]) -> tuple[dict[Consumer | None, Share], int]:
        """What of ``run`` is whose, up to where nobody can take more, or too many wait; and how
        many entries that are."""
        select, hash_of = self._keys.select, self._keys.hash_of
        draining = self._in_flight.draining
        waiting_left = self._look_ahead_max - len(self._replay)
        shares: dict[Consumer | None, Share] = {}
        used = 0
        for entry in run:
            used += 1
            key_hash = hash_of(sticky_key(entry[1]))
            consumer = select(key_hash)
            if draining and key_hash in draining:
                draining[key_hash].blocked_attempts += 1
                consumer = None
            share = shares.get(consumer)
            if share is None:
                share = shares[consumer] = Share(self._room(consumer))
            share.entries.append(entry)
            share.hashes.append(key_hash)
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

    def _send_share(self, ledger_id: int, consumer: Consumer | None, share: Share) -> None:
        """Send ``consumer`` of its share what it can take; the rest waits for it."""
        ids = [(ledger_id, entry[0]) for entry in share.entries]
        sent = 0
        if share.is_wanted:
            assert consumer is not None, "what is nobody's waits"
            sent = self._send_run(consumer, ledger_id, share.entries, consumer.permits)
            self._in_flight.add_held(ids[:sent], share.hashes[:sent], consumer.pending)
            consumer.note_time()
        self._replay.add_all(ids[sent:], share.hashes[sent:], consumer)

    def _wants_new(self, consumer: Consumer) -> bool:
        """Whether a new entry can be sent to it. Where order matters those come first that it is
        still to get: while they are fetched it needs no others."""
        return consumer.can_take and (
            self.policy.allows_out_of_order or not self._replay.queues.get(consumer)
        )

    def _replay_run(
        self, consumer: Consumer, ledger_id: int, run: list[Entry], messages_max: int
    ) -> int:
        used = super()._replay_run(consumer, ledger_id, run, messages_max)
        ids = [(ledger_id, entry[0]) for entry in run[:used]]
        self._in_flight.add_held(ids, self._replay.taken(ids), consumer.pending)
        return used

    def _drop(self, position: EntryId) -> None:
        super()._drop(position)
        self._replay.taken((position,))

    # Asking

    def ranges_of(self, consumer: Consumer) -> list[HashRange]:
        """The hashes of the keys that ``consumer`` gets."""
        return self._keys.ranges_of(consumer)

    def draining_of(self, consumer: Consumer) -> dict[int, Held]:
        """The hashes that are another's by now, but of which ``consumer`` still holds entries."""
        draining = self._in_flight.draining
        return {
            key_hash: draining[key_hash]
            for key_hash in sorted(draining)
            if draining[key_hash].consumer is consumer
        }

    def drained_total(self, consumer: Consumer) -> int:
        """How many hashes ``consumer`` has drained."""
        return self._in_flight.drained_total.get(consumer, 0)
