"""Resets a cursor to another place in its log: seeks of consumers, and resets by an operator.

All consumers are disconnected first; they reconnect with empty queues and read from the new place.
A consumer that subscribes during the reset waits until it is over. A subscription that is not
durable outlives its consumers for a while, so that they find it when they reconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from geminga_broker.errors import ConsumerBusy
from geminga_broker.managed_ledger.acknowledgement.acknowledged import Words
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.cursors.durable_future import DurableFuture
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.reading.payloads import entry_time_ms
from geminga_broker.subscriptions.membership import Membership

# How long a subscription that is not durable waits, after a seek, for its consumer to reconnect.
SEEK_RETURN_S = 60.0


@dataclass(slots=True, eq=False)
class CursorReset:
    """Resets a cursor, which the consumers of a membership share."""

    _managed_ledger: ManagedLedger
    _cursor: Cursor
    _membership: Membership
    # Called when the cursor is at its new place, before anything is read there.
    on_moved: Callable[[], None] = field(kw_only=True)
    # Called when the time for the consumers' return has run out.
    on_never_returned: Callable[[], None] = field(kw_only=True)
    _is_resetting: bool = field(default=False, init=False)
    # Resolved at the end of the reset that began last.
    _reset_over: asyncio.Future[None] | None = field(default=None, init=False)
    # Runs from a reset until a consumer reconnects, for subscriptions that are not durable.
    return_timer: asyncio.TimerHandle | None = field(default=None, init=False)

    async def to_position(self, position: Position, remaining: Sequence[int] = ()) -> None:
        """Make ``position`` the next entry to deliver; of its batch only the messages whose bits
        ``remaining`` has (the words of a bit set; all messages if it is empty)."""
        async with self._resetting():
            first = self._managed_ledger.chain.readable_from(position)
            # The bits are those of the entry asked for, not of the one that comes in its place.
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
        # Two resets at once would each disconnect the consumers of the other, and the last write
        # would win, which neither client could tell.
        if self._is_resetting:
            raise ConsumerBusy(
                f"Subscription {self._cursor.name} is being reset already: try again"
            )
        self._is_resetting = True
        loop = asyncio.get_running_loop()
        # A new one for each reset; consumers that wait for an earlier one hold that.
        over = self._reset_over = loop.create_future()
        # Before the consumers are disconnected, or the subscription would end with the last one.
        if not self._cursor.is_durable and self.return_timer is None:
            self.return_timer = loop.call_later(SEEK_RETURN_S, self._never_returned)
        # A client that was told CLOSED may subscribe before the move: it waits in
        # ``wait_until_over``.
        self._membership.close()
        try:
            yield
        finally:
            self._is_resetting = False
            # After an error, too: a reset that failed must not lock consumers out.
            over.set_result(None)

    async def _move_to(self, position: Position, remaining: Words = ()) -> None:
        # In one turn of the event loop: cursor, derived parts and dispatcher agree when the next
        # consumer is added. Only the answer to the client waits for the write.
        durable = DurableFuture()
        # May go back: entries up to the old mark count as unacknowledged again.
        self._cursor.acknowledged.reset(self._managed_ledger.chain.previous_of(position))
        if any(remaining):
            self._cursor.acknowledged.acknowledge_batch_indexes(*position, remaining)
        self._cursor.changed(durable)
        # Before the dispatcher begins anew: it must not find what was derived from the old place.
        self.on_moved()
        if self._membership.dispatcher is not None:
            self._membership.dispatcher.rewind()
        await durable

    # Consumers that subscribe during a reset or after it

    async def wait_until_over(self) -> None:
        """Return once no reset is running."""
        # Checked again: another reset may have begun before this task got its turn.
        while self._is_resetting and self._reset_over is not None:
            # Shielded: all consumers that subscribe meanwhile wait for this future.
            await asyncio.shield(self._reset_over)

    def _never_returned(self) -> None:
        self.return_timer = None
        self.on_never_returned()

    def stop_waiting(self) -> None:
        """A consumer has reconnected, or the subscription ends."""
        if self.return_timer is not None:
            self.return_timer.cancel()
            self.return_timer = None
