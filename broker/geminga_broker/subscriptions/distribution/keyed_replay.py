"""Entries of a Key_Shared subscription that wait for their consumer, or for their key. Pure.

Those of a consumer wait in one queue, lowest position first: so each key of it keeps its order.
Those whose hash is draining elsewhere, or belongs to nobody, wait by hash and hinder no others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.key_hashes import KeyHashes
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue

Receiver = Callable[[int], Consumer | None]
"""Who may get entries of a hash now; None for nobody."""


class KeyedReplay:
    """Waiting entries."""

    def __init__(self) -> None:
        self.queues: dict[Consumer, ReplayQueue] = {}
        # As they came, which is sorted when they go to a queue, but any is found at once.
        self._blocked: dict[int, dict[EntryId, None]] = {}
        self._blocked_count = 0

    def __len__(self) -> int:
        return sum(map(len, self.queues.values())) + self._blocked_count

    @property
    def firsts(self) -> list[EntryId]:
        """The first entry of each consumer's that waits, and what came first of each hash."""
        queued = [queue.first for queue in self.queues.values() if queue]
        return queued + [next(iter(ids)) for ids in self._blocked.values()]

    def add_for(self, consumer: Consumer, ids: Sequence[EntryId]) -> None:
        """Let entries wait for ``consumer``, none of which waits already."""
        queue = self.queues.get(consumer)
        if queue is None:
            queue = self.queues[consumer] = ReplayQueue()
        queue.add_all(ids)

    def add_all(self, ids: Sequence[EntryId], hashes: Sequence[int], receiver: Receiver) -> None:
        """Let entries of these hashes, none of which waits already, wait for who may get them, or
        until somebody may. Each hash is asked for once: many entries share few."""
        ids_of_hash: defaultdict[int, list[EntryId]] = defaultdict(list)
        for position, key_hash in zip(ids, hashes, strict=True):
            ids_of_hash[key_hash].append(position)
        ids_of: defaultdict[Consumer, list[EntryId]] = defaultdict(list)
        for key_hash, of_hash in ids_of_hash.items():
            consumer = receiver(key_hash)
            if consumer is None:
                self._blocked.setdefault(key_hash, {}).update(dict.fromkeys(of_hash))
                self._blocked_count += len(of_hash)
            else:
                ids_of[consumer] += of_hash
        for consumer, of_consumer in ids_of.items():
            self.add_for(consumer, of_consumer)

    def discard(self, position: EntryId, key_hash: int, receiver: Consumer | None) -> None:
        """An entry needs not wait any more, if it did."""
        if receiver is not None:
            queue = self.queues.get(receiver)
            if queue is not None:
                queue.discard(position)
            return
        blocked = self._blocked.get(key_hash)
        if blocked is not None and position in blocked:
            self._take_blocked(key_hash, [position])

    def _take_blocked(self, key_hash: int, ids: Sequence[EntryId]) -> None:
        """Some of those that wait for a hash wait no more."""
        blocked = self._blocked[key_hash]
        for each in ids:
            del blocked[each]
        self._blocked_count -= len(ids)
        if not blocked:
            del self._blocked[key_hash]

    def discard_upto(self, position: EntryId) -> None:
        """Nothing up to there needs to wait any more."""
        for queue in self.queues.values():
            queue.discard_upto(position)
        for key_hash, blocked in list(self._blocked.items()):
            self._take_blocked(key_hash, [each for each in blocked if each <= position])

    def unblock(self, hashes: Iterable[int], receiver: Receiver) -> bool:
        """These may be somebody's now: what waited for that waits for them; False if nothing."""
        ids_of: defaultdict[Consumer, list[EntryId]] = defaultdict(list)
        for key_hash in hashes:
            consumer = receiver(key_hash)
            if consumer is not None and key_hash in self._blocked:
                blocked = self._blocked.pop(key_hash)
                self._blocked_count -= len(blocked)
                ids_of[consumer] += blocked
        for consumer, ids in ids_of.items():
            self.add_for(consumer, ids)
        return bool(ids_of)

    def reassign(self, hashes: KeyHashes, receiver: Receiver) -> None:
        """Consumers came or went, or hashes are draining now: what waited for another moves."""
        moving: list[EntryId] = []
        for consumer, queue in self.queues.items():
            ids = list(queue)
            of_ids = hashes.of(ids)
            lost = {each for each in set(of_ids) if receiver(each) is not consumer}
            if lost:
                pairs = list(zip(ids, of_ids, strict=True))
                moving += [position for position, key_hash in pairs if key_hash in lost]
                kept = [position for position, key_hash in pairs if key_hash not in lost]
                self.queues[consumer] = ReplayQueue(kept)
        self.queues = {each: queue for each, queue in self.queues.items() if queue}
        self.unblock(list(self._blocked), receiver)
        self.add_all(moving, hashes.of(moving), receiver)

    def clear(self) -> None:
        """Nothing waits any more."""
        self.queues.clear()
        self._blocked.clear()
        self._blocked_count = 0
