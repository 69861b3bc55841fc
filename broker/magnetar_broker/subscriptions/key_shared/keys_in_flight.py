"""Which keys are on their way to which consumer of a Key_Shared subscription (PIP-379). Pure.

Keys are told apart by their hashes. What keeps their order is one rule: as long as a consumer holds
messages of a hash unacknowledged, nobody else gets any of it. Where the hash belongs to another
consumer by now it is draining, and what comes of it waits until it is drained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from magnetar_broker.log.positions import EntryId, Position
from magnetar_broker.subscriptions.consumer import Consumer

Select = Callable[[int], Consumer | None]
"""To whom a hash belongs now."""


@dataclass(slots=True)
class Held:
    """``consumer`` holds so many entries of a hash; others had to wait so often."""

    consumer: Consumer
    entries: int
    blocked_attempts: int = 0


class KeysInFlight:
    """The hashes of all entries that are sent and not acknowledged."""

    def __init__(self) -> None:
        self._hash_of: dict[EntryId, int] = {}
        self._held: dict[int, Held] = {}
        self.draining: dict[int, Held] = {}
        self.drained_total: dict[Consumer, int] = {}

    def __len__(self) -> int:
        return len(self._hash_of)

    def add(self, position: Position, key_hash: int, consumer: Consumer) -> None:
        """An entry is sent to ``consumer``."""
        self._hash_of[position] = key_hash
        held = self._held.get(key_hash)
        if held is None:
            self._held[key_hash] = Held(consumer, 1)
        else:
            held.entries += 1

    def hash_of(self, position: Position) -> int | None:
        """The hash of an entry in flight; None for one that is not."""
        return self._hash_of.get(position)

    def remove(self, position: EntryId) -> int:
        """An entry came back or was acknowledged: its hash if that was draining and is drained
        now, otherwise 0."""
        key_hash = self._hash_of.pop(position, None)
        if key_hash is None:
            return 0
        held = self._held[key_hash]
        held.entries -= 1
        if held.entries:
            return 0
        del self._held[key_hash]
        if not self.draining or self.draining.pop(key_hash, None) is None:
            return 0
        drained = self.drained_total
        drained[held.consumer] = drained.get(held.consumer, 0) + 1
        return key_hash

    def reassigned(self, select: Select) -> None:
        """Consumers came or went: see which hashes must drain first."""
        self.draining = {
            key_hash: held
            for key_hash, held in self._held.items()
            if select(key_hash) is not held.consumer
        }

    def left(self, consumer: Consumer) -> None:
        """``consumer`` is gone, and holds nothing any more."""
        self.drained_total.pop(consumer, None)

    def clear(self) -> None:
        """Nothing is in flight: the subscription was moved."""
        self._hash_of.clear()
        self._held.clear()
        self.draining.clear()
        self.drained_total.clear()
