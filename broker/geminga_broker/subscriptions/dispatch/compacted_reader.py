"""Where a subscription reads whose active consumer reads compacted, as long as it is not yet in the
log: entries of the compacted ledger, a read ahead of what is sent.

Nothing here waits or sends; the dispatcher does.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from geminga_broker.compaction.compacted_ledger import CompactedEntry
from geminga_broker.compaction.compacted_view import CompactedView
from geminga_broker.managed_ledger.acknowledged import Acknowledged
from geminga_broker.managed_ledger.chain import LedgerChain
from geminga_broker.managed_ledger.fetched_entries import FetchedBudget, FetchedEntries
from geminga_broker.managed_ledger.positions import EARLIEST, Entry, Position


class CompactedReader:
    """Reads ``view`` for the cursor with ``acknowledged`` over ``chain``.

    Reading begins no later than at ``first``: what the log had before its first entry of now may
    be compacted, and no mark-delete position says whether it was read.
    """

    def __init__(
        self,
        view: CompactedView,
        chain: LedgerChain,
        acknowledged: Acknowledged,
        budget: FetchedBudget,
        *,
        first: Position,
    ) -> None:
        self.view = view
        self.first = first
        self._chain = chain
        self._acknowledged = acknowledged
        # What lies before the log begins is never acknowledged: the log does not have it.
        self._nothing = Acknowledged(LedgerChain(), EARLIEST)
        self._fetched = FetchedEntries(budget)

    def begin(self) -> Position:
        """Where to read after the mark-delete position; what was read ahead is forgotten."""
        self._fetched.clear()
        mark = self._acknowledged.mark_delete
        after = self._chain.next_after(mark)
        is_at_begin = mark[1] < 0 and mark <= self._chain.before_first
        return min(self.first, after) if is_at_begin else after

    def covers(self, position: Position) -> bool:
        """Whether what is read at ``position`` comes from the compacted ledger."""
        return self.view.covers(position)

    def fetch_max(self, entries_max: int, permits: int) -> int:
        """How many entries to read ahead, of ``entries_max``: where what was more than the consumer
        took had to go, no more than it has ``permits`` for."""
        return min(max(permits, 1), entries_max) if self._fetched.was_evicted else entries_max

    def keep(self, fetched: list[CompactedEntry]) -> None:
        """These come next; their message counts are not known, as those of all that is read."""
        self._fetched.pass_by(fetched[0].position)
        for ledger_id, of_ledger in groupby(fetched, key=lambda each: each.position.ledger_id):
            run = [(position.entry_id, payload, 0) for position, payload in of_ledger]
            self._fetched.keep_run(Position(ledger_id, run[0][0]), run)

    def let_go(self) -> None:
        """Forget what was read ahead."""
        self._fetched.clear()

    def run_from(self, position: Position) -> tuple[int, list[Entry]] | None:
        """What was read ahead from ``position`` on, of one ledger of the log; None for nothing."""
        return self._fetched.first_from(position)

    def acknowledged_in(self, ledger_id: int) -> Acknowledged:
        """What is acknowledged of that ledger of the log."""
        is_before = ledger_id < self._chain.before_first[0]
        return self._nothing if is_before else self._acknowledged

    def pass_over(self, position: Position, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """Acknowledge what compaction took out between ``position`` and these entries, which are
        read after it: nobody else will, and the mark-delete position would stay before it."""
        gaps: list[tuple[Position, Position]] = []
        after = self._chain.previous_of(position)
        for entry_id in entry_ids:
            before = self._chain.previous_of(Position(ledger_id, entry_id))
            if after < before:
                gaps.append((after, before))
            after = Position(ledger_id, entry_id)
        if gaps:
            self._acknowledged.restore(gaps)
