"""Key hashes of a Key_Shared subscription that a consumer still holds but no longer owns. Pure.

One rule keeps the order of keys (PIP-379): while a consumer holds unacknowledged entries of a hash,
no other consumer gets entries of it. If the hash has another owner by now, it is draining: its new
entries wait until the former owner has acknowledged its own.

Entries of hashes that stay with their consumers are not counted. Only a change of consumers goes
through all held entries, and while no hash drains, an acknowledgement costs nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.key_hashes import KeyHashes

Select = Callable[[int], Consumer | None]
"""The consumer that owns a hash now."""


@dataclass(slots=True)
class DrainingHash:
    """A hash that ``consumer`` owned before, and of which it still holds ``entries``."""

    consumer: Consumer
    entries: int
    # How many new entries of the hash had to wait, each time they were read.
    blocked_attempts: int = 0


@dataclass(slots=True, eq=False)
class DrainingHashes:
    """The draining hashes of one subscription."""

    hashes: dict[int, DrainingHash] = field(default_factory=dict, init=False)
    # How many hashes each connected consumer has drained.
    drained_total: dict[Consumer, int] = field(default_factory=dict, init=False)
    # The hash of each entry that keeps one draining.
    _hash_of: dict[EntryId, int] = field(default_factory=dict, init=False)

    def reassigned(self, select: Select, holders: Iterable[Consumer], known: KeyHashes) -> None:
        """Hashes have new owners: find those that drain, from the entries that ``holders`` hold."""
        # From scratch: a hash may have returned to its former owner, which ends its draining.
        before, self.hashes, self._hash_of = self.hashes, {}, {}
        for consumer in holders:
            ids = list(consumer.pending)
            hashes = known.of(ids)
            # Each hash is looked up once: many entries share few hashes.
            lost = {each for each in set(hashes) if select(each) is not consumer}
            # It lost none of the hashes of which it holds entries.
            if not lost:
                continue
            of_lost = [pair for pair in zip(ids, hashes, strict=True) if pair[1] in lost]
            self._hash_of.update(of_lost)
            for _, key_hash in of_lost:
                draining = self.hashes.get(key_hash)
                if draining is None:
                    # The count that stats show goes on while the hash drains.
                    attempts = before[key_hash].blocked_attempts if key_hash in before else 0
                    draining = self.hashes[key_hash] = DrainingHash(consumer, 0, attempts)
                draining.entries += 1

    def given_up(self, ids: Iterable[EntryId]) -> list[int]:
        """Entries are no longer held, if they ever were: return the hashes that are drained now."""
        # HOT: called for each acknowledgement; the list is empty while no hash drains.
        drained: list[int] = []
        for key_hash in [self._hash_of.pop(each, None) for each in ids] if self._hash_of else ():
            if key_hash is None:
                continue
            # Always there: ``_hash_of`` has entries of draining hashes only, as many as they count.
            draining = self.hashes[key_hash]
            draining.entries -= 1
            if not draining.entries:
                del self.hashes[key_hash]
                former = draining.consumer
                self.drained_total[former] = self.drained_total.get(former, 0) + 1
                drained.append(key_hash)
        return drained

    def of(self, consumer: Consumer) -> dict[int, DrainingHash]:
        """The hashes that ``consumer`` no longer owns but still holds entries of, in order."""
        found = sorted(each for each in self.hashes if self.hashes[each].consumer is consumer)
        return {each: self.hashes[each] for each in found}
