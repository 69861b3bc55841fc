"""Admission: how much of each topic's backlog a micro-batch takes, where the query has a limit.

The limit is filled like basins that are connected: every topic gets the same amount, and what a
topic with less backlog leaves goes to the others. Idle topics hold nothing back, and a topic far
behind cannot starve the rest. Amounts are rows or bytes; entries are taken whole, since a batch of
messages is stored as one entry. Each topic with a backlog advances by an entry at least: no limit
can block an entry that is larger than it, nor any topic.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple, Protocol

from geminga import LogPosition
from pyspark_geminga.log_layout import Segment


class CountedEntry(NamedTuple):
    """An entry of a log: how many rows it makes, and the position behind it."""

    rows: int
    behind: LogPosition


class Backlog(Protocol):
    """What one topic has to be read, of which entries are taken from the front."""

    @property
    def is_exhausted(self) -> bool:
        """Is nothing left? Asking looks no further than at the entry that comes next."""
        ...

    def take(self, amount: int, *, is_first: bool) -> int:
        """Take the entries from the front that fit into ``amount``; with ``is_first`` one at least.

        Returns what they amount to. What counts for nothing (markers, which no reader gets to see)
        is taken along.
        """
        ...


def water_fill(backlogs: Mapping[str, Backlog], limit: int) -> None:
    """Take ``limit`` of all of them together, as the module says.

    The sum exceeds the limit only by first entries, without which a topic would not advance. As
    soon as the limit is reached nothing more is asked of any topic.
    """
    assert limit > 0
    taken: dict[str, int] = {}
    for topic, backlog in backlogs.items():
        if not backlog.is_exhausted:
            taken[topic] = backlog.take(0, is_first=True)
    left = limit - sum(taken.values())
    waiting = list(taken)
    # Each round raises the level to what those that are not exhausted can have in equal parts.
    # It takes an entry at least, or is the last one but for what no level divides.
    while left > 0 and waiting:
        level = (left + sum(taken[topic] for topic in waiting)) // len(waiting)
        left_before = left
        for topic in waiting:
            left -= _raise(backlogs[topic], taken, topic, min(left, level - taken[topic]))
            if left <= 0:
                return
        if left == left_before:
            break
        waiting = [topic for topic in waiting if not backlogs[topic].is_exhausted]
    # What is left is less than an entry for each topic: the first that have one that fits get it.
    for topic in waiting:
        if left <= 0:
            return
        left -= _raise(backlogs[topic], taken, topic, left)


def _raise(backlog: Backlog, taken: dict[str, int], topic: str, amount: int) -> int:
    more = backlog.take(amount, is_first=False) if amount > 0 else 0
    taken[topic] += more
    return more


class ByteBacklog:
    """A backlog in bytes, of which brokers tell how much each ledger has: entries count as the mean
    of their ledger. ``position`` is behind what was taken."""

    def __init__(self, segments: Sequence[Segment], start: LogPosition) -> None:
        self._segments = segments
        self._number = 0  # of the segment that comes next
        self._taken_entries = 0  # of that segment
        self.position = start

    @property
    def is_exhausted(self) -> bool:
        """Is nothing left?"""
        return self._number == len(self._segments)

    def take(self, amount: int, *, is_first: bool) -> int:
        """Take the entries that fit; returns their bytes."""
        taken_bytes = 0
        while self._number < len(self._segments):
            segment = self._segments[self._number]
            entries = min(
                segment.entries - self._taken_entries,
                (amount - taken_bytes) // segment.entry_bytes,
            )
            if is_first and not taken_bytes:
                entries = max(1, entries)
            if not entries:
                break
            taken_bytes += entries * segment.entry_bytes
            self._taken_entries += entries
            self.position = segment.at(self._taken_entries)
            if self._taken_entries < segment.entries:
                break
            self._number += 1
            self._taken_entries = 0
        return taken_bytes


class RowBacklog:
    """A backlog in rows, which only the entries themselves tell: they are looked at one after the
    other, and no further than has to be. ``position`` is behind what was taken; where nothing is
    left it is ``end``, behind which ids there may be nothing."""

    def __init__(
        self, entries: Generator[CountedEntry], start: LogPosition, end: LogPosition
    ) -> None:
        self._entries = entries
        self._end = end
        self._ahead: CountedEntry | None = None
        self.position = start
        # Called with the rows of each entry that is taken, and the position behind it: what else is
        # decided by them needs not count them again.
        self.on_taken: Callable[[int, LogPosition], None] | None = None

    @property
    def is_exhausted(self) -> bool:
        """Is nothing left? Looks at the next entry."""
        if self._ahead is None and self.position < self._end:
            self._ahead = next(self._entries, None)
            if self._ahead is None:
                self.position = self._end
        return self._ahead is None

    def take(self, amount: int, *, is_first: bool) -> int:
        """Take the entries that fit, and with them those without rows; returns the rows."""
        taken_rows = 0
        while not self.is_exhausted and self._ahead is not None:
            rows = self._ahead.rows
            if taken_rows + rows > amount and not (is_first and not taken_rows):
                break
            taken_rows += rows
            self.position = self._ahead.behind
            if self.on_taken is not None:
                self.on_taken(rows, self.position)
            self._ahead = None
            if taken_rows >= amount:
                break  # asking for the next entry would be one more than the limit needs
        return taken_rows

    @property
    def is_at_end(self) -> bool:
        """Was everything taken? Unlike ``is_exhausted`` it looks at no entry, and may be late."""
        return self.position >= self._end

    def close(self) -> None:
        """Look at no more entries."""
        self._entries.close()
