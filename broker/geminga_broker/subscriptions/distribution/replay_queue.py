"""Entries that wait to be sent (again), lowest position first. Pure.

Most come in order and leave at the front, which costs as much as a list: what has left is cut off
once it is half of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from geminga_broker.managed_ledger.positions import EntryId

# So many entries that have left are kept in front of the others before they are cut off.
LEFT_MIN = 64


class ReplayQueue:
    """A sorted queue of positions; none is in it twice."""

    __slots__ = ("_head", "_positions")

    def __init__(self, positions: Iterable[EntryId] = ()) -> None:
        self._positions = sorted(positions)
        self._head = 0

    def __len__(self) -> int:
        return len(self._positions) - self._head

    def __iter__(self) -> Iterator[EntryId]:
        return iter(self._positions[self._head :])

    @property
    def first(self) -> EntryId:
        """The lowest; there must be one."""
        return self._positions[self._head]

    def add(self, position: EntryId) -> None:
        """Let one more wait."""
        positions = self._positions
        if not positions or position > positions[-1]:
            positions.append(position)
            return
        index = bisect_left(positions, position, self._head)
        if index == len(positions) or positions[index] != position:
            positions.insert(index, position)

    def add_all(self, positions: Iterable[EntryId]) -> None:
        """Let many more wait, in any order, none of which waits already."""
        more, waiting = sorted(positions), self._positions
        if not more or not waiting or more[0] > waiting[-1]:
            waiting.extend(more)
            return
        del waiting[: self._head]
        self._head = 0
        waiting.extend(more)
        waiting.sort()

    def discard(self, position: EntryId) -> bool:
        """One does not wait any more; False where it did not."""
        index = bisect_left(self._positions, position, self._head)
        if index == len(self._positions) or self._positions[index] != position:
            return False
        del self._positions[index]
        return True

    def discard_upto(self, position: EntryId) -> None:
        """Nothing up to there waits any more."""
        self.take(bisect_right(self._positions, position, self._head) - self._head)

    def near_first(self, count_max: int, distance_max: int) -> list[EntryId]:
        """At most so many from the first on, of its ledger, less than ``distance_max`` entries
        away from it: those that one read may give."""
        positions = self._positions[self._head : self._head + count_max]
        ledger_id, first = positions[0]
        if positions[-1] < (ledger_id, first + distance_max):
            return positions
        return positions[: bisect_left(positions, (ledger_id, first + distance_max))]

    def take(self, count: int) -> None:
        """The first ``count`` wait no more."""
        self._head += count
        if self._head >= LEFT_MIN and 2 * self._head >= len(self._positions):
            del self._positions[: self._head]
            self._head = 0

    def clear(self) -> None:
        """None waits any more."""
        self._positions.clear()
        self._head = 0
