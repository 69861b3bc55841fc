"""Which consumer owns a key, if the consumers ask for fixed hash ranges (STICKY mode). Pure.

As Pulsar's HashRangeExclusiveStickyKeyConsumerSelector: hashes are 0 to 65,535, and no key has 0. A
hash that no consumer asked for has no owner, unless it lies between two ranges of the same one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

import mmh3

from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import HashRange

HASHES = 65_536


def range_hash(key: bytes) -> int:
    """The hash of a key, 1 to 65,535."""
    # 0 is no hash: keys that would have it share 1 with others.
    return (mmh3.hash(key, 0, False) & 0x7FFF_FFFF) % HASHES or 1  # noqa: FBT003 (its third is "signed")


@dataclass(slots=True, eq=False)
class HashRanges:
    """The consumers' ranges, by their first and last hashes."""

    # The consumer at each end of a range, and these ends in order.
    _at: dict[int, Consumer] = field(default_factory=dict, init=False)
    _ends: list[int] = field(default_factory=list, init=False)

    hash_of = staticmethod(range_hash)

    def holder(self, ranges: Iterable[HashRange]) -> Consumer | None:
        """A consumer that owns some of ``ranges``."""
        for start, end in ranges:
            # The next end of another range, from ``start`` on: the two overlap if it lies within.
            index = bisect_left(self._ends, start)
            if index < len(self._ends) and self._ends[index] <= end:
                return self._at[self._ends[index]]
            # No range begins or ends within this one; but it may lie in the middle of one. Between
            # two ranges of a consumer it is free, although ``select`` names that consumer.
            around = self.select(start)
            if around is not None and any(
                first <= end and start <= last for first, last in around.key_shared.ranges
            ):
                return around
        return None

    def add(self, consumer: Consumer) -> None:
        """Give ``consumer`` the ranges that it asks for; ``holder`` knew no other owner."""
        for start, end in consumer.key_shared.ranges:
            # A range of one hash has one end here.
            self._at[start] = self._at[end] = consumer
        self._ends = sorted(self._at)

    def remove(self, consumer: Consumer) -> None:
        """Free the ranges of ``consumer``."""
        self._at = {end: each for end, each in self._at.items() if each is not consumer}
        self._ends = sorted(self._at)

    def select(self, key_hash: int) -> Consumer | None:
        """The owner of a hash."""
        # An owner has the hash if the nearest ends on both sides are its own, the hash included.
        ends = self._ends
        below = bisect_right(ends, key_hash) - 1
        above = bisect_left(ends, key_hash)
        if below < 0 or above == len(ends):
            return None
        owner = self._at[ends[below]]
        return owner if self._at[ends[above]] is owner else None

    def ranges_of(self, consumer: Consumer) -> list[HashRange]:
        """The ranges of ``consumer`` in order."""
        return sorted(consumer.key_shared.ranges)
