"""What a log is doing, in the words of upstream's internal stats (``ManagedLedgerImpl.State``)."""

from __future__ import annotations

from enum import Enum


class LogState(Enum):
    """One of upstream's states; the others (None, Terminated, ...) do not happen here."""

    LEDGER_OPENED = "LedgerOpened"
    CREATING_LEDGER = "CreatingLedger"
    CLOSING_LEDGER = "ClosingLedger"
    # No ledger is open, and none is needed before something is published.
    CLOSED_LEDGER = "ClosedLedger"
    FENCED = "Fenced"
    CLOSED = "Closed"
