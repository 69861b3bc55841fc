"""What went wrong and was put right, counted for whoever shows figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LedgerCounters:
    """Counts since the process began; they only grow."""

    # Bookies replaced in the ensemble of a ledger that was being written or recovered.
    bookies_replaced: int = 0
    # Copies of an entry with a wrong digest, and copies that were not where they should have been.
    copies_damaged: int = 0
    copies_missing: int = 0
    # Entries asked of a second bookie because the first was slow.
    reads_speculative: int = 0
