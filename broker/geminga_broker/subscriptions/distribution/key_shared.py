"""Who gets what of a Key_Shared subscription: each consumer the entries of its keys. Pure.

A consumer has the keys that its policy's selector gives it (PIP-379). Entries whose consumer cannot
take them now wait, so that nobody waits for another's keys; but only so many: ``look_ahead_max``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import HashRange, KeySharedPolicy
from geminga_broker.subscriptions.distribution.draining_hashes import DrainingHash, DrainingHashes
from geminga_broker.subscriptions.distribution.hash_ranges import HashRanges
from geminga_broker.subscriptions.distribution.hash_ring import HashRing
from geminga_broker.subscriptions.distribution.key_hashes import UNKNOWN, KeyHashes
from geminga_broker.subscriptions.distribution.keyed_replay import KeyedReplay
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue
from geminga_protocol.pulsar.enums import KeySharedMode

# Entries that wait for their consumers when no more are read
# (keySharedLookAheadMsgInReplayThresholdPerConsumer, ...PerSubscription).
LOOK_AHEAD_PER_CONSUMER_MAX = 2_000
LOOK_AHEAD_MAX = 20_000

KeySelector = HashRing | HashRanges


def new_selector(policy: KeySharedPolicy) -> KeySelector:
    """Which consumer a key belongs to, as ``policy`` wants keys to be shared: nobody's yet."""
    return HashRanges() if policy.mode is KeySharedMode.STICKY else HashRing()


class Receivers(dict[int, Consumer | None]):
    """Who may get entries of a hash; None while it is draining, or where it is nobody's.

    Finding one here takes an eighth of the time of asking both (0.05 us, not 0.4). There are as
    many as there are hashes at most.
    """

    def __init__(self, keys: KeySelector, draining: DrainingHashes) -> None:
        super().__init__()
        self._keys = keys
        self._draining = draining

    def __missing__(self, key_hash: int) -> Consumer | None:
        is_draining = key_hash in self._draining.hashes
        consumer = self[key_hash] = None if is_draining else self._keys.select(key_hash)
        return consumer


class Share:
    """What of a run of new entries one consumer is to get. ``room`` is how many more messages can
    be sent; what comes beyond it will wait, as all of them where nothing ``is_wanted``."""

    __slots__ = ("entries", "is_wanted", "room")

    def __init__(self, room: int) -> None:
        self.entries: list[Entry] = []
        self.room = room
        self.is_wanted = room > 0


