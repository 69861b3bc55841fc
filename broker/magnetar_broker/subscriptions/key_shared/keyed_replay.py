"""Entries of a Key_Shared subscription that wait for their consumer, or for their key. Pure.

Those of a consumer wait in one queue, lowest position first: so each key of it keeps its order.
Those whose hash is draining elsewhere, or belongs to nobody, wait by hash and hinder no others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from magnetar_broker.log.positions import EntryId
from magnetar_broker.subscriptions.consumer import Consumer
from magnetar_broker.subscriptions.replay_queue import ReplayQueue

Receiver = Callable[[int], Consumer | None]
"""Who may get entries of a hash now; None for nobody."""


class KeyedReplay:
    """Waiting entries and the hashes of their keys."""

    def __init__(self) -> None:
        self.queues: dict[Consumer, ReplayQueue] = {}
        self._hash_of: dict[EntryId, int] = {}
        self._blocked: dict[int, ReplayQueue] = {}

    def __len__(self) -> int:
        return len(self._hash_of)

    @property
    def first_ready(self) -> list[EntryId]:
        """The first entry of each consumer's that waits; those whose hash is draining wait for
        nobody yet."""
        return [queue.first for queue in self.queues.values() if queue]

    def add(self, position: EntryId, key_hash: int, receiver: Consumer | None) -> None:
        """Let an entry wait for ``receiver``, or until its hash has one."""
        self._hash_of[position] = key_hash
        self._queue(key_hash, receiver).add(position)

    def add_all(
        self, ids: Sequence[EntryId], hashes: Sequence[int], receiver: Consumer | None
    ) -> None:
        """Let many wait, none of which waits already."""
        if receiver is None:
            for position, key_hash in zip(ids, hashes, strict=True):
                self.add(position, key_hash, None)
        elif ids:
            self._hash_of.update(zip(ids, hashes, strict=True))
            self._queue(0, receiver).add_all(ids)

    def _queue(self, key_hash: int, receiver: Consumer | None) -> ReplayQueue:
        if receiver is not None:
            queue = self.queues.get(receiver)
            if queue is None:
                queue = self.queues[receiver] = ReplayQueue()
            return queue
        queue = self._blocked.get(key_hash)
        if queue is None:
            queue = self._blocked[key_hash] = ReplayQueue()
        return queue

    def taken(self, ids: Iterable[EntryId]) -> list[int]:
        """Entries have left their consumer's queue: the hashes of their keys."""
        return [self._hash_of.pop(each) for each in ids]

    def discard(self, position: EntryId) -> bool:
        """An entry needs not wait any more, if it did."""
        key_hash = self._hash_of.pop(position, None)
        if key_hash is None:
            return False
        blocked = self._blocked.get(key_hash)
        if blocked is not None and blocked.discard(position):
            if not blocked:
                del self._blocked[key_hash]
            return True
        return any(queue.discard(position) for queue in self.queues.values())

    def unblock(self, key_hash: int, receiver: Consumer | None) -> bool:
        """The hash is drained: what waited for that waits for ``receiver``; False if nothing."""
        blocked = self._blocked.get(key_hash)
        if receiver is None or blocked is None:
            return False
        del self._blocked[key_hash]
        self._queue(key_hash, receiver).add_all(blocked)
        return True

    def reassign(self, receiver: Receiver) -> None:
        """Consumers came or went, or hashes are draining now: everything waits anew."""
        ids_of_hash: defaultdict[int, list[EntryId]] = defaultdict(list)
        for entry_id, key_hash in self._hash_of.items():
            ids_of_hash[key_hash].append(entry_id)
        self._blocked = {}
        ids_of: defaultdict[Consumer, list[EntryId]] = defaultdict(list)
        for key_hash, ids in ids_of_hash.items():
            consumer = receiver(key_hash)
            if consumer is None:
                self._blocked[key_hash] = ReplayQueue(ids)
            else:
                ids_of[consumer] += ids
        self.queues = {consumer: ReplayQueue(ids) for consumer, ids in ids_of.items()}

    def clear(self) -> None:
        """Nothing waits any more."""
        self.queues.clear()
        self._blocked.clear()
        self._hash_of.clear()
