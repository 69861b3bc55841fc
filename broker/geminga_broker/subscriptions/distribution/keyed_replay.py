"""Entries of a Key_Shared subscription that wait for their consumer, or for their key. Pure.

Entries of a consumer's keys wait in one queue, lowest position first, so that each key keeps its
order. Entries of a hash that is draining elsewhere, or that has no owner, are blocked: they wait by
hash and hold up no other entries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.key_hashes import KeyHashes
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue

Receiver = Callable[[int], Consumer | None]
"""The consumer that may get entries of a hash now; None if none may."""


@dataclass(slots=True, eq=False)
class KeyedReplay:
    """The waiting entries of one subscription."""

    # The entries that wait for each consumer; empty queues are possible.
    queues: dict[Consumer, ReplayQueue] = field(default_factory=dict)
    # Blocked entries by hash. A dict of positions, because any of them may be acknowledged; not
    # sorted, because the queue that they move to sorts them. No hash is here without an entry.
    _blocked: dict[int, dict[EntryId, None]] = field(default_factory=dict, init=False)
    _blocked_count: int = field(default=0, init=False)

    def __len__(self) -> int:
        return sum(map(len, self.queues.values())) + self._blocked_count

    @property
    def firsts(self) -> list[EntryId]:
        """The lowest entry that waits for each consumer, and the earliest one of each blocked
        hash."""
        queued = [queue.first for queue in self.queues.values() if queue]
        return queued + [next(iter(ids)) for ids in self._blocked.values()]

    # Adding

    def add_for(self, consumer: Consumer, ids: Sequence[EntryId]) -> None:
        """Queue entries for ``consumer``; none of them waits already."""
        queue = self.queues.get(consumer)
        if queue is None:
            queue = self.queues[consumer] = ReplayQueue()
        queue.add_all(ids)

    def add_all(self, ids: Sequence[EntryId], hashes: Sequence[int], receiver: Receiver) -> None:
        """Queue entries with these hashes for their receivers, or block them; none of them waits
        already."""
        # Each hash is looked up once: many entries share few hashes.
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

    # Removing

    def discard(self, position: EntryId, key_hash: int, receiver: Consumer | None) -> None:
        """Remove an entry, if it waits; ``receiver`` is the one of its hash."""
        if receiver is not None:
            queue = self.queues.get(receiver)
            if queue is not None:
                queue.discard(position)
            return
        # Without a receiver, the hash is blocked, if any of its entries waits.
        blocked = self._blocked.get(key_hash)
        if blocked is not None and position in blocked:
            self._take_blocked(key_hash, [position])

    def discard_upto(self, position: EntryId) -> None:
        """Remove all entries up to ``position``."""
        for queue in self.queues.values():
            queue.discard_upto(position)
        # A copy: hashes of which no entry is left are removed.
        for key_hash, blocked in list(self._blocked.items()):
            self._take_blocked(key_hash, [each for each in blocked if each <= position])

    def _take_blocked(self, key_hash: int, ids: Sequence[EntryId]) -> None:
        blocked = self._blocked[key_hash]
        for each in ids:
            del blocked[each]
        self._blocked_count -= len(ids)
        if not blocked:
            del self._blocked[key_hash]

    # Moving

    def unblock(self, hashes: Iterable[int], receiver: Receiver) -> bool:
        """Queue the blocked entries of ``hashes`` that have a receiver now; False if there are
        none."""
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
        """Move entries whose hashes have another receiver now: consumers came or left, or hashes
        began to drain."""
        # Collected first and added last, because ``add_all`` may change the queues that the loop
        # goes through.
        moving: list[EntryId] = []
        for consumer, queue in self.queues.items():
            ids = list(queue)
            of_ids = hashes.of(ids)
            # Whole hashes move, never part of one: the order within a key stays.
            lost = {each for each in set(of_ids) if receiver(each) is not consumer}
            if lost:
                pairs = list(zip(ids, of_ids, strict=True))
                moving += [position for position, key_hash in pairs if key_hash in lost]
                kept = [position for position, key_hash in pairs if key_hash not in lost]
                self.queues[consumer] = ReplayQueue(kept)
        self.queues = {each: queue for each, queue in self.queues.items() if queue}
        # Blocked entries too: their hash may have an owner now, or its draining has ended.
        self.unblock(list(self._blocked), receiver)
        self.add_all(moving, hashes.of(moving), receiver)
