"""Waiting for the entries of a ledger that is written a few at a time: a cursor's, a bucket's."""

from __future__ import annotations

import asyncio

from geminga_ledger import LedgerError


class ConfirmationWaiter:
    """Turns a ledger writer's confirmations into something to await, for one who waits."""

    def __init__(self) -> None:
        self._confirmed = -1
        self._error: LedgerError | None = None
        self._waiting: asyncio.Future[None] | None = None

    async def wait_for(self, entry_id: int) -> None:
        """Return when the entry is durable; raises why it never will be."""
        while self._confirmed < entry_id:
            if self._error is not None:
                raise self._error
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def entries_confirmed(self, last_confirmed: int) -> None:
        """Called by the ledger writer."""
        self._confirmed = last_confirmed
        self._wake()

    def writer_failed(self, error: LedgerError) -> None:
        """Called by the ledger writer: it gives up."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
