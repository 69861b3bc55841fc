"""What is known of a topic's log: its ledgers, how many entries and bytes each has.

A pure value, made of the REST side's statistics of a topic. It answers where the log begins and
ends, what lies between two positions, and whether entries behind a position were deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from geminga import LOG_START, LogPosition


# A log, of which ledger 3 was deleted:
#
#              ledger 5            ledger 8
#   (3: gone)  | 0 | 1 | 2 | 3 |   | 0 | 1 | 2 |
#              ^ first = (5, 0)    ^           ^ end = (8, 3)
#                                  (5, 4) and (8, 0) are the same place
class Ledger(NamedTuple):
    """One ledger of the log. ``entries`` and ``size_bytes`` of the last one grow until it is
    closed."""

    ledger_id: int
    entries: int
    size_bytes: int


class Segment(NamedTuple):
    """Entries of one ledger that follow each other: ``first_entry`` and ``entries - 1`` more."""

    ledger_id: int
    first_entry: int
    entries: int
    size_bytes: int

    @property
    def entry_bytes(self) -> int:
        """The mean size of its entries, at least 1: brokers tell the size of ledgers alone."""
        return max(1, self.size_bytes // max(1, self.entries))

    def at(self, entries: int) -> LogPosition:
        """The position behind the first ``entries`` of them."""
        return LogPosition(self.ledger_id, self.first_entry + entries)


@dataclass(frozen=True, slots=True)
class LogLayout:
    """The ledgers of a log, oldest first, with ``end`` behind the last entry that is stored.

    Where the ledgers are not known there are none: then nothing is known of the log but its end.
    ``entries_added`` counts the entries added so far; it starts again when another broker
    takes the topic over.
    """

    # In ascending order of their ids, as brokers create them.
    ledgers: tuple[Ledger, ...]
    # Exclusive: the position of the entry that will be written next, in the last ledger that has
    # one.
    end: LogPosition
    entries_added: int = 0

    @property
    def first(self) -> LogPosition:
        """Where the first retained entry is, or will be."""
        if not self.ledgers:
            return LOG_START
        for ledger in self.ledgers:
            # An empty ledger is passed over: its start would be named as the beginning, and be lost
            # when the broker drops it.
            if ledger.entries or ledger is self.ledgers[-1]:
                return LogPosition(ledger.ledger_id, 0)
        raise AssertionError("the last ledger was returned")

    def settled(self, position: LogPosition) -> LogPosition:
        """The same place in the log, named by the ledger of the entry that comes next.

        A position behind the last entry of a closed ledger is the start of the next ledger. Only
        this name is still good when the closed ledger is deleted.
        """
        # The last ledger may still grow: a position behind its last entry is inside it.
        for index, ledger in enumerate(self.ledgers[:-1]):
            if ledger.ledger_id == position.ledger_id and position.entry_id >= ledger.entries:
                # The next ledger may be empty, and closed as well.
                return self.settled(LogPosition(self.ledgers[index + 1].ledger_id, 0))
        return position

    def settled_since(self, before: LogLayout, position: LogPosition) -> LogPosition:
        """The same for a position of the layout ``before``: also where its ledger was closed and
        deleted since then, if the counts of entries say that nothing was written behind it."""
        settled = self.settled(before.settled(position))
        # Either its ledger is still listed, or there were unread entries behind it already.
        if not self.is_lost(settled) or before.may_hold(settled, before.end):
            return settled
        # All entries that were added since ``before`` are still listed: none was added to the
        # deleted ledgers, which had been read to their end. After another broker took the topic
        # over the counter began anew: the two do not agree then, and the position counts as lost.
        added = sum(ledger.entries for ledger in self.ledgers)
        return self.first if self.entries_added - before.entries_added == added else settled

    def between(self, start: LogPosition, end: LogPosition) -> tuple[Segment, ...]:
        """What is stored from ``start`` up to but not at ``end``; the bytes by each ledger's mean.

        An entry of which a part was read, or of which a part is wanted, counts as a whole.
        """
        found: list[Segment] = []
        for ledger_id, entries, size_bytes in self.ledgers:
            first, behind = 0, entries
            if ledger_id < start.ledger_id or ledger_id > end.ledger_id:
                continue
            if ledger_id == start.ledger_id:
                first = max(0, start.entry_id)
            if ledger_id == end.ledger_id:
                # An end within a batch of messages needs that entry as well.
                behind = min(entries, end.entry_id + (end.batch_index > 0))
            if first < behind:
                # Entries of a ledger differ: the share is right on average, and over the whole
                # ledger.
                share = size_bytes * (behind - first) // entries
                found.append(Segment(ledger_id, first, behind - first, share))
        return tuple(found)

    def holds(self, position: LogPosition) -> bool:
        """Is the entry at ``position`` known to be stored?"""
        return any(
            ledger.ledger_id == position.ledger_id and 0 <= position.entry_id < ledger.entries
            for ledger in self.ledgers
        )

    def may_hold(self, start: LogPosition, end: LogPosition) -> bool:
        """May there be entries between the two? Certain where the ledgers are known."""
        return bool(self.between(start, end)) if self.ledgers else start < end

    def is_lost(self, start: LogPosition) -> bool:
        """Were entries deleted that come at or after ``start`` and before the first retained one?

        Also true of a position beyond the end, as after the topic was deleted and created again.
        A ledger that is missing between others had no entries: logs are only deleted from the
        front.
        """
        # The start of the log names no ledger, so that nothing of it can be missing; and without
        # known ledgers ``BrokerView.begin`` finds out.
        if start.ledger_id < 0 or not self.ledgers:
            return False
        first = self.first
        if start.ledger_id < first.ledger_id:
            return True
        # The end may be in a ledger that the list does not have yet, and the last ledger of the
        # list may be a new one that has no entry.
        newest = self.ledgers[-1].ledger_id
        return start.ledger_id > max(self.end.ledger_id, first.ledger_id, newest)


def total_entries(segments: Sequence[Segment]) -> int:
    """How many entries there are in all of them."""
    return sum(segment.entries for segment in segments)


def total_bytes(segments: Sequence[Segment]) -> int:
    """How many bytes there are in all of them."""
    return sum(segment.size_bytes for segment in segments)
