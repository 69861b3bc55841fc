"""One topic's log: a chain of ledgers, written at the end, read anywhere, with cursors.

Appending is synchronous and cheap; confirmations come back in runs through ``LogListener``. The
ledger to write is created at the first append, rolled over by entries, size and age, and replaced
when its writer fails, with the unconfirmed entries sent again in order. A fenced ledger or a
changed metadata record means that another broker has the log: it fences itself and never writes
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Protocol

from magnetar_broker.errors import StorageUnavailable, TopicFenced
from magnetar_broker.log.appender import Appender, Pending
from magnetar_broker.log.chain import LedgerChain, LedgerSpan
from magnetar_broker.log.entry_cache import EntryCache, LedgerCache
from magnetar_broker.log.options import LogOptions
from magnetar_broker.log.positions import Entry, Position
from magnetar_broker.log.store import LogStore
from magnetar_ledger import LedgerError, LedgerFenced, LedgerReader, Ledgers
from magnetar_runtime.backoff import Backoff
from magnetar_runtime.clock import Clock
from magnetar_runtime.coordination import CoordinationError, NodeMissing, VersionMismatch
from magnetar_runtime.service import Service

log = logging.getLogger(__name__)


class LogListener(Protocol):
    """Whom the log tells what became of appended entries."""

    def run_appended(self, ledger_id: int, entries: list[Entry], batch: list[Pending]) -> None:
        """Consecutive entries are durable and cached; ``batch`` is what was given with them."""
        ...

    def log_fenced(self) -> None:
        """Another broker has the log: whatever is still waiting will never be confirmed here."""
        ...


class ManagedLedger(Service):
    """The log named ``name`` (``tenant/namespace/persistent/topic``, encoded)."""

    def __init__(
        self,
        name: str,
        *,
        ledgers: Ledgers,
        store: LogStore,
        cache: EntryCache,
        clock: Clock,
        random: Random,
        options: LogOptions,
        listener: LogListener,
        create_with: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.options = options
        self.chain = LedgerChain()
        self.is_fenced = False
        self._ledgers = ledgers
        self._store = store
        self._cache = cache
        self._clock = clock
        self._backoff = Backoff(options.retry_first_s, options.retry_limit_s, random)
        self._listener = listener
        self._create_with = create_with
        self._appender: Appender | None = None
        self._opened_at_s = 0.0
        self._caches: dict[int, LedgerCache] = {}
        self._waiting: deque[Pending] = deque()
        self.waiting_bytes = 0
        self._switching: asyncio.Task[object] | None = None
        self._readers: dict[int, LedgerReader] = {}
        # Ledgers made for this log of which it is not known that the record names them.
        self._unnamed: list[int] = []

    # Opening and closing

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            spans = await self._store.load()
        except NodeMissing:
            if self._create_with is None:
                raise
            await self._create(self._create_with)
        else:
            self.chain = LedgerChain(spans)
            if spans and not spans[-1].closed_at_ms:
                await self._recover_last(spans[-1])
        stack.push_async_callback(self._finish)

    async def _create(self, properties: Mapping[str, str]) -> None:
        """A new log has a ledger from the beginning: cursors need something to point at."""
        appender = await self._new_appender()
        span = LedgerSpan(appender.ledger_id)
        await self._store.create((span,), properties)
        self._use(appender, span)

    async def _recover_last(self, span: LedgerSpan) -> None:
        """The last writer did not close its ledger: fence it off and find where it ends."""
        reader = await self._ledgers.open(span.ledger_id, recover=True)
        self._readers[span.ledger_id] = reader
        span.entries = reader.last_confirmed + 1
        span.size_bytes = reader.length_bytes
        span.closed_at_ms = self._clock.wall_ms()
        if span.entries == 0 and len(self.chain.spans) > 1:
            self.chain.remove(span.ledger_id)
        await self._store.save(self.chain.spans)

    async def _finish(self) -> None:
        """Close the open ledger, so that the next owner need not recover it."""
        appender, self._appender = self._appender, None
        try:
            if appender is not None and not self.is_fenced:
                await self._close_span(appender)
                await self._store.save(self.chain.spans)
        except (LedgerError, CoordinationError) as error:
            log.warning("log left open", extra={"log": self.name, "error": str(error)})
        finally:
            if appender is not None:
                appender.writer.detach()  # also where it could not be closed, or not in time
            # Last: until the ledger is closed, what is on its way is confirmed into the cache.
            self._discard_caches()

    def _discard_caches(self) -> None:
        for cache in self._caches.values():
            self._cache.discard(cache)
        self._caches.clear()

    async def _close_span(self, appender: Appender) -> None:
        await appender.writer.close()
        span = self.chain.span(appender.ledger_id)
        assert span is not None
        span.closed_at_ms = self._clock.wall_ms()

    # Appending

    def append_all(self, items: Sequence[Pending]) -> None:
        """Take entries; ``LogListener.run_appended`` says when they are durable, in this order.

        Raises ``TopicFenced`` once another broker has the log.
        """
        appender = self._appender
        if appender is not None:
            try:
                appender.append_all(items)
            except LedgerError as error:
                log.warning("ledger takes no more", extra={"log": self.name, "error": str(error)})
                self._replace(appender)
            else:
                return
        if self.is_fenced:
            raise TopicFenced(self.name)
        self._waiting.extend(items)
        self.waiting_bytes += sum(len(item[0]) for item in items)
        if self._appender is None:
            self._switch_soon()

    def _replace(self, appender: Appender) -> None:
        """Write to another ledger as soon as what ``appender`` has on its way is confirmed."""
        if appender is self._appender:
            self._appender = None
            self._switch_soon(appender)

    @property
    def is_congested(self) -> bool:
        """Whether more waits for a ledger than may: the sources should pause."""
        return self.waiting_bytes > self.options.waiting_bytes_max

    @property
    def pending_count(self) -> int:
        """Entries taken and not yet durable."""
        appended = self._appender.pending_count if self._appender else 0
        return appended + len(self._waiting)

    def run_confirmed(
        self, appender: Appender, entries: list[Entry], batch: list[Pending], size_bytes: int
    ) -> None:
        """Called by an appender: a run is durable."""
        ledger_id = appender.ledger_id
        span = self.chain.span(ledger_id)
        assert span is not None
        span.entries += len(entries)
        span.size_bytes += size_bytes
        now_s = self._clock.monotonic()
        self._cache.insert(self._caches[ledger_id], entries, size_bytes, now_s)
        self._listener.run_appended(ledger_id, entries, batch)
        if self._is_full(span, now_s):
            self._replace(appender)

    def _is_full(self, span: LedgerSpan, now_s: float) -> bool:
        limits = self.options
        return (
            span.entries >= limits.ledger_entries_max
            or span.size_bytes >= limits.ledger_bytes_max
            or now_s - self._opened_at_s > limits.ledger_age_max_s
        )

    def appender_failed(self, appender: Appender, error: LedgerError) -> None:
        """Called by an appender: its ledger takes no more."""
        if isinstance(error, LedgerFenced):
            self._fence()
            return
        log.warning("ledger failed", extra={"ledger": appender.ledger_id, "error": str(error)})
        rest = appender.take_pending()
        self._waiting.extendleft(reversed(rest))
        self.waiting_bytes += sum(len(item[0]) for item in rest)
        self._replace(appender)

    def _fence(self) -> None:
        if self.is_fenced:
            return
        self.is_fenced = True
        self._appender = None
        self._waiting.clear()
        self.waiting_bytes = 0
        log.warning("log fenced", extra={"log": self.name})
        self._listener.log_fenced()

    # Changing the ledger that is written

    def _switch_soon(self, finished: Appender | None = None) -> None:
        if self._switching is None:
            self._switching = self.spawn(self._switch(finished), name=f"switch {self.name}")

    async def _switch(self, finished: Appender | None) -> None:
        """Close ``finished``, create the next ledger, and let the waiting entries go there.

        Keeps trying: while the bookies are away the producers wait, they are not failed.
        """
        try:
            while not self.is_fenced:
                try:
                    if finished is not None:
                        await self._close_span(finished)
                        finished = None
                    if self._waiting or not self.chain.spans:
                        await self._begin_ledger()
                    else:
                        await self._store.save(self.chain.spans)
                except (LedgerFenced, VersionMismatch):
                    self._fence()
                except (LedgerError, CoordinationError) as error:
                    delay_s = self._backoff.next_s()
                    log.warning(
                        "no ledger to write",
                        extra={"log": self.name, "error": str(error), "retry_in_s": delay_s},
                    )
                    await asyncio.sleep(delay_s)
                else:
                    self._backoff.reset()
                    if self._appender is not None or not self._waiting:
                        return
        finally:
            self._switching = None

    async def _begin_ledger(self) -> None:
        appender = await self._new_appender()
        span = LedgerSpan(appender.ledger_id)
        self._unnamed.append(appender.ledger_id)
        await self._store.save((*self.chain.spans, span))
        self._unnamed.remove(appender.ledger_id)
        self._use(appender, span)
        # Only now: until the record was written, it was in doubt whether it names one of these.
        unnamed, self._unnamed = self._unnamed, []
        if unnamed:
            self.spawn(self._drop(unnamed), name=f"drop unused ledgers of {self.name}")

    async def _drop(self, ledger_ids: list[int]) -> None:
        for ledger_id in ledger_ids:
            await self._ledgers.delete(ledger_id)

    async def _new_appender(self) -> Appender:
        appender = Appender(self)
        writer = await self._ledgers.create(
            ensemble_size=self.options.ensemble_size,
            write_quorum=self.options.write_quorum,
            ack_quorum=self.options.ack_quorum,
            custom=self._store.ledger_labels,
            listener=appender,
        )
        appender.attach(writer)
        return appender

    def _use(self, appender: Appender, span: LedgerSpan) -> None:
        """Write to this ledger from now on, first what waited for it."""
        self.chain.append(span)
        self._caches = {each: kept for each, kept in self._caches.items() if kept.entries}
        self._caches[span.ledger_id] = LedgerCache(0)
        self._opened_at_s = self._clock.monotonic()
        self._appender = appender
        waiting, self._waiting = self._waiting, deque()
        self.waiting_bytes = 0
        if waiting:
            self.append_all(waiting)

    async def begin(self) -> None:
        """Make sure that the log has a ledger: a stored cursor needs something to point at."""
        if not self.chain.spans and not self.is_fenced:
            self._switch_soon()
            assert self._switching is not None
            await asyncio.wait((self._switching,))

    # Reading

    def cached_run(self, position: Position, count_max: int) -> list[Entry]:
        """Entries from ``position`` on that are in memory; empty when that one is not.

        They belong to the ledger of ``position``.
        """
        cache = self._caches.get(position[0])
        run = cache.run(position[1], count_max) if cache is not None else []
        if run:
            self._cache.hits += len(run)
        else:
            self._cache.misses += 1
        return run

    async def read(self, position: Position, count_max: int) -> list[Entry]:
        """Stored entries from ``position`` on, at least one, all of that position's ledger.

        ``position`` must hold an entry. Message counts are not known here: they come as 0, and
        who needs them reads the payload's metadata. Raises ``StorageUnavailable``.
        """
        span = self.chain.span(position[0])
        assert span is not None, f"no ledger {position[0]} in {self.name}"
        assert position[1] < span.entries, f"{position} is beyond the end of {self.name}"
        last = min(position[1] + count_max, span.entries) - 1
        cached = self._caches.get(position[0])
        if cached is not None and cached.entries and position[1] < cached.first_entry_id:
            last = min(last, cached.first_entry_id - 1)  # the rest is in memory
        try:
            reader = await self._reader(span)
            payloads = await reader.read(position[1], last, bytes_max=self.options.read_bytes_max)
        except (LedgerError, CoordinationError) as error:
            self._readers.pop(position[0], None)
            raise StorageUnavailable(str(error)) from error
        self._cache.missed_bytes += sum(map(len, payloads))
        return [(position[1] + index, payload, 0) for index, payload in enumerate(payloads)]

    async def _reader(self, span: LedgerSpan) -> LedgerReader:
        reader = self._readers.get(span.ledger_id)
        if reader is None or reader.last_confirmed < span.entries - 1:
            reader = await self._ledgers.open(span.ledger_id, recover=False)
            reader.advance(span.entries - 1)
            self._readers[span.ledger_id] = reader
        return reader

    # Deleting

    async def delete(self) -> None:
        """Delete all ledgers and the log's own record; call when nothing uses it any more."""
        self.is_fenced = True
        if self._switching is not None:
            self._switching.cancel()
            await asyncio.wait((self._switching,))
        appender, self._appender = self._appender, None
        if appender is not None:
            try:
                await appender.writer.close()
            except LedgerError as error:
                log.info("deleting an unclosed ledger", extra={"error": str(error)})
        self._discard_caches()
        await self._store.delete()
        for span in self.chain.spans:
            await self._ledgers.delete(span.ledger_id)
        await self._drop(self._unnamed)
