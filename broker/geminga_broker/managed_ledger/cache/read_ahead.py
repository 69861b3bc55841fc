"""Entries that dispatchers read from bookies ahead of sending them. Pure.

Entries stay here until they are sent, however slowly consumers take them: reading them again would
cost more than the memory. One bound for the whole broker limits that memory; where it is exceeded,
the dispatcher that has not used its entries for the longest loses them, and from then on reads only
as much as its consumers can take at once (``was_evicted``). So consumers that do not keep up never
make the broker read the same entries for them again and again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from geminga_broker.managed_ledger.cache.entry_cache import ENTRY_OVERHEAD_BYTES
from geminga_broker.managed_ledger.positions import Entry, EntryId, Position

_ENTRY_ID = itemgetter(0)


@dataclass(slots=True, eq=False)
class ReadAheadBudget:
    """The bound on what all dispatchers of a broker keep together."""

    bytes_max: int
    # The sum of ``size_bytes`` over ``_holders``. Only ``grow`` and ``shrink`` change either.
    used_bytes: int = field(default=0, init=False)
    # The dispatchers that keep something, in the order in which they last used it: the first one is
    # evicted first.
    _holders: dict[ReadAhead, None] = field(default_factory=dict["ReadAhead", None], init=False)

    def grow(self, holder: ReadAhead, size_bytes: int) -> None:
        """Count ``size_bytes`` more of ``holder``. Others may have to give up what they keep; the
        holder never has to, so what was just read can be sent whatever the bound is."""
        holder.size_bytes += size_bytes
        self.used_bytes += size_bytes
        self.note_use(holder)
        # The holder itself is the last of the queue, so it is never the one to be evicted.
        while self.used_bytes > self.bytes_max and len(self._holders) > 1:
            next(iter(self._holders)).evict()

    def shrink(self, holder: ReadAhead, size_bytes: int) -> None:
        """Count ``size_bytes`` less of ``holder``."""
        holder.size_bytes -= size_bytes
        self.used_bytes -= size_bytes
        # The budget must not keep a dispatcher alive that has nothing here.
        if not holder.size_bytes:
            self._holders.pop(holder, None)

    def note_use(self, holder: ReadAhead) -> None:
        """Note that ``holder`` used what it keeps: it is evicted last."""
        self._holders.pop(holder, None)
        self._holders[holder] = None


@dataclass(slots=True, eq=False)
class ReadAhead:
    """What one dispatcher read ahead: runs, which are read through in order, and single entries,
    which are picked by their positions (for redelivery)."""

    budget: ReadAheadBudget
    # The memory that all of it takes; the budget keeps this number.
    size_bytes: int = field(default=0, init=False)
    # Whether others needed the memory before all of it was sent, since the last ``clear``.
    was_evicted: bool = field(default=False, init=False)
    # Where reading of each began, and its entries: of one ledger, and in their order. What is
    # missing between there and the last of them was acknowledged, and needs no reading.
    _runs: deque[tuple[Position, list[Entry]]] = field(
        default_factory=deque[tuple[Position, list[Entry]]], init=False
    )
    # Entries to redeliver. They are dropped one by one (``drop``), runs only as a whole
    # (``pass_by``).
    _single: dict[EntryId, Entry] = field(default_factory=dict[EntryId, Entry], init=False)

    def keep_run(self, position: Position, entries: list[Entry]) -> None:
        """Keep what was read from ``position`` on, but for what is acknowledged."""
        self._runs.append((position, entries))
        self.budget.grow(self, _cost(entries))

    def keep_single(self, ledger_id: int, entries: list[Entry]) -> None:
        """Keep some entries of a ledger, between which there may be any others."""
        single = self._single
        # Entries that are kept already must not be counted twice.
        fresh = [each for each in entries if (ledger_id, each[0]) not in single]
        single.update(((ledger_id, each[0]), each) for each in fresh)
        self.budget.grow(self, _cost(fresh))

    def run(self, position: Position, count_max: int) -> list[Entry]:
        """The next entries from ``position`` on, of its ledger, acknowledged ones left out; empty
        where they are not here."""
        ledger_id, entry_id = position
        for begin, entries in self._runs:
            if begin[0] == ledger_id and begin[1] <= entry_id <= entries[-1][0]:
                self.budget.note_use(self)
                # The run may leave out ``entry_id`` itself: then it was acknowledged. A copy, as in
                # ``LedgerCache.run``: ``pass_by`` and ``evict`` may come before it is sent.
                start = bisect_left(entries, entry_id, key=_ENTRY_ID)
                return entries[start : start + count_max]
        return []

    def first_from(self, position: Position) -> tuple[int, list[Entry]] | None:
        """The first entries of one ledger that are not before ``position``: the next ones for a
        caller that has had all before them. Their positions may have gaps (compacted reading)."""
        for (ledger_id, _), entries in self._runs:
            # Runs were kept in the order of reading, so the first that reaches ``position`` is the
            # nearest.
            if (ledger_id, entries[-1][0]) >= position:
                self.budget.note_use(self)
                is_begun = ledger_id == position[0]
                start = bisect_left(entries, position[1], key=_ENTRY_ID) if is_begun else 0
                return ledger_id, entries[start:]
        return None

    def pick(self, ids: Sequence[EntryId]) -> list[Entry]:
        """The entries of ``ids``, in order, up to the first that is not here."""
        # Up to the first gap: entries are sent in the order of ``ids``.
        found: list[Entry] = []
        for position in ids:
            entry = self._find(position)
            if entry is None:
                break
            found.append(entry)
        if found:
            self.budget.note_use(self)
        return found

    def missing(self, ids: Sequence[EntryId]) -> list[EntryId]:
        """Those of ``ids`` that are not here."""
        return [each for each in ids if self._find(each) is None]

    def _find(self, position: EntryId) -> Entry | None:
        # Single entries first: for the runs a search is needed. A position may be in both: one that
        # was read for redelivery while its run was still here.
        entry = self._single.get(position)
        if entry is None and self._runs:
            run = self.run(Position(*position), 1)
            if run and run[0][0] == position[1]:
                return run[0]
        return entry

    def pass_by(self, position: Position) -> None:
        """Drop the runs that end before ``position``, from which reading goes on."""
        # Whole runs only: a list that loses its front moves the rest.
        while self._runs:
            (ledger_id, _), entries = self._runs[0]
            if (ledger_id, entries[-1][0]) >= position:
                break
            self._runs.popleft()
            self.budget.shrink(self, _cost(entries))

    def drop(self, ids: Iterable[EntryId]) -> None:
        """Drop single entries that were sent, or need not be sent."""
        take = self._single.pop
        dropped = [entry for each in ids if (entry := take(each, None)) is not None]
        if dropped:
            self.budget.shrink(self, _cost(dropped))

    def drop_upto(self, position: EntryId) -> None:
        """Drop single entries up to ``position``: none of them needs to be sent."""
        self.drop([each for each in self._single if each <= position])

    def clear(self) -> None:
        """Drop all entries: reading begins anew, or is over."""
        self.was_evicted = False
        # Also called for dispatchers that never read ahead: then there is nothing to take back.
        if self.size_bytes:
            self._runs.clear()
            self._single.clear()
            self.budget.shrink(self, self.size_bytes)

    def evict(self) -> None:
        """Drop all entries because others need the memory."""
        # Before the flag, which ``clear`` takes back.
        self.clear()
        self.was_evicted = True


def _cost(entries: Sequence[Entry]) -> int:
    """The memory that entries take, in bytes."""
    return sum(len(each[1]) for each in entries) + len(entries) * ENTRY_OVERHEAD_BYTES
