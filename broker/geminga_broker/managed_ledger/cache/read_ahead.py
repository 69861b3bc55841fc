"""What dispatchers read from bookies and have not sent yet.

It is kept until it is sent, however slowly consumers take it: reading it again would cost more than
the memory. One bound for the whole broker sees to that memory; where it is passed, the dispatcher
that has not looked at its entries for the longest loses them, and from then on reads only as much
as its consumers can take at once (``was_evicted``). So consumers that do not keep up never make the
broker read the same entries for them again and again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from operator import itemgetter

from geminga_broker.managed_ledger.cache.entry_cache import ENTRY_OVERHEAD_BYTES
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position

_ENTRY_ID = itemgetter(0)


class ReadAheadBudget:
    """The bound on what all dispatchers of a broker keep together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # Those that keep something; the one that looked at it last, last.
        self._holders: dict[ReadAhead, None] = {}
        self.used_bytes = 0

    def grew(self, holder: ReadAhead, size_bytes: int) -> None:
        """``holder`` keeps so much more: others may have to give up theirs, it never has to."""
        self.used_bytes += size_bytes
        self.looked(holder)
        while self.used_bytes > self._bytes_max and len(self._holders) > 1:
            next(iter(self._holders)).evict()

    def shrank(self, holder: ReadAhead, size_bytes: int) -> None:
        """``holder`` keeps so much less."""
        self.used_bytes -= size_bytes
        if not holder.size_bytes:
            self._holders.pop(holder, None)

    def looked(self, holder: ReadAhead) -> None:
        """``holder`` needed what it keeps."""
        self._holders.pop(holder, None)
        self._holders[holder] = None


class ReadAhead:
    """One dispatcher's: runs, which are read on through, and single entries, which are picked."""

    __slots__ = ("_budget", "_runs", "_single", "size_bytes", "was_evicted")

    def __init__(self, budget: ReadAheadBudget) -> None:
        self._budget = budget
        # Where reading of each began, and its entries: of one ledger, and in their order. What is
        # missing between there and the last of them was acknowledged, and needs no reading.
        self._runs: deque[tuple[Position, list[Entry]]] = deque()
        self._single: dict[EntryId, Entry] = {}
        self.size_bytes = 0
        # Whether others needed the memory before all of it was sent, since the last ``clear``.
        self.was_evicted = False

    def __len__(self) -> int:
        return sum(len(entries) for _, entries in self._runs) + len(self._single)

    def keep_run(self, position: Position, entries: list[Entry]) -> None:
        """Keep what was read from ``position`` on, but for what is acknowledged."""
        self._runs.append((position, entries))
        self._grow(_cost(entries))

    def keep_single(self, ledger_id: int, entries: list[Entry]) -> None:
        """Keep some entries of a ledger, between which there may be any others."""
        single = self._single
        fresh = [each for each in entries if (ledger_id, each[0]) not in single]
        single.update(((ledger_id, each[0]), each) for each in fresh)
        self._grow(_cost(fresh))

    def run(self, position: Position, count_max: int) -> list[Entry]:
        """The next entries from ``position`` on, of its ledger, acknowledged ones left out; empty
        where they are not here."""
        ledger_id, entry_id = position
        for begin, entries in self._runs:
            if begin[0] == ledger_id and begin[1] <= entry_id <= entries[-1][0]:
                self._budget.looked(self)
                start = bisect_left(entries, entry_id, key=_ENTRY_ID)
                return entries[start : start + count_max]
        return []

    def first_from(self, position: Position) -> tuple[int, list[Entry]] | None:
        """The first entries of one ledger that are not before ``position``, for a reader that was
        given all there are in between."""
        for (ledger_id, _), entries in self._runs:
            if (ledger_id, entries[-1][0]) >= position:
                self._budget.looked(self)
                is_begun = ledger_id == position[0]
                start = bisect_left(entries, position[1], key=_ENTRY_ID) if is_begun else 0
                return ledger_id, entries[start:]
        return None

    def pick(self, ids: Sequence[EntryId]) -> list[Entry]:
        """The entries of ``ids``, in order, up to the first that is not here."""
        found: list[Entry] = []
        for position in ids:
            entry = self._find(position)
            if entry is None:
                break
            found.append(entry)
        if found:
            self._budget.looked(self)
        return found

    def missing(self, ids: Sequence[EntryId]) -> list[EntryId]:
        """Those of ``ids`` that are not here."""
        return [each for each in ids if self._find(each) is None]

    def _find(self, position: EntryId) -> Entry | None:
        entry = self._single.get(position)
        if entry is None and self._runs:
            run = self.run(Position(*position), 1)
            if run and run[0][0] == position[1]:
                return run[0]
        return entry

    def pass_by(self, position: Position) -> None:
        """Runs are read on from ``position``: what they had before it is needed no more."""
        while self._runs:
            (ledger_id, _), entries = self._runs[0]
            if (ledger_id, entries[-1][0]) >= position:
                break
            self._runs.popleft()
            self._shrink(_cost(entries))

    def drop(self, ids: Iterable[EntryId]) -> None:
        """Single entries were sent, or need not be."""
        take = self._single.pop
        dropped = [entry for each in ids if (entry := take(each, None)) is not None]
        if dropped:
            self._shrink(_cost(dropped))

    def drop_upto(self, position: EntryId) -> None:
        """No single entry up to there needs to be sent."""
        self.drop([each for each in self._single if each <= position])

    def clear(self) -> None:
        """Keep none of them: reading begins anew, or is over."""
        self.was_evicted = False
        if self.size_bytes:
            self._runs.clear()
            self._single.clear()
            self._shrink(self.size_bytes)

    def evict(self) -> None:
        """Others need the memory."""
        self.clear()
        self.was_evicted = True

    def _grow(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._budget.grew(self, size_bytes)

    def _shrink(self, size_bytes: int) -> None:
        self.size_bytes -= size_bytes
        self._budget.shrank(self, size_bytes)


def _cost(entries: Sequence[Entry]) -> int:
    """What entries take of the memory."""
    return sum(len(each[1]) for each in entries) + len(entries) * ENTRY_OVERHEAD_BYTES
