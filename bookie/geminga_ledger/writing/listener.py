"""Whom a ledger's writer tells what became of its entries."""

from __future__ import annotations

from typing import Protocol

from geminga_ledger.errors import LedgerError


class LedgerListener(Protocol):
    """Whom a writer tells what became of its entries. Called on the event loop, from inside the
    reading of the bookie's answers: must not block."""

    def entries_confirmed(self, last_confirmed: int) -> None:
        """Every entry up to ``last_confirmed`` is on Qa bookies. Once for each batch of answers."""
        ...

    def writer_failed(self, error: LedgerError) -> None:
        """Entries beyond ``last_confirmed`` will never be confirmed by this writer. Once."""
        ...


class Nobody:
    """For a writer whose single entries nobody waits for, or waits for any more."""

    def entries_confirmed(self, last_confirmed: int) -> None:
        """Nobody wants to know."""

    def writer_failed(self, error: LedgerError) -> None:
        """Nobody wants to know."""


NOBODY = Nobody()
