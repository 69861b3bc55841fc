"""Which keys are on their way to which consumer of a Key_Shared subscription (PIP-379). Pure.

Keys are told apart by their hashes. What keeps their order is one rule: as long as a consumer holds
messages of a hash unacknowledged, nobody else gets any of it. Where the hash belongs to another
consumer by now it is draining, and what comes of it waits until it is drained. Hashes that stay
with their consumers are not counted: only a change of consumers asks who holds how much of what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from magnetar_broker.log.positions import EntryId
from magnetar_broker.subscriptions.consumer import Consumer

Select = Callable[[int], Consumer | None]
"""To whom a hash belongs now."""


@dataclass(slots=True)
class Held:
    """``consumer`` holds so many entries of a hash that is another's by now, of which entries were
    read and had to wait so often."""

    consumer: Consumer
    entries: int
    blocked_attempts: int = 0


class KeysInFlight:
    """The hashes of all entries that are sent and not acknowledged."""

    def __init__(self) -> None:
        self._hash_of: dict[EntryId, int] = {}
        self.draining: dict[int, Held] = {}
        self.drained_total: dict[Consumer, int] = {}

    def __len__(self) -> int:
        return len(self._hash_of)

    def add_held(
        self, ids: Iterable[EntryId], hashes: Iterable[int], held: Container[EntryId]
    ) -> None:
        """Those entries that a consumer holds now were sent to it; their hashes are its own."""
        pairs = zip(ids, hashes, strict=True)
        self._hash_of.update({each: key_hash for each, key_hash in pairs if each in held})

    def hash_of(self, position: EntryId) -> int | None:
        """The hash of an entry in flight; None for one that is not."""
        return self._hash_of.get(position)

    def remove(self, position: EntryId) -> int:
        """An entry came back or was acknowledged: its hash if that was draining and is drained
        now, otherwise 0."""
        key_hash = self._hash_of.pop(position, None)
        return self._drained(key_hash) if key_hash is not None and self.draining else 0

    def remove_all(self, ids: Sequence[EntryId]) -> tuple[list[int], list[EntryId]]:
        """Entries were acknowledged: the hashes that are drained now, and those of the entries that
        were not in flight."""
        take = self._hash_of.pop
        hashes = [take(each, 0) for each in ids]
        strangers = [each for each, key_hash in zip(ids, hashes, strict=True) if not key_hash]
        drained = filter(None, map(self._drained, hashes)) if self.draining else ()
        return list(drained), strangers

    def _drained(self, key_hash: int) -> int:
        held = self.draining.get(key_hash)
        if held is None:
            return 0
        held.entries -= 1
        if held.entries:
            return 0
        del self.draining[key_hash]
        drained = self.drained_total
        drained[held.consumer] = drained.get(held.consumer, 0) + 1
        return key_hash

    def reassigned(self, select: Select, holders: Iterable[Consumer]) -> None:
        """Consumers came or went: see which hashes must drain first, which ``holders`` hold."""
        before, self.draining = self.draining, {}
        for consumer in holders:
            held = Counter(map(self._hash_of.__getitem__, consumer.pending))
            for key_hash, entries in held.items():
                if select(key_hash) is not consumer:
                    known = before.get(key_hash)
                    attempts = known.blocked_attempts if known is not None else 0
                    self.draining[key_hash] = Held(consumer, entries, attempts)

    def left(self, consumer: Consumer) -> None:
        """``consumer`` is gone, and holds nothing any more."""
        self.drained_total.pop(consumer, None)

    def clear(self) -> None:
        """Nothing is in flight: the subscription was moved."""
        self._hash_of.clear()
        self.draining.clear()
        self.drained_total.clear()
