"""Deletes the ledgers at the front of a log that are no longer needed (``retention`` says which).

Nothing is deleted before the trimmer knows the log's cursors (``readership``): while a topic is
loading, its slowest cursor may be the one that is not loaded yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol
from weakref import proxy

from geminga_broker.errors import StorageUnavailable, TopicFenced
from geminga_broker.managed_ledger.cache.log_cache import LogCache
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.cursors.durable_future import DurableFuture
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerSpan
from geminga_broker.managed_ledger.ledger_chain.retention import Retention, trimmable_ledgers
from geminga_broker.managed_ledger.positions import INT64_MAX, Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader
from geminga_broker.managed_ledger.records.own_record import OWNERSHIP_LOST
from geminga_broker.managed_ledger.records.properties import OwnedLog
from geminga_broker.managed_ledger.records.recorded_chain import RecordedChain
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import CoordinationError

log = logging.getLogger(__name__)


class Readership(Protocol):
    """The subscriptions of a topic, as far as its log must know them."""

    def cursors(self) -> Iterable[Cursor]:
        """All cursors, those that are not durable too."""
        ...

    def reads_from(self) -> Position | None:
        """The least position that some subscription has still to be sent; None without any."""
        ...


class TrimmedLog(OwnedLog, Protocol):
    """What a trimmer needs of its managed ledger."""

    reader: LogReader
    cached: LogCache

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> asyncio.Task[object]:
        """Do ``work`` in the background while the log is open."""
        ...


class Trimmer:
    """Trims ``recorded``, the chain of ``owner``."""

    __slots__ = ("_clock", "_owner", "_recorded", "_running", "readership", "retention")

    def __init__(
        self,
        owner: TrimmedLog,
        recorded: RecordedChain,
        clock: Clock,
        config: ManagedLedgerConfig,
    ) -> None:
        # What is kept though all cursors have passed it; the topic replaces it when its policies
        # change.
        self.retention = Retention(config.retention_time_ms, config.retention_bytes)
        # None until all cursors are known, and again once the log is closed: nothing is deleted
        # then.
        self.readership: Readership | None = None
        # A proxy: the log has its trimmer, and is freed without the garbage collector.
        self._owner: TrimmedLog = proxy(owner)
        self._recorded = recorded
        self._clock = clock
        # The trim in the background; at most one. ``trim`` itself may run beside it (``truncate``
        # calls it): the record's lock parts their choices, and deleting a ledger twice does no
        # harm.
        self._running: asyncio.Task[object] | None = None

    def trim_soon(self) -> None:
        """Delete in the background what may go now, and what an earlier attempt left behind."""
        # A trim that runs may have chosen its ledgers already: what is passed meanwhile waits for
        # the next call, which a sweep makes at the latest.
        if self._running is not None or self._owner.is_fenced:
            return
        # Most calls find nothing to do: a task is made only where there is something.
        if self._recorded.store.garbage or self._trimmable(self.retention):
            # ``_trimmable`` is asked again under the lock; this only finds out whether a task is
            # worth it.
            self._running = self._owner.spawn(self._trim_quietly(), name=f"trim {self._owner.name}")

    async def _trim_quietly(self) -> None:
        try:
            await self.trim()
        except (TopicFenced, StorageUnavailable) as error:
            log.warning("not trimmed", extra={"log": self._owner.name, "error": str(error)})
        finally:
            self._running = None

    async def trim(self, retention: Retention | None = None) -> None:
        """Take out the ledgers that all cursors have passed and ``retention``, by default that of
        the log, does not keep; then delete them. Raises ``TopicFenced``, ``StorageUnavailable``."""
        if self._owner.is_fenced:
            raise TopicFenced(self._owner.name)
        try:
            # Chosen under the lock of the record: cursors may move until then.
            kept = retention or self.retention
            await self._recorded.remove(lambda: self._trimmable(kept), self._leave)
        except OWNERSHIP_LOST as error:
            self._owner.fence()
            raise TopicFenced(self._owner.name) from error
        except CoordinationError as error:
            raise StorageUnavailable(str(error)) from error
        # Without the lock: deleting waits for ZooKeeper, and a new ledger must not wait for that.
        await self._recorded.delete_garbage()

    def _trimmable(self, retention: Retention) -> list[LedgerSpan]:
        if self.readership is None:
            return []
        # Cursors that are not durable (readers) hold nothing back. The stored mark counts, not only
        # that in memory: after a crash the next owner begins there.
        marks = (each.needless_upto for each in self.readership.cursors() if each.is_durable)
        return trimmable_ledgers(
            self._recorded.chain.spans, min(marks, default=None), retention, self._clock.wall_ms()
        )

    def _leave(self, removed: Sequence[LedgerSpan]) -> None:
        """Move every cursor out of ``removed``: no position in them has a meaning any more.

        A cursor that is not durable may be there, and one that was moved back while the record was
        being written. Both go on behind what is gone.
        """
        for cursor in self.readership.cursors() if self.readership is not None else ():
            # The chain still has these ledgers here: behind the last of them the mark goes on over
            # what was acknowledged out of order.
            if cursor.acknowledged.acknowledge_upto(removed[-1].last):
                cursor.changed()
        # After the cursors: none of them may go on reading what is not there any more.
        for span in removed:
            self._owner.reader.forget(span.ledger_id)
            self._owner.cached.forget(span.ledger_id)

    async def pass_everything(self, end: Position, deadline_s: float) -> None:
        """Move every cursor to ``end`` and wait until that is durable. The log's readership is
        known.

        Raises ``StorageUnavailable`` at the deadline, and the error with which a cursor's write
        fails.
        """
        assert self.readership is not None, "roll_over, which comes first, finds a log closed"
        # All at once: each cursor writes on its own.
        moved: list[DurableFuture] = []
        for cursor in self.readership.cursors():
            # Subscriptions do not hear of it here: the topic tells them afterwards
            # (``cursors_moved``).
            cursor.acknowledged.acknowledge_upto(end)
            moved.append(DurableFuture())
            cursor.changed(moved[-1])
        try:
            async with asyncio.timeout(deadline_s):
                # A cursor that another broker took calls its future with ``ServiceNotReady``, which
                # is raised here while the others go on being written.
                await asyncio.gather(*moved)
        except TimeoutError:
            raise StorageUnavailable(
                f"no cursor could be written in {deadline_s:g} s: are the bookies up?"
            ) from None

    def wanted_from(self, ledger_id: int) -> int:
        """The first entry of this ledger that some subscription has still to be sent; beyond all
        where there is none. The log's cache keeps these entries longest."""
        # A log that is closed or still loading has no readership: nothing is wanted of it.
        position = self.readership.reads_from() if self.readership is not None else None
        if position is None or position[0] > ledger_id:
            return INT64_MAX
        # In an earlier ledger: all of this one has still to be sent.
        return position[1] if position[0] == ledger_id else 0
