"""How often the unacknowledged entries of a subscription were given back, for clients. Pure.

Only a bounded part is stored with the cursor: the entries that were given back first, as runs of
neighbours with the same count, and of these runs those with the highest counts, which are closest
to their limit. The next owner of the topic counts the others from 0 again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import islice, starmap
from operator import itemgetter
from typing import TypeAlias

from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain
from geminga_broker.managed_ledger.positions import EntryId, Position
from geminga_protocol.records.topics.redelivery_counts import CountedRun

# Entries whose counts are stored: going through so many takes some 5 ms, once a second at most.
ENTRIES_KEPT_MAX = 10_000
# Runs that are stored: each write of the cursor is up to 20 KB larger and takes 1.5 ms longer.
RUNS_KEPT_MAX = 500

# The members of a CountedRun: ledger id, first and last entry id, count.
_Run: TypeAlias = tuple[int, int, int, int]
_TIMES = CountedRun._fields.index("times")


@dataclass(slots=True, eq=False)
class RedeliveryCounts:
    """The counts of one subscription; an entry that was never given back costs nothing."""

    # Called with each change.
    on_changed: Callable[[], None] = lambda: None
    # In the order in which the entries were first given back.
    _counts: dict[EntryId, int] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._counts)

    def get(self, position: EntryId) -> int:
        """How often this entry was given back."""
        return self._counts.get(position, 0)

    def increment(self, position: EntryId) -> None:
        """Count that the entry was given back once more."""
        # An entry that is counted again keeps its place, so ``islice`` always takes the same first
        # ones.
        self._counts[position] = self._counts.get(position, 0) + 1
        self.on_changed()

    def forget(self, position: EntryId) -> None:
        """Drop the count of an entry that is done with."""
        if self._counts.pop(position, None) is not None:
            self.on_changed()

    def clear(self) -> None:
        """Drop all counts: the cursor was reset."""
        if self._counts:
            self._counts.clear()
            self.on_changed()

    # Storing

    def forget_passed(self, mark_delete: Position, entries_max: int = ENTRIES_KEPT_MAX) -> None:
        """Drop counts of entries that the mark-delete position has passed without their consumers.

        Only the first ``entries_max`` counts are checked; the others follow in later calls.
        """
        # Two steps: a dict must not change while it is iterated over.
        passed = [each for each in islice(self._counts, entries_max) if each <= mark_delete]
        for position in passed:
            del self._counts[position]

    def runs(
        self, entries_max: int = ENTRIES_KEPT_MAX, runs_max: int = RUNS_KEPT_MAX
    ) -> list[CountedRun]:
        """The counts that are worth storing, in the order of the log."""
        # Plain tuples at first: there may be thousands of runs, of which few are kept.
        joined: list[_Run] = []
        ledger_id, first, last, count = -1, 0, -1, 0
        for (of_ledger, entry_id), times in sorted(islice(self._counts.items(), entries_max)):
            # It continues the run: the same ledger, the next entry, the same count.
            if entry_id == last + 1 and times == count and of_ledger == ledger_id:
                last = entry_id
                continue
            joined.append((ledger_id, first, last, count))
            ledger_id, first, last, count = of_ledger, entry_id, entry_id, times
        joined.append((ledger_id, first, last, count))
        # The first run is the empty one that the loop began with.
        kept = joined[1:]
        if len(kept) > runs_max:
            kept = sorted(nlargest(runs_max, kept, key=itemgetter(_TIMES)))
        return list(starmap(CountedRun, kept))

    def restore(
        self,
        runs: Iterable[CountedRun],
        chain: LedgerChain,
        acknowledged: Acknowledged,
        entries_max: int = ENTRIES_KEPT_MAX,
    ) -> None:
        """Take over stored counts of entries that exist and are still unacknowledged.

        At most ``entries_max`` entries are gone through, because the stored runs come from outside.
        """
        room = entries_max
        for run in runs:
            span = chain.span(run.ledger_id)
            if span is None:
                continue
            # A stored run may reach beyond the entries that its ledger turned out to have.
            end = min(run.last + 1, span.entries, run.first + room)
            for entry_id in range(run.first, end):
                room -= 1
                if not acknowledged.is_acknowledged(run.ledger_id, entry_id):
                    self._counts[run.ledger_id, entry_id] = run.times
