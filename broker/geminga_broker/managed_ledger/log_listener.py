"""What a log reports to the topic that it belongs to: events, and its state."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.managed_ledger.writing.append_request import AppendRequest


class LogListener(Protocol):
    """The topic of a log, which learns what became of appended entries."""

    def run_appended(
        self, ledger_id: int, entries: list[Entry], batch: list[AppendRequest]
    ) -> None:
        """Consecutive entries are durable and cached; ``batch`` is what was given with them."""
        ...

    def log_fenced(self) -> None:
        """Another broker has the log: entries that are not confirmed yet never will be here."""
        ...


class LogState(Enum):
    """What a log is doing, in the words of upstream's internal stats: ``ManagedLedgerImpl.State``,
    whose other states (ClosedLedger, ...) do not happen here."""

    # Entries are taken: upstream opens a ledger when the log is loaded, we for the first entry.
    LEDGER_OPENED = "LedgerOpened"
    CREATING_LEDGER = "CreatingLedger"
    CLOSING_LEDGER = "ClosingLedger"
    TERMINATED = "Terminated"
    FENCED = "Fenced"
    CLOSED = "Closed"
