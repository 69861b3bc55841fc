"""Admission: how much of each topic's backlog a micro-batch takes, where the query has a limit.

The limit is filled like basins that are connected: every topic gets the same amount, and what a
topic with less backlog leaves goes to the others. Idle topics hold nothing back, and a topic far
behind cannot starve the rest. Amounts are rows or bytes; entries are taken whole, since a batch of
messages is stored as one entry. Each topic with a backlog advances by an entry at least: no limit
can block an entry that is larger than it, nor any topic.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from geminga import LogPosition
from pyspark_geminga.log_layout import Segment


class CountedEntry(NamedTuple):
    """An entry of a log: how many rows it makes, and the position behind it."""

    rows: int
    behind: LogPosition


class Backlog(Protocol):
    """The unread entries of one topic, which are taken from the front."""

    @property
    def is_exhausted(self) -> bool:
        """Is nothing left? This reads the next entry at most."""
        ...

    def take(self, amount: int, *, is_first: bool) -> int:
        """Take the entries from the front that fit into ``amount``; with ``is_first`` one at least.

        Returns their rows or bytes. Entries without any (markers, which readers do not get) are
        taken along.
        """
        ...


# A limit of 12, and backlogs of 7, 2 and 12 entries of one row:
#
#   first entries     1   1    1
#   round 1           4   2    4      up to the level 4; the second topic has no more
#   round 2           5   2    5      what that one leaves lifts the others to 5
def water_fill(backlogs: Mapping[str, Backlog], limit: int) -> None:
    """Take entries of all backlogs, in sum about ``limit`` rows or bytes, in fair shares.

    The sum exceeds the limit only by first entries, without which a topic would not advance. As
    soon as the limit is reached, no backlog is read any further.
    """
    assert limit > 0
    # By topic, for those that had anything: what this batch takes of it so far.
    taken: dict[str, int] = {}
    # The first entry of each topic first: it may already exceed the topic's share.
    for topic, backlog in backlogs.items():
        if not backlog.is_exhausted:
            taken[topic] = backlog.take(0, is_first=True)
    left = limit - sum(taken.values())
    waiting = list(taken)
    # The level is what each of the waiting topics may have in all. A round raises it to equal parts
    # of what is left; topics that are exhausted below it leave their rest to the next round. Each
    # round takes an entry at least, or is the last, so that the loop ends.
    while left > 0 and waiting:
        level = (left + sum(taken[topic] for topic in waiting)) // len(waiting)
        left_before = left
        for topic in waiting:
            # ``min``: topics above the level keep what they have, so that there may be less left
            # than the others lack.
            left -= _raise(backlogs[topic], taken, topic, min(left, level - taken[topic]))
            if left <= 0:
                return
        if left == left_before:
            break  # no topic's next entry fits below the level
        waiting = [topic for topic in waiting if not backlogs[topic].is_exhausted]
    # The rest is less than an entry for each topic: it goes to the first topics whose entry fits.
    for topic in waiting:
        if left <= 0:
            return
        left -= _raise(backlogs[topic], taken, topic, left)


def _raise(backlog: Backlog, taken: dict[str, int], topic: str, amount: int) -> int:
    """Take up to ``amount`` more of one topic; a topic may be above the level already."""
    more = backlog.take(amount, is_first=False) if amount > 0 else 0
    taken[topic] += more
    return more


@dataclass(eq=False, slots=True)
class ByteBacklog:
    """A backlog in bytes. Brokers tell the size of ledgers alone, so that each entry counts with
    the mean size of its ledger. ``position`` is behind what was taken."""

    _segments: Sequence[Segment]
    position: LogPosition  # at first where the query begins
    _number: int = 0  # of the segment that comes next
    _taken_entries: int = 0  # of that segment

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
                # Never zero bytes an entry: ``entry_bytes`` is 1 at least, so that the division is
                # safe.
                (amount - taken_bytes) // segment.entry_bytes,
            )
            if is_first and not taken_bytes:
                entries = max(1, entries)  # also one that is larger than the limit
            if not entries:
                break
            taken_bytes += entries * segment.entry_bytes
            self._taken_entries += entries
            # Always behind an entry, never inside: entries are read whole.
            self.position = segment.at(self._taken_entries)
            if self._taken_entries < segment.entries:
                break  # the amount is used up within this ledger
            self._number += 1
            self._taken_entries = 0
        return taken_bytes


@dataclass(eq=False, slots=True)
class RowBacklog:
    """A backlog in rows. Only entries themselves tell how many rows they have, so they are read one
    after the other, and no further than the limit needs.

    ``position`` is behind what was taken; where nothing is left it is ``end``, also if no entry
    ends exactly there.
    """

    _entries: Generator[CountedEntry]
    position: LogPosition  # at first where the query begins
    _end: LogPosition
    _ahead: CountedEntry | None = None  # was read, but not taken
    # Called with the rows of each entry that is taken, and the position behind it, so that
    # ``RecordCuts`` need not count them again.
    on_taken: Callable[[int, LogPosition], None] | None = None

    @property
    def is_exhausted(self) -> bool:
        """Is nothing left? This reads the next entry, and may wait for it."""
        if self._ahead is None and self.position < self._end:
            self._ahead = next(self._entries, None)
            if self._ahead is None:
                # Behind the last entry that readers get there may be markers up to the end.
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
        """Was everything taken? Reads no entry, unlike ``is_exhausted``, and may therefore be false
        where only the end of the range would have to be found."""
        return self.position >= self._end

    def close(self) -> None:
        """End the counting of entries."""
        self._entries.close()
