"""What a ledger's writer reports to: the owner of the entries."""

from __future__ import annotations

from typing import Protocol

from geminga_ledger.errors import LedgerError


class LedgerListener(Protocol):
    """Receives what became of a writer's entries.

    Called on the event loop, while a bookie's answers are being read: must not block, and must not
    raise.
    """

    def entries_confirmed(self, last_confirmed: int) -> None:
        """Every entry up to ``last_confirmed`` is on Qa bookies. Once for each batch of answers."""
        ...

    def writer_failed(self, error: LedgerError) -> None:
        """Entries beyond ``last_confirmed`` will never be confirmed by this writer. Once."""
        ...


class NoListener:
    """Ignores reports: for recovery, which waits for whole batches, and for detached writers."""

    def entries_confirmed(self, last_confirmed: int) -> None:
        """Ignore it."""

    def writer_failed(self, error: LedgerError) -> None:
        """Ignore it."""


NO_LISTENER = NoListener()
