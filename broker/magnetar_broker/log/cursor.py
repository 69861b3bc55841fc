"""A cursor: how far one subscription has got, and keeping that durable.

Acknowledging changes memory at once; the change is written soon after, one write at a time for
however many acknowledgements came meanwhile. Who asked for a receipt is called when a write that
covers its acknowledgement is durable. A cursor that is not durable (a reader's) keeps nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import islice
from random import Random

from magnetar_broker.log.acknowledged import Acknowledged
from magnetar_broker.log.chain import LedgerChain
from magnetar_broker.log.cursor_store import CursorState, CursorStore
from magnetar_broker.log.options import LogOptions
from magnetar_broker.log.positions import Position
from magnetar_ledger import LedgerError
from magnetar_runtime.backoff import Backoff
from magnetar_runtime.clock import Clock
from magnetar_runtime.coordination import CoordinationError
from magnetar_runtime.service import Service

log = logging.getLogger(__name__)

# More acknowledged ranges than this are written as bits: at 1.5 us each they would hold the loop,
# and a record in ZooKeeper may not pass 1 MiB.
RANGES_MAX = 1000

OnDurable = Callable[[], None]


class Cursor(Service):
    """The acknowledged positions of subscription ``name``; ``store`` is None if not durable."""

    def __init__(
        self,
        name: str,
        *,
        chain: LedgerChain,
        state: CursorState,
        store: CursorStore | None,
        clock: Clock,
        random: Random,
        options: LogOptions,
    ) -> None:
        super().__init__()
        self.name = name
        self.chain = chain
        self.properties = state.cursor_properties
        self.acknowledged = Acknowledged(chain, state.mark_delete)
        self.acknowledged.restore(state.ranges, state.partial)
        self.acknowledged.restore_bits(state.bits)
        self.last_mark_delete_ms = 0
        self._position_properties = state.position_properties
        self._store = store
        self._clock = clock
        self._options = options
        self._backoff = Backoff(options.retry_first_s, options.retry_limit_s, random)
        self._is_dirty = False
        self._is_flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[OnDurable] = []

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._finish)

    @property
    def is_durable(self) -> bool:
        """Whether the cursor outlives its consumers."""
        return self._store is not None

    @property
    def mark_delete(self) -> Position:
        """Everything up to here is acknowledged."""
        return self.acknowledged.mark_delete

    @property
    def backlog_entries(self) -> int:
        """Stored entries not acknowledged yet."""
        behind = self.chain.entries_between(self.mark_delete, self.chain.last_confirmed)
        return behind - self.acknowledged.ahead_count

    @property
    def backlog_bytes(self) -> int:
        """About how many bytes those have."""
        return self.chain.bytes_between(self.mark_delete, self.chain.last_confirmed)

    # Changes

    def changed(self, on_durable: OnDurable | None = None) -> None:
        """Something was acknowledged: write it soon, at once where somebody waits for it."""
        if self._store is None:
            if on_durable is not None:
                on_durable()
            return
        self._is_dirty = True
        if on_durable is not None:
            self._waiting.append(on_durable)
        if self._is_flushing:
            return
        if self._waiting:
            self._flush_now()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._options.cursor_flush_delay_s, self._flush_now)

    def reset(self, mark_delete: Position, on_durable: OnDurable | None = None) -> None:
        """Move to ``mark_delete`` in either direction, forgetting all acknowledgements beyond."""
        self.acknowledged.reset(mark_delete)
        self.changed(on_durable)

    def state(self) -> CursorState:
        """What must be kept."""
        ranges = tuple(islice(self.acknowledged.ranges(), RANGES_MAX + 1))
        is_dense = len(ranges) > RANGES_MAX
        return CursorState(
            mark_delete=self.mark_delete,
            ranges=() if is_dense else ranges,
            bits=self.acknowledged.bits() if is_dense else {},
            partial=tuple(sorted(self.acknowledged.partial_entries.items())),
            position_properties=self._position_properties,
            cursor_properties=self.properties,
        )

    # Writing

    def _flush_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_flushing and self._is_dirty:
            self._is_flushing = True
            self.spawn(self._flush(), name=f"flush cursor {self.name}")

    async def _flush(self) -> None:
        assert self._store is not None
        try:
            while self._is_dirty:
                self._is_dirty = False
                waiting, self._waiting = self._waiting, []
                try:
                    await self._store.save(self.state())
                except (LedgerError, CoordinationError) as error:
                    self._is_dirty = True
                    self._waiting[:0] = waiting
                    delay_s = self._backoff.next_s()
                    log.warning(
                        "cursor not saved",
                        extra={"cursor": self.name, "error": str(error), "retry_in_s": delay_s},
                    )
                    await asyncio.sleep(delay_s)
                    continue
                self._backoff.reset()
                self.last_mark_delete_ms = self._clock.wall_ms()
                for on_durable in waiting:
                    on_durable()
                if not self._waiting:
                    break
        finally:
            self._is_flushing = False
        if self._is_dirty:
            self.changed()

    async def _finish(self) -> None:
        """A last write, as a snapshot that the next owner reads without opening a ledger."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._store is not None:
            try:
                await self._store.close(self.state())
            except (LedgerError, CoordinationError) as error:
                log.warning("cursor left open", extra={"cursor": self.name, "error": str(error)})

    async def delete(self) -> None:
        """Forget the cursor for good; closing it then has nothing more to write."""
        store, self._store = self._store, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._end_tasks()  # a write under way must not overlap
        if store is not None:
            await store.delete()
