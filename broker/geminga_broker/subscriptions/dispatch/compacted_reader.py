"""Reads the compacted ledger for a subscription whose active consumer reads compacted.

It serves the part of the topic that compaction covers; beyond that the consumer reads the log. It
keeps what was read ahead, and decides what passing an entry acknowledges. The ``CursorReader`` does
the reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from geminga_broker.compaction.compacted_ledger import CompactedEntry
from geminga_broker.compaction.compacted_view import CompactedView
from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged
from geminga_broker.managed_ledger.cache.read_ahead import ReadAhead
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain
from geminga_broker.managed_ledger.positions import EARLIEST, Position


@dataclass(slots=True, eq=False)
class CompactedReader:
    """Reads ``view`` for a cursor over ``chain``."""

    view: CompactedView
    # Reading begins here at the latest. Entries before the log's present beginning may still be in
    # the compacted ledger, and no mark-delete position tells whether they were read.
    first: Position
    chain: LedgerChain
    # The cursor's.
    acknowledged: Acknowledged
    # Entries that were fetched and not sent yet. Not the one for entries of the log: the two are
    # read at different positions.
    read_ahead: ReadAhead
    # For ledgers that the log has trimmed: it cannot hold acknowledgements for them.
    _nothing_acknowledged: Acknowledged = field(
        default_factory=lambda: Acknowledged(LedgerChain(), EARLIEST), init=False
    )

    def begin(self) -> Position:
        """Forget what was read ahead; return where to read after the mark-delete position."""
        self.read_ahead.clear()
        mark = self.acknowledged.mark_delete
        after = self.chain.next_after(mark)
        # At the beginning of the log the position says only that nothing of the log was read.
        is_at_begin = mark[1] < 0 and mark <= self.chain.before_first
        return min(self.first, after) if is_at_begin else after

    def keep(self, fetched: list[CompactedEntry]) -> None:
        """Keep fetched entries, which come next."""
        # Entries before them were sent, or the reader has moved beyond them: they are dropped.
        self.read_ahead.pass_by(fetched[0].position)
        for ledger_id, of_ledger in groupby(fetched, key=lambda each: each.position.ledger_id):
            # Message counts of 0: unknown, as for all entries that were read from bookies.
            run = [(position.entry_id, payload, 0) for position, payload in of_ledger]
            self.read_ahead.keep_run(Position(ledger_id, run[0][0]), run)

    def acknowledged_in(self, ledger_id: int) -> Acknowledged:
        """The acknowledged entries that apply to that ledger of the log."""
        is_trimmed = ledger_id < self.chain.before_first[0]
        return self._nothing_acknowledged if is_trimmed else self.acknowledged

    def pass_over(self, position: Position, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """Acknowledge the entries that compaction removed between ``position`` and the given ones,
        which follow it in the compacted ledger. No consumer is sent them, so none would ever
        acknowledge them, and the mark-delete position would stay before them."""
        gaps: list[tuple[Position, Position]] = []
        # What lies before ``position`` was sent or passed before: the first gap begins there.
        after = self.chain.previous_of(position)
        for entry_id in entry_ids:
            before = self.chain.previous_of(Position(ledger_id, entry_id))
            if after < before:
                gaps.append((after, before))
            after = Position(ledger_id, entry_id)
        if gaps:
            # As ranges, which may reach over many entries. The cursor is not asked to write: after
            # a crash the gaps are found and passed again.
            self.acknowledged.restore(gaps)
