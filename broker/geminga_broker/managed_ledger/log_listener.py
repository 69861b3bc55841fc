"""What a log tells the topic that it belongs to."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.managed_ledger.writing.append_request import AppendRequest


class LogListener(Protocol):
    """Whom the log tells what became of appended entries."""

    def run_appended(
        self, ledger_id: int, entries: list[Entry], batch: list[AppendRequest]
    ) -> None:
        """Consecutive entries are durable and cached; ``batch`` is what was given with them."""
        ...

    def log_fenced(self) -> None:
        """Another broker has the log: whatever is still waiting will never be confirmed here."""
        ...


class Nobody:
    """Whom a log tells once it is closed."""

    def run_appended(
        self, ledger_id: int, entries: list[Entry], batch: list[AppendRequest]
    ) -> None:
        """Nobody wants to know."""

    def log_fenced(self) -> None:
        """Nobody wants to know."""


NOBODY = Nobody()


class LogState(Enum):
    """One of upstream's states; the others (ClosedLedger, ...) do not happen here."""

    # Entries are taken: upstream opens a ledger when the log is loaded, we for the first entry.
    LEDGER_OPENED = "LedgerOpened"
    CREATING_LEDGER = "CreatingLedger"
    CLOSING_LEDGER = "ClosingLedger"
    TERMINATED = "Terminated"
    FENCED = "Fenced"
    CLOSED = "Closed"
