"""Entries that wait to be sent, for the first time or again, lowest position first. Pure.

Most entries arrive in order and leave at the front, which is as quick as with a list: those that
have left are cut off once they are half of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from geminga_broker.managed_ledger.positions import EntryId

# Fewer entries that have left are not cut off.
LEFT_MIN = 64


class ReplayQueue:
    """A sorted queue of positions without repeats."""

    __slots__ = ("_head", "_positions")

    def __init__(self, positions: Iterable[EntryId] = ()) -> None:
        # Sorted and without repeats; the positions before ``_head`` have left.
        self._positions = sorted(positions)
        # The index of the first position that is still in the queue.
        self._head = 0

    def __len__(self) -> int:
        return len(self._positions) - self._head

    def __iter__(self) -> Iterator[EntryId]:
        return iter(self._positions[self._head :])

    @property
    def first(self) -> EntryId:
        """The lowest position; the queue must not be empty."""
        return self._positions[self._head]

    def add(self, position: EntryId) -> None:
        """Add one position; one that is in the queue changes nothing."""
        # The usual case: behind all others.
        positions = self._positions
        if not positions or position > positions[-1]:
            positions.append(position)
            return
        index = bisect_left(positions, position, self._head)
        if index == len(positions) or positions[index] != position:
            # Moves what lies behind it; entries that come back one by one are few.
            positions.insert(index, position)

    def add_all(self, positions: Iterable[EntryId]) -> None:
        """Add many positions in any order, none of which is in the queue."""
        more, waiting = sorted(positions), self._positions
        if not more or not waiting or more[0] > waiting[-1]:
            waiting.extend(more)
            return
        del waiting[: self._head]
        self._head = 0
        # Sorting merges the two sorted runs in linear time.
        waiting.extend(more)
        waiting.sort()

    def discard(self, position: EntryId) -> bool:
        """Remove one position; False if it is not in the queue."""
        # Moves what lies behind it, in one block copy.
        index = bisect_left(self._positions, position, self._head)
        if index == len(self._positions) or self._positions[index] != position:
            return False
        del self._positions[index]
        return True

    def discard_upto(self, position: EntryId) -> None:
        """Remove all positions up to ``position``."""
        self.take(bisect_right(self._positions, position, self._head) - self._head)

    def near_first(self, count_max: int, distance_max: int) -> list[EntryId]:
        """The first positions that one read may give: at most ``count_max``, of one ledger, and
        less than ``distance_max`` entries away from the first."""
        # One comparison with the last of them is enough, unless they are far apart.
        positions = self._positions[self._head : self._head + count_max]
        ledger_id, first = positions[0]
        if positions[-1] < (ledger_id, first + distance_max):
            return positions
        return positions[: bisect_left(positions, (ledger_id, first + distance_max))]

    def take(self, count: int) -> None:
        """Remove the first ``count`` positions."""
        self._head += count
        # At least half goes, so each position is moved once on average, however long the queue is.
        if self._head >= LEFT_MIN and 2 * self._head >= len(self._positions):
            del self._positions[: self._head]
            self._head = 0
