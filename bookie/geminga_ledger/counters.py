"""Counters for the metrics: what failed and was repaired, and what reading cost.

Facts: ``BookKeeperClientStats`` of Apache BookKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LedgerCounters:
    """Counts since the process began; they only grow."""

    # Changes of a ledger's ensemble that were begun.
    ensemble_changes: int = 0
    # Bookies replaced in the ensemble of a ledger that was being written or recovered.
    bookies_replaced: int = 0
    # Copies of an entry with a wrong digest, and copies that were not where they should have been.
    copies_damaged: int = 0
    copies_missing: int = 0
    # Entries requested from a second bookie because the first was slow.
    reads_speculative: int = 0
    # Payload bytes that readers got from bookies, and that they gave out. The first are more where
    # copies are requested twice, or read ahead and dropped.
    bytes_read: int = 0
    bytes_given_out: int = 0

    def by_metric(self) -> dict[str, int]:
        """The counts by the names of their metrics: BookKeeper's client's where it has one.

        Pulsar's brokers put ``pulsar_managedLedger_client_`` before those.
        """
        return {
            "bookkeeper_client_NUM_ENSEMBLE_CHANGE": self.ensemble_changes,
            "bookkeeper_client_SPECULATIVE_READ_COUNT": self.reads_speculative,
            "geminga_ledger_bookies_replaced_total": self.bookies_replaced,
            "geminga_ledger_copies_damaged_total": self.copies_damaged,
            "geminga_ledger_copies_missing_total": self.copies_missing,
            "geminga_ledger_read_bytes_total": self.bytes_read,
            "geminga_ledger_given_out_bytes_total": self.bytes_given_out,
        }
