"""How often each unacknowledged entry of a subscription was given back, which clients are told.
Pure.

What is kept of them with the cursor is bounded: the entries that were given back first, as runs of
neighbours with the same count, and of these the highest counts, which are the nearest to their
limit. Whatever is left out begins at 0 again for the next owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from itertools import islice, starmap
from operator import itemgetter
from typing import TypeAlias

from geminga_broker.managed_ledger.acknowledged import Acknowledged
from geminga_broker.managed_ledger.chain import LedgerChain
from geminga_broker.managed_ledger.positions import EntryId, Position
from geminga_protocol.records.redelivery_counts import CountedRun

# Of how many entries counts are kept: looking at them takes some 5 ms, once a second at most.
ENTRIES_KEPT_MAX = 10_000
# In how many runs: each write of the cursor is up to 20 KB larger and takes 1.5 ms longer.
RUNS_KEPT_MAX = 500

# A CountedRun, before it is one.
_Run: TypeAlias = tuple[int, int, int, int]
_TIMES = CountedRun._fields.index("times")


def _nothing() -> None:
    """Nobody wants to know."""


class RedeliveryCounts:
    """Counts of one subscription; an entry that was never given back costs nothing.

    ``on_changed`` is called with each change: its owner may set it.
    """

    def __init__(self) -> None:
        self._counts: dict[EntryId, int] = {}
        self.on_changed: Callable[[], None] = _nothing

    def __len__(self) -> int:
        return len(self._counts)

    def get(self, position: EntryId) -> int:
        """How often this entry was given back."""
        return self._counts.get(position, 0)

    def increment(self, position: EntryId) -> None:
        """It was given back once more."""
        self._counts[position] = self._counts.get(position, 0) + 1
        self.on_changed()

    def forget(self, position: EntryId) -> None:
        """It was acknowledged."""
        if self._counts.pop(position, None) is not None:
            self.on_changed()

    def clear(self) -> None:
        """Begin anew: the subscription was moved."""
        if self._counts:
            self._counts.clear()
            self.on_changed()

    # Keeping

    def forget_passed(self, mark_delete: Position, entries_max: int = ENTRIES_KEPT_MAX) -> None:
        """Forget those that the mark-delete position has passed, though nobody acknowledged them
        here: of the first ``entries_max``, the others have their turn later."""
        passed = [each for each in islice(self._counts, entries_max) if each <= mark_delete]
        for position in passed:
            del self._counts[position]

    def runs(
        self, entries_max: int = ENTRIES_KEPT_MAX, runs_max: int = RUNS_KEPT_MAX
    ) -> list[CountedRun]:
        """What is worth keeping, in order."""
        kept = _joined(sorted(islice(self._counts.items(), entries_max)))
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
        """Take over what was kept of entries that are still to be acknowledged."""
        found = ((each, run.times) for run in runs for each in _positions(run, chain))
        for position, count in islice(found, entries_max):
            if not acknowledged.is_acknowledged(*position):
                self._counts[position] = count


def _joined(counts: Iterable[tuple[EntryId, int]]) -> list[_Run]:
    """Sorted ``counts`` as runs: plain tuples, for there may be thousands of which few are kept."""
    runs: list[_Run] = []
    ledger_id, first, last, count = -1, 0, -1, 0
    for (of_ledger, entry_id), times in counts:
        if entry_id == last + 1 and times == count and of_ledger == ledger_id:
            last = entry_id
            continue
        runs.append((ledger_id, first, last, count))
        ledger_id, first, last, count = of_ledger, entry_id, entry_id, times
    runs.append((ledger_id, first, last, count))
    return runs[1:]


def _positions(run: CountedRun, chain: LedgerChain) -> Iterator[Position]:
    """The entries of a run that there are."""
    span = chain.span(run.ledger_id)
    if span is not None:
        for entry_id in range(run.first, min(run.last + 1, span.entries)):
            yield Position(run.ledger_id, entry_id)