class KeySharedDistribution:
    """Distributes to ``consumers`` as ``policy`` says; ``is_done`` tells whether an entry need not
    be sent any more."""

    def __init__(
        self,
        policy: KeySharedPolicy,
        consumers: list[Consumer],
        is_done: Callable[[EntryId], bool],
    ) -> None:
        self.policy = policy
        self.consumers = consumers
        self.keys = new_selector(policy)
        self.replay = KeyedReplay()
        # Delayed entries that are due, whose keys are still to be read.
        self.due = ReplayQueue()
        self._is_done = is_done
        self._hashes = KeyHashes(self.keys.hash_of)
        self._draining = DrainingHashes()
        self._receivers = Receivers(self.keys, self._draining)
        self._receiver = self._receivers.__getitem__

    # Who takes part

    def add(self, consumer: Consumer) -> None:
        """One more takes part: it gets its share of the keys."""
        self.consumers.append(consumer)
        self.keys.add(consumer)
        self._reassign()

    def left(self, consumer: Consumer, held: Sequence[EntryId]) -> None:
        """``consumer`` is gone; its keys, and what it held of them, go to others."""
        self.consumers.remove(consumer)
        self.keys.remove(consumer)
        self._draining.left(consumer)
        if self.consumers:
            self._reassign(held)

    def _reassign(self, given_back: Sequence[EntryId] = ()) -> None:
        """Keys have changed hands. Those of which a consumer still holds entries stay with it until
        it has acknowledged them; where order does not matter they need not. What was given back
        waits for the new ones."""
        if not self.policy.allows_out_of_order:
            self._draining.reassigned(self.keys.select, self.consumers, self._hashes)
        self._receivers.clear()
        self.replay.reassign(self._hashes, self._receiver)
        self.let_wait(given_back)

    def clear(self) -> None:
        """Begin anew: nothing waits, and nobody holds anything."""
        self._hashes.clear()
        self._draining.clear()
        self._receivers.clear()
        self.replay.clear()
        self.due.clear()

    # What waits

    @property
    def waiting_count(self) -> int:
        """Entries that were read and wait for their consumer."""
        return len(self.replay) + len(self.due)

    @property
    def first_waiting(self) -> EntryId | None:
        """The lowest of those that were sent or read before."""
        return min(self.replay.firsts, default=None)

    @property
    def look_ahead_max(self) -> int:
        """How many may wait before no more is read."""
        return min(LOOK_AHEAD_PER_CONSUMER_MAX * len(self.consumers), LOOK_AHEAD_MAX)

    def let_wait(self, ids: Sequence[EntryId]) -> None:
        """Let entries that were read wait for the consumers of their keys."""
        hashes = self._hashes.of(ids)
        if UNKNOWN in hashes:  # the mark passed them in consumers' hands: their ledger was trimmed
            ids = [each for each in ids if not self._is_done(each)]
            hashes = self._hashes.of(ids)
        self.replay.add_all(ids, hashes, self._receiver)

    def let_run_wait(self, ledger_id: int, run: list[Entry], mark_delete: Position) -> None:
        """Let entries wait whose keys are read now."""
        hashes = self._hashes.of_run(ledger_id, run, mark_delete)
        ids = [(ledger_id, each[0]) for each in run]
        self.replay.add_all(ids, hashes, self._receiver)

    def let_wait_for(self, consumer: Consumer | None, ids: list[EntryId]) -> None:
        """Let new entries wait for ``consumer``; for None, until their hashes are drained, or
        somebody's."""
        if consumer is not None:
            self.replay.add_for(consumer, ids)
            return
        hashes = self._hashes.of(ids)
        draining = self._draining.hashes
        for key_hash in hashes if draining else ():
            if key_hash in draining:
                draining[key_hash].blocked_attempts += 1
        self.replay.add_all(ids, hashes, self._receiver)

    def given_back(self, consumer: Consumer, ids: Sequence[EntryId]) -> None:
        """``consumer`` gives these back: they wait for whoever has their keys."""
        del consumer
        self.let_wait(ids)
        self._given_up(ids)

    def acknowledged(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Entries need not be sent any more, of which those ``unheld`` may have waited; True where
        others waited for that."""
        goes_on = self._given_up(ids)
        replay = self.replay
        if unheld and replay:
            for each, key_hash in zip(unheld, self._hashes.of(unheld), strict=True):
                replay.discard(each, key_hash, self._receivers[key_hash])
        return goes_on

    def _given_up(self, ids: Sequence[EntryId]) -> bool:
        """Nobody holds these any more; True where others waited for that."""
        drained = self._draining.given_up(ids)
        if not drained:
            return False
        for key_hash in drained:
            self._receivers.pop(key_hash, None)
        return self.replay.unblock(drained, self._receiver)

    # New entries

    def wants_new(self, consumer: Consumer) -> bool:
        """Whether a new entry can be sent to it. Where order matters those come first that it is
        still to get: while they are fetched it needs no others."""
        return consumer.can_take and (
            self.policy.allows_out_of_order or not self.replay.queues.get(consumer)
        )

    def share_out(
        self, ledger_id: int, run: list[Entry], mark_delete: Position
    ) -> tuple[dict[Consumer | None, Share], int]:
        """What of ``run`` is whose, up to where nobody can take more, or too many wait; and how
        many entries that are."""
        hashes = self._hashes.of_run(ledger_id, run, mark_delete)
        receivers = self._receivers
        waiting_left = self.look_ahead_max - len(self.replay)
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
        return consumer.room if consumer is not None and self.wants_new(consumer) else 0

    def _can_go_on(self, shares: Mapping[Consumer | None, Share]) -> bool:
        """Whether anybody can take more than its share."""
        return any(
            shares[each].room > 0 if each in shares else self.wants_new(each)
            for each in self.consumers
        )

    # Asking

    def ranges_of(self, consumer: Consumer) -> list[HashRange]:
        """The hashes of the keys that ``consumer`` gets."""
        return self.keys.ranges_of(consumer)

    def draining_of(self, consumer: Consumer) -> dict[int, DrainingHash]:
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
