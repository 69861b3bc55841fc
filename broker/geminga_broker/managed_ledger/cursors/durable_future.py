"""The ``OnDurable`` callback of a cursor's write as something to await."""

from __future__ import annotations

import asyncio

from geminga_broker.errors import BrokerError


class DurableFuture(asyncio.Future[None]):
    """Given to ``Cursor.changed``; done when the change is durable, or when it never will be."""

    def __call__(self, error: BrokerError | None) -> None:
        """Called by the cursor: the change is durable or, with an ``error``, never will be."""
        # The waiting task may have been cancelled, and the future with it.
        if self.done():
            return
        if error is None:
            self.set_result(None)
        else:
            self.set_exception(error)
