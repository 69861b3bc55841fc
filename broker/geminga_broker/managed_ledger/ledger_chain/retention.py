"""Which ledgers of a log may be deleted. Pure.

The rules are upstream's (``internalTrimLedgers`` of ``ManagedLedgerImpl``). A ledger may go when
every durable cursor has passed its last entry; where there is no durable cursor, at once. Retention
keeps it longer: as long as it is younger than the retention time *and* what is left after it goes
would be less than the retention size. Ledgers go from the front only, and the last one never goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.positions import Position

FOR_EVER = -1


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much is kept of what all cursors have passed; -1: without limit.

    Upstream's policy in other units (``retentionTimeInMinutes``, ``retentionSizeInMB``). Either
    limit lets a ledger go: to keep by time alone, the size must be -1, and the other way round.
    """

    # Since the ledger was closed, not since its entries were published.
    time_ms: int = 0
    # Of the whole log, the unread part included.
    size_bytes: int = 0

    def keeps(self, *, age_ms: int, left_bytes: int) -> bool:
        """Whether a ledger closed ``age_ms`` ago stays; ``left_bytes`` would be left without it."""
        is_expired = self.time_ms != FOR_EVER and age_ms > self.time_ms
        is_over_size = self.size_bytes != FOR_EVER and left_bytes >= self.size_bytes
        return not is_expired and not is_over_size


KEEP_NOTHING = Retention()


def trimmable_ledgers(
    spans: Sequence[LedgerSpan], slowest: Position | None, retention: Retention, now_ms: int
) -> list[LedgerSpan]:
    """The ledgers to delete now, oldest first: of those before ``slowest``, the least mark-delete
    position of all durable cursors, the ones that ``retention`` does not keep.

    Without a durable cursor (None) no consumer can come back for an entry.
    """
    # The open ledger counts, too: upstream's retention size is that of the whole log.
    left_bytes = sum(span.size_bytes for span in spans)
    trimmable: list[LedgerSpan] = []
    # The last ledger stays though all have passed it: cursors point into it, and the end of a
    # terminated log is known from it.
    for span in spans[:-1]:
        # What was offloaded lies in storage that this broker cannot delete from.
        if not span.closed_at_ms or span.is_offloaded:
            break
        if slowest is not None and slowest < span.last:
            break
        left_bytes -= span.size_bytes
        # One that is kept keeps all behind it, even where a later one is larger: a log has no gaps.
        if retention.keeps(age_ms=now_ms - span.closed_at_ms, left_bytes=left_bytes):
            break
        trimmable.append(span)
    return trimmable
