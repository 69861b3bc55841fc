"""Moving a subscription to another place in its log: seeks, and what an operator asks for.

Consumers are let go first: they come back to the new position, with empty queues. A consumer that
comes meanwhile waits until the move is over, and one that comes back to a subscription that is not
durable finds it still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from geminga_broker.errors import ConsumerBusy
from geminga_broker.managed_ledger.acknowledgement.acknowledged import Words
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.cursors.durable_future import DurableFuture
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.reading.payloads import entry_time_ms
from geminga_broker.subscriptions.membership import Membership

# How long a subscription that is not durable waits, after a seek, for its consumer to come back.
SEEK_RETURN_S = 60.0


class Moved(Protocol):
    """The subscription, as far as moving it goes."""

    membership: Membership

    def moved(self) -> None:
        """Everything is read anew."""
        ...

    def end_if_deserted(self) -> None:
        """End, where nobody came back to a subscription that is not durable."""
        ...


class Resetting:
    """Moves ``cursor``, that of ``subscription``."""

    def __init__(self, managed_ledger: ManagedLedger, cursor: Cursor, subscription: Moved) -> None:
        self._managed_ledger = managed_ledger
        self._cursor = cursor
        self._subscription = subscription
        self._membership = subscription.membership
        self._is_resetting = False
        self._reset_over: asyncio.Future[None] | None = None
        self._return_timer: asyncio.TimerHandle | None = None

    async def to_position(self, position: Position, remaining: Sequence[int] = ()) -> None:
        """Make ``position`` the next entry to deliver, and of its batch what ``remaining`` (the
        words of a bit set) holds; all of it where that is empty."""
        async with self._resetting():
            first = self._managed_ledger.chain.readable_from(position)
            await self._move_to(first, tuple(remaining) if first == position else ())

    async def to_time(self, time_ms: int) -> None:
        """Make the first message published at or after ``time_ms`` the next to deliver."""
        async with self._resetting():
            await self._move_to(
                await self._managed_ledger.reader.first_where(
                    lambda payload: entry_time_ms(payload) >= time_ms
                )
            )

    @asynccontextmanager
    async def _resetting(self) -> AsyncGenerator[None, None]:
        if self._is_resetting:
            raise ConsumerBusy(
                f"Subscription {self._cursor.name} is being reset already: try again"
            )
        self._is_resetting = True
        over = self._reset_over = asyncio.get_running_loop().create_future()
        self._wait_for_return()
        self._membership.close()
        try:
            yield
        finally:
            self._is_resetting = False
            over.set_result(None)

    async def _move_to(self, position: Position, remaining: Words = ()) -> None:
        durable = DurableFuture()
        self._cursor.acknowledged.reset(self._managed_ledger.chain.previous_of(position))
        if any(remaining):
            self._cursor.acknowledged.acknowledge_batch_indexes(*position, remaining)
        self._cursor.changed(durable)
        self._subscription.moved()
        if self._membership.dispatcher is not None:
            self._membership.dispatcher.rewind()
        await durable.wait()

    # Who comes meanwhile, who comes back

    async def wait_until_over(self) -> None:
        """Return once nothing is being moved."""
        while self._is_resetting and self._reset_over is not None:
            await asyncio.shield(self._reset_over)

    @property
    def is_return_awaited(self) -> bool:
        """Whether the subscription outlives its consumers for a while, though it is not durable."""
        return self._return_timer is not None

    def _wait_for_return(self) -> None:
        if not self._cursor.is_durable and self._return_timer is None:
            loop = asyncio.get_running_loop()
            self._return_timer = loop.call_later(SEEK_RETURN_S, self._never_returned)

    def _never_returned(self) -> None:
        self._return_timer = None
        self._subscription.end_if_deserted()

    def stop_waiting(self) -> None:
        """A consumer has come back, or the subscription ends."""
        if self._return_timer is not None:
            self._return_timer.cancel()
            self._return_timer = None
