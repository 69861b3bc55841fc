"""Which consumer of a Key_Shared subscription gets which entry: its key's owner (PIP-379). Pure.

A selector (``hash_ring`` or ``hash_ranges``) gives each consumer its keys. Entries whose consumer
cannot take them now wait, so that a slow consumer does not hold up the keys of others; but at most
``look_ahead_max`` entries wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from geminga_broker.managed_ledger.positions import Entry, EntryId, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import KeySharedPolicy
from geminga_broker.subscriptions.distribution.draining_hashes import DrainingHashes
from geminga_broker.subscriptions.distribution.hash_ranges import HashRanges
from geminga_broker.subscriptions.distribution.hash_ring import HashRing
from geminga_broker.subscriptions.distribution.key_hashes import UNKNOWN, KeyHashes
from geminga_broker.subscriptions.distribution.keyed_replay import KeyedReplay
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue
from geminga_protocol.pulsar.enums import KeySharedMode

# No more entries are read while this many wait for their consumers
# (keySharedLookAheadMsgInReplayThresholdPerConsumer, ...PerSubscription).
LOOK_AHEAD_PER_CONSUMER_MAX = 2_000
LOOK_AHEAD_MAX = 20_000

KeySelector = HashRing | HashRanges


def new_selector(policy: KeySharedPolicy) -> KeySelector:
    """The selector that ``policy`` asks for, without consumers."""
    return HashRanges() if policy.mode is KeySharedMode.STICKY else HashRing()


class Receivers(dict[int, Consumer | None]):
    """The consumer that may get entries of a hash; None while the hash drains or has no owner.

    A cache: a look-up here takes an eighth of the time of asking both (0.05 us, not 0.4). It has at
    most as many items as there are hashes, and must be cleared when an answer may have changed.
    """

    def __init__(self, keys: KeySelector, draining: DrainingHashes) -> None:
        super().__init__()
        self._keys = keys
        self._draining = draining

    def __missing__(self, key_hash: int) -> Consumer | None:
        is_draining = key_hash in self._draining.hashes
        consumer = self[key_hash] = None if is_draining else self._keys.select(key_hash)
        return consumer


@dataclass(slots=True, eq=False)
class Share:
    """The entries of a run that are for one consumer."""

    entries: list[Entry]
    # How many more messages can be sent; entries beyond that will wait.
    room: int
    # False: all of them will wait.
    is_wanted: bool


class KeySharedDistribution:
    """Distributes to ``consumers`` as ``policy`` says. ``is_done`` tells whether an entry need not
    be sent any more."""

    def __init__(
        self,
        policy: KeySharedPolicy,
        consumers: list[Consumer],
        is_done: Callable[[EntryId], bool],
    ) -> None:
        self.policy = policy
        self.consumers = consumers
        # Which consumer owns which keys.
        self.keys = new_selector(policy)
        self._is_done = is_done
        self.clear()

    def clear(self) -> None:
        """Begin again: no entry waits, and no consumer holds any."""
        # The selector stays as it is: consumers that are still connected keep their keys. Entries
        # that wait for their consumers; those that are due were delayed, and their keys must still
        # be read.
        self.replay = KeyedReplay()
        self.due = ReplayQueue()
        # Keys that wait for their former owners.
        self.draining = DrainingHashes()
        # The key hashes of entries that were read, kept until they are acknowledged.
        self._hashes = KeyHashes(self.keys.hash_of)
        self._receivers = Receivers(self.keys, self.draining)
        self._receiver = self._receivers.__getitem__

    # Consumers

    def add(self, consumer: Consumer) -> None:
        """Give ``consumer`` its share of the keys."""
        self.consumers.append(consumer)
        self.keys.add(consumer)
        self._reassign()

    def left(self, consumer: Consumer, held: Sequence[EntryId]) -> None:
        """``consumer`` has left: its keys, and the entries that it ``held``, go to others."""
        self.consumers.remove(consumer)
        self.keys.remove(consumer)
        self.draining.drained_total.pop(consumer, None)
        # Without consumers there are no owners to wait for: the dispatcher begins again.
        if self.consumers:
            self._reassign(held)

    def _reassign(self, given_back: Sequence[EntryId] = ()) -> None:
        """Keys have new owners; entries that were given back wait for these."""
        # The steps depend on each other: receivers on what drains, queues on receivers. If messages
        # may go out of order, no hash drains.
        # 1. which hashes drain: their former owners still hold entries of them.
        if not self.policy.allows_out_of_order:
            self.draining.reassigned(self.keys.select, self.consumers, self._hashes)
        # 2. forget the cached receivers, 3. move what waits to its new receivers, 4. queue what
        # came back.
        self._receivers.clear()
        self.replay.reassign(self._hashes, self._receiver)
        self._queue(given_back)

    # Waiting entries

    @property
    def waiting_count(self) -> int:
        """How many entries were read and wait for their consumers."""
        return len(self.replay) + len(self.due)

    @property
    def first_waiting(self) -> EntryId | None:
        """The lowest of them, without the due ones, whose keys are still to be read."""
        return min(self.replay.firsts, default=None)

    @property
    def look_ahead_max(self) -> int:
        """How many entries may wait before no more are read."""
        return min(LOOK_AHEAD_PER_CONSUMER_MAX * len(self.consumers), LOOK_AHEAD_MAX)

    def _queue(self, ids: Sequence[EntryId]) -> None:
        """Queue entries that were read before for the owners of their keys."""
        hashes = self._hashes.of(ids)
        if UNKNOWN in hashes:
            # The mark-delete position passed them while consumers held them (their ledger was
            # trimmed), so that their hashes were cut off.
            ids = [each for each in ids if not self._is_done(each)]
            hashes = self._hashes.of(ids)
        self.replay.add_all(ids, hashes, self._receiver)

    def queue_run(self, ledger_id: int, run: list[Entry], mark_delete: Position) -> None:
        """Queue entries that are read now for the owners of their keys."""
        hashes = self._hashes.of_run(ledger_id, run, mark_delete)
        ids = [(ledger_id, each[0]) for each in run]
        self.replay.add_all(ids, hashes, self._receiver)

    def queue_for(self, consumer: Consumer | None, ids: list[EntryId]) -> None:
        """Queue new entries for ``consumer``; for None, until their hashes are drained or have an
        owner."""
        if consumer is not None:
            self.replay.add_for(consumer, ids)
            return
        hashes = self._hashes.of(ids)
        draining = self.draining.hashes
        for key_hash in hashes if draining else ():
            if key_hash in draining:
                draining[key_hash].blocked_attempts += 1
        self.replay.add_all(ids, hashes, self._receiver)

    def given_back(self, consumer: Consumer, ids: Sequence[EntryId]) -> None:
        """``consumer`` gives entries back: they wait for the owners of their keys."""
        del consumer
        # First queued, then released: if that drains their hash, they move to its new owner.
        self._queue(ids)
        self._given_up(ids)

    def acknowledged(self, ids: Sequence[EntryId], unheld: Sequence[EntryId]) -> bool:
        """Entries need not be sent any more; only those in ``unheld`` may have waited for that.
        True if other entries may be sent now."""
        goes_on = self._given_up(ids)
        # An entry that a consumer held does not wait anywhere: it need not be searched for.
        replay = self.replay
        if unheld and replay:
            for each, key_hash in zip(unheld, self._hashes.of(unheld), strict=True):
                replay.discard(each, key_hash, self._receivers[key_hash])
        return goes_on

    def _given_up(self, ids: Sequence[EntryId]) -> bool:
        """Entries are no longer held; True if that drained a hash for which others waited."""
        drained = self.draining.given_up(ids)
        if not drained:
            return False
        for key_hash in drained:
            # The cache says None for a hash that drained; the next look-up asks the selector.
            self._receivers.pop(key_hash, None)
        return self.replay.unblock(drained, self._receiver)

    # New entries

    def wants_new(self, consumer: Consumer) -> bool:
        """Whether ``consumer`` can be sent new entries: not before those that wait for it, if order
        matters."""
        return consumer.can_take and (
            self.policy.allows_out_of_order or not self.replay.queues.get(consumer)
        )

    def share_out(
        self, ledger_id: int, run: list[Entry], mark_delete: Position
    ) -> tuple[dict[Consumer | None, Share], int]:
        """The shares of ``run`` by consumer, and how many of its entries they have.

        It stops when no consumer can take more, or when too many entries would wait.
        """
        hashes = self._hashes.of_run(ledger_id, run, mark_delete)
        receivers = self._receivers
        # At least 1: the dispatcher reads only while fewer entries wait than may.
        waiting_left = self.look_ahead_max - len(self.replay)
        shares: dict[Consumer | None, Share] = {}
        used = 0
        # HOT: for each message a look-up by hash and one by consumer.
        for entry, key_hash in zip(run, hashes, strict=True):
            used += 1
            consumer = receivers[key_hash]
            share = shares.get(consumer)
            if share is None:
                room = 0
                if consumer is not None and self.wants_new(consumer):
                    may_hold = consumer.unacknowledged_max - consumer.unacknowledged
                    room = min(consumer.permits, may_hold)
                share = shares[consumer] = Share([], room, is_wanted=room > 0)
            share.entries.append(entry)
            if share.room > 0:
                # An entry whose messages are not counted yet has at least one.
                share.room -= entry[2] or 1
                # Asked only when a consumer has just become full, not for each entry.
                if share.room <= 0 and not any(
                    shares[each].room > 0 if each in shares else self.wants_new(each)
                    for each in self.consumers
                ):
                    break
            else:
                # Without room, the entry waits: the run ends when no more may.
                waiting_left -= 1
                if waiting_left <= 0:
                    break
        return shares, used

    def taker(self, consumer: Consumer, position: EntryId, payload: bytes) -> Consumer:
        """``consumer``, as its share of a run has only entries of its own keys; see
        ``SharedDistribution``."""
        del position, payload
        return consumer
