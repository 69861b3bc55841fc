"""The chain of ledgers that make up one log, and arithmetic on positions in it. Pure.

Closed ledgers have a fixed number of entries; the last one may be open and grow. Ledgers that were
trimmed from the front are gone: positions in them mean "before the first entry"::

    ledger 4 (trimmed)   ledger 7 (closed)   ledger 9 (closed, empty)   ledger 12 (open)
                         7:0  7:1  7:2                                  12:0  12:1  …
                     before_first = 7:-1                     last_confirmed = 12:1

Two kinds of positions occur. One is that of an entry, or of the place where the next entry will be
(``next_after``, ``readable_from``): something is read there. The other is a mark behind which
something begins (a mark-delete position, ``before_first``): it may have entry id -1.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from geminga_broker.managed_ledger.positions import EARLIEST, Position


@dataclass(slots=True)
class LedgerSpan:
    """One ledger of the chain; it changes as long as the ledger is open."""

    # From BookKeeper's sequence in ZooKeeper, so a later ledger of the log has a greater id.
    ledger_id: int
    # Entries that are confirmed: 0..entries-1 may be read. Those under way are not counted.
    entries: int = 0
    # Payload bytes of these entries.
    size_bytes: int = 0
    # Unix time; 0 while the ledger is open.
    closed_at_ms: int = 0
    # Apache Pulsar has copied the ledger to other storage. We cannot delete that copy.
    is_offloaded: bool = False

    @property
    def last(self) -> Position:
        """Position of its last entry; entry -1 while it has none."""
        return Position(self.ledger_id, self.entries - 1)


class LedgerChain:
    """Ledgers in order of their ids, which is the order in which they were written.

    Reader, cursors and dispatchers of a log share its chain and ask it on every read: finding a
    ledger is a bisection, and nothing here copies more than it returns.
    """

    __slots__ = ("_ids", "_last_removed", "spans")

    def __init__(self, spans: Iterable[LedgerSpan] = ()) -> None:
        # All ledgers, oldest first. Replaced, never changed: callers go through them and wait
        # meanwhile.
        self.spans = tuple(sorted(spans, key=lambda span: span.ledger_id))
        # The ids of ``spans`` by index, for ``bisect``.
        self._ids = [span.ledger_id for span in self.spans]
        # The greatest last entry of all ledgers that were removed.
        self._last_removed = EARLIEST

    def append(self, span: LedgerSpan) -> None:
        """Add the ledger that is written from now on."""
        # Positions are ordered by ledger id first: a smaller id would put new entries before old
        # ones.
        assert not self._ids or span.ledger_id > self._ids[-1], "ledger ids must grow"
        self.spans = (*self.spans, span)
        self._ids.append(span.ledger_id)

    def remove(self, ledger_id: int) -> None:
        """Forget a ledger that was deleted."""
        # Not only from the front: an empty ledger is taken out wherever it lies.
        index = self._ids.index(ledger_id)
        # An empty ledger had no entry that could have been the newest.
        if self.spans[index].entries:
            self._last_removed = max(self._last_removed, self.spans[index].last)
        self.spans = self.spans[:index] + self.spans[index + 1 :]
        del self._ids[index]

    def span(self, ledger_id: int) -> LedgerSpan | None:
        """The ledger of this id, or None where the chain has none."""
        index = bisect_left(self._ids, ledger_id)
        if index < len(self._ids) and self._ids[index] == ledger_id:
            return self.spans[index]
        return None

    @property
    def total_entries(self) -> int:
        """Entries of all ledgers."""
        return sum(span.entries for span in self.spans)

    @property
    def total_bytes(self) -> int:
        """Bytes of all entries."""
        return sum(span.size_bytes for span in self.spans)

    @property
    def last_confirmed(self) -> Position:
        """The newest entry; the gap before the only ledger's first where there is none yet."""
        # Empty ledgers are few: each new one drops those that were closed without an entry. The
        # last ledger has none between a rollover and its first entry.
        for span in reversed(self.spans):
            if span.entries:
                return span.last
        return self.spans[0].last if self.spans else EARLIEST

    @property
    def last_ever_confirmed(self) -> Position:
        """The newest entry, though it may have been deleted since this chain was loaded."""
        newest = self.last_confirmed
        return newest if newest[1] >= 0 or self._last_removed == EARLIEST else self._last_removed

    @property
    def before_first(self) -> Position:
        """The gap before the oldest entry."""
        return Position(self._ids[0], -1) if self._ids else EARLIEST

    def next_after(self, position: Position) -> Position:
        """The first position greater than ``position`` where an entry is or will be."""
        return self.readable_from(Position(position[0], position[1] + 1))

    def readable_from(self, position: Position) -> Position:
        """The first position not less than ``position`` where an entry is or will be."""
        index = bisect_left(self._ids, position[0])
        last = len(self._ids) - 1
        if index > last:
            # Behind all ledgers: where the next entry of the last one will be.
            return Position(self._ids[last], self.spans[last].entries) if self._ids else position
        # Entry ids outside the ledger are pulled to its ends: -1 to its first entry; one beyond the
        # last ledger's end to where its next entry will be.
        if self._ids[index] == position[0]:
            span = self.spans[index]
            if position[1] < span.entries or index == last:
                return Position(span.ledger_id, min(max(position[1], 0), span.entries))
            index += 1
        # The ledger is gone, or read to its end: go on in the next that has entries, or in the last
        # one, which gets the next entry.
        while index < last and not self.spans[index].entries:
            index += 1
        return Position(self._ids[index], 0)

    def previous_of(self, position: Position) -> Position:
        """The last position less than ``position`` that holds an entry, or the gap before all."""
        index = bisect_left(self._ids, position[0])
        if index < len(self._ids) and self._ids[index] == position[0]:
            # ``position`` may lie beyond the end of its ledger, as LATEST does.
            reach = min(position[1], self.spans[index].entries)
            if reach > 0:
                return Position(position[0], reach - 1)
        for span in reversed(self.spans[:index]):
            if span.entries:
                return span.last
        return self.before_first

    def entries_between(self, after: Position, upto: Position) -> int:
        """How many entries are greater than ``after`` and not greater than ``upto``."""
        if upto <= after:
            return 0
        first = bisect_left(self._ids, after[0])
        last = bisect_right(self._ids, upto[0])
        return sum(_entries_within(span, after, upto) for span in self.spans[first:last])

    def bytes_between(self, after: Position, upto: Position) -> int:
        """About how many bytes those entries have: sizes are known by ledger, not by entry."""
        total = 0
        for span in self.spans:
            if span.entries:
                entries = _entries_within(span, after, upto)
                total += span.size_bytes * entries // span.entries
        return total

    def position_leaving(self, bytes_max: int) -> Position:
        """The least mark-delete position behind which at most ``bytes_max`` are left; as exact as
        ``bytes_between``: entries of a ledger count as equally large."""
        left_bytes = bytes_max
        for span in reversed(self.spans):
            if span.size_bytes > left_bytes:
                # Rounded down: rather one entry too many is passed than ``bytes_max`` exceeded.
                kept = left_bytes * span.entries // span.size_bytes
                return Position(span.ledger_id, span.entries - kept - 1)
            left_bytes -= span.size_bytes
        return self.before_first


def _entries_within(span: LedgerSpan, after: Position, upto: Position) -> int:
    """How many entries of ``span`` are greater than ``after`` and not greater than ``upto``."""
    if span.ledger_id < after[0] or span.ledger_id > upto[0]:
        return 0
    low = after[1] + 1 if span.ledger_id == after[0] else 0
    high = upto[1] + 1 if span.ledger_id == upto[0] else span.entries
    # Either position may name an entry that its ledger does not have: -1, or one beyond its end.
    return max(0, min(high, span.entries) - max(low, 0))
