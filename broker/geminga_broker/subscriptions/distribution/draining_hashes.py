"""Which keys of a Key_Shared subscription are still with a consumer they no longer belong to. Pure.

Keys are told apart by their hashes. What keeps their order is one rule (PIP-379): as long as a
consumer holds messages of a hash unacknowledged, nobody else gets any of it. Where the hash belongs
to another consumer by now it is draining, and what comes of it waits until it is drained. Hashes
that stay with their consumers are not counted: only a change of consumers asks who holds how much
of what, and while nothing drains an acknowledgement costs nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.key_hashes import KeyHashes

Select = Callable[[int], Consumer | None]
"""To whom a hash belongs now."""


@dataclass(slots=True)
class DrainingHash:
    """``consumer`` holds so many entries of a hash that is another's by now, of which entries were
    read and had to wait so often."""

    consumer: Consumer
    entries: int
    blocked_attempts: int = 0


class DrainingHashes:
    """The hashes that drain, and the entries that are still to be acknowledged for that."""

    def __init__(self) -> None:
        self.hashes: dict[int, DrainingHash] = {}
        self.drained_total: dict[Consumer, int] = {}
        self._hash_of: dict[EntryId, int] = {}

    def reassigned(self, select: Select, holders: Iterable[Consumer], known: KeyHashes) -> None:
        """Consumers came or went: see which hashes must drain first, which ``holders`` hold."""
        before, self.hashes, self._hash_of = self.hashes, {}, {}
        for consumer in holders:
            ids = list(consumer.pending)
            hashes = known.of(ids)
            lost = {each for each in set(hashes) if select(each) is not consumer}
            if not lost:
                continue
            of_lost = [pair for pair in zip(ids, hashes, strict=True) if pair[1] in lost]
            self._hash_of.update(of_lost)
            for _, key_hash in of_lost:
                held = self.hashes.get(key_hash)
                if held is None:
                    attempts = before[key_hash].blocked_attempts if key_hash in before else 0
                    held = self.hashes[key_hash] = DrainingHash(consumer, 0, attempts)
                held.entries += 1

    def given_up(self, ids: Iterable[EntryId]) -> list[int]:
        """Nobody holds these any more, if anybody did: the hashes that are drained with that."""
        drained: list[int] = []
        for key_hash in [self._hash_of.pop(each, None) for each in ids] if self._hash_of else ():
            if key_hash is None:
                continue
            held = self.hashes[key_hash]
            held.entries -= 1
            if not held.entries:
                del self.hashes[key_hash]
                self.drained_total[held.consumer] = self.drained_total.get(held.consumer, 0) + 1
                drained.append(key_hash)
        return drained

    def left(self, consumer: Consumer) -> None:
        """``consumer`` is gone, and holds nothing any more."""
        self.drained_total.pop(consumer, None)

    def clear(self) -> None:
        """Nobody holds anything: the subscription was moved."""
        self.hashes.clear()
        self.drained_total.clear()
        self._hash_of.clear()
