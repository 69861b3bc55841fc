"""Waiting for a cursor's write: an ``OnDurable`` that can be awaited."""

from __future__ import annotations

import asyncio

from geminga_broker.errors import BrokerError


class DurableFuture:
    """Given to ``Cursor.changed``; ``wait`` then returns when the change is durable."""

    def __init__(self) -> None:
        self._told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self, error: BrokerError | None) -> None:
        """It is durable, or never will be."""
        if self._told.done():
            return
        if error is None:
            self._told.set_result(None)
        else:
            self._told.set_exception(error)

    async def wait(self) -> None:
        """Return when it is durable. Raises why it never will be."""
        await self._told
