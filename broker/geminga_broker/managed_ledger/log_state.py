"""What a log is doing, in the words of upstream's internal stats (``ManagedLedgerImpl.State``)."""

from __future__ import annotations

from enum import Enum


class LogState(Enum):
    """One of upstream's states; the others (ClosedLedger, ...) do not happen here."""

    # Entries are taken: upstream opens a ledger when the log is loaded, we for the first entry.
    LEDGER_OPENED = "LedgerOpened"
    CREATING_LEDGER = "CreatingLedger"
    CLOSING_LEDGER = "ClosingLedger"
    TERMINATED = "Terminated"
    FENCED = "Fenced"
    CLOSED = "Closed"
