"""Takes ledgers out of a log when nobody needs them any more (``retention`` says which).

Nothing is taken before the log is told who reads it (``readership``): while a topic is loading, its
slowest cursor may be the one not read yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol
from weakref import proxy

from geminga_broker.errors import StorageUnavailable, TopicFenced
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.cursors.durable_future import DurableFuture
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.ledger_chain.retention import Retention, trimmable_ledgers
from geminga_broker.managed_ledger.positions import INT64_MAX, Position
from geminga_broker.managed_ledger.records.own_record import OWNERSHIP_LOST
from geminga_broker.managed_ledger.records.recorded_chain import RecordedChain
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)


class Readership(Protocol):
    """Who reads a log: the topic's subscriptions, as far as the log must know them."""

    def cursors(self) -> Iterable[Cursor]:
        """All cursors, those that are not durable too."""
        ...

    def reads_from(self) -> Position | None:
        """The least position that some subscription has still to be sent; None without any."""
        ...


class TrimmedLog(Protocol):
    """What a trimmer tells its managed ledger."""

    name: str
    is_fenced: bool

    def ledgers_removed(self, spans: Sequence[LedgerSpan]) -> None:
        """These are about to leave the chain: forget what is kept of them."""
        ...

    def fence(self) -> None:
        """Another broker has the log."""
        ...

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> asyncio.Task[object]:
        """Do ``work`` in the background while the log is open."""
        ...


class Trimmer:
    """Trims ``recorded``, the chain of ``owner``; ``retention`` may be changed at any time."""

    __slots__ = ("_clock", "_owner", "_recorded", "_running", "readership", "retention")

    def __init__(
        self, owner: TrimmedLog, recorded: RecordedChain, clock: Clock, retention: Retention
    ) -> None:
        self.retention = retention
        self.readership: Readership | None = None
        self._owner: TrimmedLog = proxy(owner)
        self._recorded = recorded
        self._clock = clock
        self._running: asyncio.Task[object] | None = None

    def stop(self) -> None:
        """Trim no more: the log is closed."""
        self.readership = None

    def trim_soon(self) -> None:
        """Delete in the background what may go now, and what an earlier attempt left behind."""
        if self._running is not None or self._owner.is_fenced:
            return
        if self._recorded.has_garbage or self._trimmable(self.retention):
            self._running = self._owner.spawn(self._trim_quietly(), name=f"trim {self._owner.name}")

    async def _trim_quietly(self) -> None:
        try:
            await self.trim(self.retention)
        except (TopicFenced, StorageUnavailable) as error:
            log.warning("not trimmed", extra={"log": self._owner.name, "error": str(error)})
        finally:
            self._running = None

    async def trim(self, retention: Retention) -> None:
        """Take out the ledgers that all cursors have passed and ``retention`` does not keep, then
        delete them. Raises ``TopicFenced``, ``StorageUnavailable``."""
        if self._owner.is_fenced:
            raise TopicFenced(self._owner.name)
        try:
            await self._recorded.remove(lambda: self._trimmable(retention), self._leave)
        except OWNERSHIP_LOST as error:
            self._owner.fence()
            raise TopicFenced(self._owner.name) from error
        except CoordinationError as error:
            raise StorageUnavailable(str(error)) from error
        await self._recorded.delete_garbage()

    def _trimmable(self, retention: Retention) -> list[LedgerSpan]:
        if self.readership is None:
            return []
        marks = (each.needless_upto for each in self._cursors() if each.is_durable)
        return trimmable_ledgers(
            self._recorded.chain.spans, min(marks, default=None), retention, self._clock.wall_ms()
        )

    def _cursors(self) -> Iterable[Cursor]:
        return () if self.readership is None else self.readership.cursors()

    def _leave(self, removed: Sequence[LedgerSpan]) -> None:
        """No cursor may stand or count in ledgers that are gone.

        One that is not durable holds nothing back; one that was moved back while the record was
        being written is too late. Both go on behind what is gone.
        """
        for cursor in self._cursors():
            if cursor.acknowledged.acknowledge_upto(removed[-1].last):
                cursor.changed()
        self._owner.ledgers_removed(removed)

    async def pass_everything(self, end: Position, deadline_s: float) -> None:
        """Move every cursor to ``end`` and wait until that is durable.

        The log is open, and was told who reads it. Raises ``StorageUnavailable`` at the deadline,
        and what a cursor gives as its reason.
        """
        assert self.readership is not None, "roll_over, which comes first, finds a log closed"
        moved: list[DurableFuture] = []
        for cursor in self._cursors():
            cursor.acknowledged.acknowledge_upto(end)
            moved.append(DurableFuture())
            cursor.changed(moved[-1])
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.gather(*[each.wait() for each in moved])
        except TimeoutError:
            raise StorageUnavailable(
                f"no cursor could be written in {deadline_s:g} s: are the bookies up?"
            ) from None

    def wanted_from(self, ledger_id: int) -> int:
        """The first entry of this ledger that some subscription has still to be sent."""
        position = self.readership.reads_from() if self.readership is not None else None
        if position is None or position[0] > ledger_id:
            return INT64_MAX
        return position[1] if position[0] == ledger_id else 0
