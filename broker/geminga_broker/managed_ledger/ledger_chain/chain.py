"""The chain of ledgers that make up one log, and arithmetic on positions in it. Pure.

Closed ledgers have a fixed number of entries; the last one may be open and grow. Ledgers that were
trimmed from the front are simply gone: positions in them mean "before the first entry".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from geminga_broker.managed_ledger.positions import EARLIEST, Position


@dataclass(slots=True)
class LedgerSpan:
    """One ledger of the chain. ``closed_at_ms`` is 0 while it is open.

    ``is_offloaded`` says that upstream has copied it to other storage."""

    ledger_id: int
    entries: int = 0
    size_bytes: int = 0
    closed_at_ms: int = 0
    is_offloaded: bool = False

    @property
    def last(self) -> Position:
        """Position of its last entry; entry -1 while it has none."""
        return Position(self.ledger_id, self.entries - 1)


class LedgerChain:
    """Ledgers in order of their ids, which is the order in which they were written."""

    __slots__ = ("_ids", "_last_removed", "_spans")

    def __init__(self, spans: Iterable[LedgerSpan] = ()) -> None:
        self._spans = sorted(spans, key=lambda span: span.ledger_id)
        self._ids = [span.ledger_id for span in self._spans]
        self._last_removed = EARLIEST

    @property
    def spans(self) -> tuple[LedgerSpan, ...]:
        """All ledgers, oldest first."""
        return tuple(self._spans)

    def append(self, span: LedgerSpan) -> None:
        """Add the ledger that is written from now on."""
        assert not self._ids or span.ledger_id > self._ids[-1], "ledger ids must grow"
        self._spans.append(span)
        self._ids.append(span.ledger_id)

    def remove(self, ledger_id: int) -> None:
        """Forget a ledger that was deleted."""
        index = self._ids.index(ledger_id)
        if self._spans[index].entries:
            self._last_removed = max(self._last_removed, self._spans[index].last)
        del self._spans[index], self._ids[index]

    def span(self, ledger_id: int) -> LedgerSpan | None:
        """The ledger of this id, or None where the chain has none."""
        index = bisect_left(self._ids, ledger_id)
        if index < len(self._ids) and self._ids[index] == ledger_id:
            return self._spans[index]
        return None

    @property
    def total_entries(self) -> int:
        """Entries of all ledgers."""
        return sum(span.entries for span in self._spans)

    @property
    def total_bytes(self) -> int:
        """Bytes of all entries."""
        return sum(span.size_bytes for span in self._spans)

    @property
    def last_confirmed(self) -> Position:
        """The newest entry; the gap before the only ledger's first where there is none yet."""
        for span in reversed(self._spans):
            if span.entries:
                return span.last
        return self._spans[0].last if self._spans else EARLIEST

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
        if index == len(self._ids):
            return position if not self._ids else self._end()
        if self._ids[index] != position[0]:
            return self._first_from(index)
        span = self._spans[index]
        if position[1] < span.entries or index == len(self._ids) - 1:
            return Position(span.ledger_id, min(max(position[1], 0), span.entries))
        return self._first_from(index + 1)

    def _first_from(self, index: int) -> Position:
        last = len(self._spans) - 1
        while index < last and not self._spans[index].entries:
            index += 1
        return Position(self._ids[index], 0)

    def _end(self) -> Position:
        span = self._spans[-1]
        return Position(span.ledger_id, span.entries)

    def previous_of(self, position: Position) -> Position:
        """The last position less than ``position`` that holds an entry, or the gap before all."""
        index = bisect_left(self._ids, position[0])
        if index < len(self._ids) and self._ids[index] == position[0]:
            reach = min(position[1], self._spans[index].entries)
            if reach > 0:
                return Position(position[0], reach - 1)
        for span in reversed(self._spans[:index]):
            if span.entries:
                return span.last
        return self.before_first

    def entries_between(self, after: Position, upto: Position) -> int:
        """How many entries are greater than ``after`` and not greater than ``upto``."""
        if upto <= after:
            return 0
        first = bisect_left(self._ids, after[0])
        last = bisect_right(self._ids, upto[0])
        count = 0
        for span in self._spans[first:last]:
            low = after[1] + 1 if span.ledger_id == after[0] else 0
            high = upto[1] + 1 if span.ledger_id == upto[0] else span.entries
            count += max(0, min(high, span.entries) - max(low, 0))
        return count

    def bytes_between(self, after: Position, upto: Position) -> int:
        """About how many bytes those entries have: sizes are known by ledger, not by entry."""
        total = 0
        for span in self._spans:
            if span.entries:
                entries = self._within(span, after, upto)
                total += span.size_bytes * entries // span.entries
        return total

    def position_leaving(self, bytes_max: int) -> Position:
        """The least mark-delete position behind which at most ``bytes_max`` are left; as exact as
        ``bytes_between``: entries of a ledger count as equally large."""
        left_bytes = bytes_max
        for span in reversed(self._spans):
            if span.size_bytes > left_bytes:
                kept = left_bytes * span.entries // span.size_bytes
                return Position(span.ledger_id, span.entries - kept - 1)
            left_bytes -= span.size_bytes
        return self.before_first

    def _within(self, span: LedgerSpan, after: Position, upto: Position) -> int:
        low = after[1] + 1 if span.ledger_id == after[0] else 0
        high = upto[1] + 1 if span.ledger_id == upto[0] else span.entries
        if span.ledger_id < after[0] or span.ledger_id > upto[0]:
            return 0
        return max(0, min(high, span.entries) - max(low, 0))
