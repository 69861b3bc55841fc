"""Which consumer owns a key, if the broker splits the keys (AUTO_SPLIT mode). Pure.

Consistent hashing as in Pulsar 4.0 (ConsistentHashingStickyKeyConsumerSelector): hashes are 1 to
65,535, 0 is none. Each consumer has points on the ring, and a hash belongs to the next point.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

import mmh3

from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import HashRange

# subscriptionKeySharedConsistentHashingReplicaPoints
POINTS_PER_CONSUMER = 100
HASHES = 65_535


def ring_hash(key: bytes) -> int:
    """The hash of a key, 1 to 65,535."""
    return (mmh3.hash(key, 0, False) & 0x7FFF_FFFF) % HASHES + 1  # noqa: FBT003 (its third is "signed")


@dataclass(slots=True, eq=False)
class HashRing:
    """The consumers' points on the ring."""

    points_per_consumer: int = POINTS_PER_CONSUMER
    # The consumers at each point in the order in which they came; the first one owns it.
    _at: dict[int, list[Consumer]] = field(default_factory=dict, init=False)
    # Consumers of the same name are told apart by the lowest free number, so that one that
    # reconnects gets the same points again.
    _numbers: dict[str, dict[int, Consumer]] = field(default_factory=dict, init=False)
    # All points in order, and their owners, with the first owner once more at the end: hashes
    # beyond the last point belong to the first one.
    _points: list[int] = field(default_factory=list, init=False)
    _owners: list[Consumer] = field(default_factory=list, init=False)

    hash_of = staticmethod(ring_hash)

    def holder(self, ranges: Iterable[HashRange]) -> None:
        """None: no consumer is in the way of a further one, because the keys are split anew."""
        del ranges

    def add(self, consumer: Consumer) -> None:
        """Give ``consumer`` its points."""
        numbers = self._numbers.setdefault(consumer.name, {})
        # As upstream's ``ConsumerNameIndexTracker``, so that a consumer that reconnects under its
        # name finds its keys again.
        number = next(each for each in range(len(numbers) + 1) if each not in numbers)
        numbers[number] = consumer
        for point in self._points_of(consumer.name, number):
            # Behind those that have the point already: they keep it.
            self._at.setdefault(point, []).append(consumer)
        self._changed()

    def remove(self, consumer: Consumer) -> None:
        """Take the points of ``consumer`` away, if it has any."""
        numbers = self._numbers.get(consumer.name, {})
        for number, present in numbers.items():
            if present is not consumer:
                continue
            for point in self._points_of(consumer.name, number):
                # The same point may belong to several consumers, or to one consumer twice.
                there = self._at.get(point)
                if there is not None:
                    there[:] = [each for each in there if each is not consumer]
                    if not there:
                        del self._at[point]
            del numbers[number]
            break
        if not numbers:
            self._numbers.pop(consumer.name, None)
        self._changed()

    def _points_of(self, name: str, number: int) -> list[int]:
        # Upstream's strings, so that both give the same consumers the same keys.
        return [
            ring_hash(f"{name}\0{number}\0{point}".encode())
            for point in range(self.points_per_consumer)
        ]

    def _changed(self) -> None:
        self._points = sorted(self._at)
        self._owners = [self._at[point][0] for point in self._points]
        self._owners += self._owners[:1]

    def select(self, key_hash: int) -> Consumer | None:
        """The owner of a hash; None without consumers."""
        if not self._owners:
            return None
        # Beyond the last point the index is that of the first owner at the end of the list.
        return self._owners[bisect_left(self._points, key_hash)]

    def ranges_of(self, consumer: Consumer) -> list[HashRange]:
        """The hashes of ``consumer`` as ranges in order; adjacent ones are joined."""
        ranges: list[HashRange] = []
        if not self._owners:
            return ranges
        # Each owner has the hashes from behind the point before up to its own point.
        start = 1
        # The last pair is what lies behind the last point, which the first owner has.
        for point, owner in zip([*self._points, HASHES], self._owners, strict=True):
            if owner is consumer and start <= point:
                if ranges and ranges[-1][1] == start - 1:
                    start = ranges.pop()[0]
                ranges.append((start, point))
            start = point + 1
        return ranges
