"""Waiting for the entries of a ledger that is written a few at a time.

Cursors, buckets of delayed messages, schemas and compacted ledgers are written so: one coroutine
appends and waits. Topics have an ``Appender`` instead, which waits for nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from geminga_ledger import LedgerError


@dataclass(slots=True, eq=False)
class ConfirmationWaiter:
    """The listener of a ledger writer, whose confirmations one task at a time can await."""

    # The last entry that is durable, -1 for none.
    _confirmed: int = field(default=-1, init=False)
    # Why the writer gave up. What was confirmed before stays durable.
    _error: LedgerError | None = field(default=None, init=False)
    # Done when the task that waits is to look again.
    _waiting: asyncio.Future[None] | None = field(default=None, init=False)

    async def wait_for(self, entry_id: int) -> None:
        """Return when the entry is durable. Raises the ``LedgerError`` with which the writer gave
        up before it was."""
        # Confirmations come by the batch: one that ends before ``entry_id`` wakes this too.
        while self._confirmed < entry_id:
            # Only after the comparison: an entry that was confirmed before the writer gave up is
            # durable.
            if self._error is not None:
                raise self._error
            # A new one for each turn: the last may be done, or cancelled with its task.
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def entries_confirmed(self, last_confirmed: int) -> None:
        """Called by the ledger writer: everything up to ``last_confirmed`` is durable."""
        self._confirmed = last_confirmed
        self._wake()

    def writer_failed(self, error: LedgerError) -> None:
        """Called by the ledger writer: it gives up."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
