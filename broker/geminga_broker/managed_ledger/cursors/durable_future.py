"""The ``OnDurable`` callback of a cursor's write as something to await."""

from __future__ import annotations

import asyncio

from geminga_broker.errors import BrokerError


class DurableFuture:
    """Given to ``Cursor.changed``; ``wait`` then returns when the change is durable."""

    def __init__(self) -> None:
        self._outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self, error: BrokerError | None) -> None:
        """Called by the cursor: the change is durable or, with an ``error``, never will be."""
        # The waiting task may have been cancelled, and the future with it.
        if self._outcome.done():
            return
        if error is None:
            self._outcome.set_result(None)
        else:
            self._outcome.set_exception(error)

    async def wait(self) -> None:
        """Return when the change is durable; raises the reason where it never will be."""
        await self._outcome
