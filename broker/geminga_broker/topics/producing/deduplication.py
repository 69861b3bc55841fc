"""Keeps a topic from storing a message twice, across restarts of broker and topic.

The producers' sequence ids (``sequence_ids`` has the rules) are kept as the position properties
of a cursor ``pulsar.dedup``, as upstream's ``MessageDeduplication`` does: its mark-delete position
says up to where they are true, and what was stored later is read again when the topic is loaded.
The cursor holds back trimming, for as long as one snapshot is old, and is nobody's subscription.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from itertools import groupby
from typing import cast

from geminga_broker.errors import NotAllowed
from geminga_broker.log.appender import Pending
from geminga_broker.log.cursor import Cursor
from geminga_broker.log.logs import Logs
from geminga_broker.log.managed_ledger import ManagedLedger
from geminga_broker.log.positions import Position
from geminga_broker.policies.publishing import PublishConfig
from geminga_broker.topics.producing.producers import Producer
from geminga_broker.topics.producing.sequence_ids import (
    SequenceIds,
    Verdict,
    completes_message,
    highest_of,
    number_of_stored,
)
from geminga_protocol.pulsar import api_pb2 as api
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

CURSOR_NAME = "pulsar.dedup"
# Entries read at once when the numbers are read again.
REPLAY_ENTRIES = 1000
UNKNOWN_REASON = "Cannot determine whether the message is a duplicate at this time"


class DeduplicationStatus(Enum):
    """Whether it works; the values are upstream's."""

    DISABLED = "Disabled"
    RECOVERING = "Recovering"
    ENABLED = "Enabled"
    REMOVING = "Removing"


class Deduplication:
    """Of one topic, whose log is ``managed_ledger``. ``cursor`` is there from when it is enabled
    until it is disabled; ``enter`` ties it to the topic and enters it. What is new goes on to
    ``append``."""

    def __init__(
        self,
        managed_ledger: ManagedLedger,
        logs: Logs,
        clock: Clock,
        config: PublishConfig,
        *,
        append: Callable[[Sequence[Pending]], None],
        enter: Callable[[Cursor], Awaitable[None]],
    ) -> None:
        self.status = DeduplicationStatus.DISABLED
        self.cursor: Cursor | None = None
        self._log = managed_ledger
        self._logs = logs
        self._clock = clock
        self._config = config
        self._append = append
        self._enter = enter
        self._numbers = SequenceIds()
        self._entries_since_snapshot = 0
        self._snapshot_at_s = clock.monotonic()
        # Guards the cursor while it is made or deleted.
        self._changing = asyncio.Lock()
        # Those who wait until nothing of theirs is under way.
        self._waiting: list[asyncio.Future[None]] = []
        self._is_closed = False

    @property
    def is_enabled(self) -> bool:
        """Whether repeats are recognized."""
        return self.status is DeduplicationStatus.ENABLED

    def last_sequence_id(self, name: str) -> int:
        """The last number that this producer sent; -1 for none that is known."""
        return self._numbers.last_of(name)

    async def settled(self, name: str) -> None:
        """Return when nothing of this producer is under way: whoever goes on behind the last number
        that it sent would leave a hole where that is lost. Also when all is over here."""
        while self.is_enabled and not self._is_closed and self._numbers.is_under_way(name):
            woken = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            await woken

    def _wake(self) -> None:
        woken, self._waiting = self._waiting, []
        for each in woken:
            if not each.done():
                each.set_result(None)

    # Turning it on and off

    async def enable(self, cursor: Cursor | None = None) -> None:
        """From now on recognize repeats: as ``cursor`` tells, loaded and not yet entered, or of
        what comes from here on. Raises ``GemingaError``."""
        async with self._changing:
            if self.is_enabled:
                return
            self.status = DeduplicationStatus.RECOVERING
            try:
                if cursor is None:
                    cursor = await self._new_cursor()
                if cursor is not self.cursor:
                    await self._enter(cursor)
                    self.cursor = cursor
                self._numbers = SequenceIds()
                self._numbers.restore(cursor.position_properties, self._clock.monotonic())
                replayed = await self._replay(cursor.mark_delete)
                # Nothing was awaited since the last entry was seen: none is missed.
                self.status = DeduplicationStatus.ENABLED
            finally:
                if not self.is_enabled:
                    self.status = DeduplicationStatus.DISABLED
            self._entries_since_snapshot = replayed
            if replayed >= self._config.deduplication_snapshot_entries:
                self._take_snapshot(self._log.chain.last_confirmed)

    async def _new_cursor(self) -> Cursor:
        await self._log.begin()
        chain = self._log.chain
        return await self._logs.create_cursor(
            self._log.name, CURSOR_NAME, chain, chain.last_confirmed, {}
        )

    async def _replay(self, after: Position) -> int:
        """Read again what was stored behind ``after``; how many entries that were."""
        chain, now_s = self._log.chain, self._clock.monotonic()
        position, count = chain.next_after(after), 0
        while position <= chain.last_confirmed:
            run = await self._log.read(position, REPLAY_ENTRIES)
            numbers = [number_of_stored(payload) for _, payload, _ in run]
            self._numbers.restore(dict(each for each in numbers if each is not None), now_s)
            count += len(run)
            position = chain.next_after(Position(position.ledger_id, run[-1][0]))
        return count

    async def disable(self) -> None:
        """Store repeats again, and delete what was kept."""
        async with self._changing:
            cursor, self.cursor = self.cursor, None
            self.status = DeduplicationStatus.REMOVING
            try:
                if cursor is not None:
                    await delete_cursor(cursor)
            finally:
                self.status = DeduplicationStatus.DISABLED
                self._numbers = SequenceIds()
                self._wake()

    async def close(self) -> None:
        """Keep the newest numbers, so that the next owner has nothing to read again."""
        self._is_closed = True
        self._wake()
        async with self._changing:
            cursor = self.cursor
            if cursor is not None:
                if self.is_enabled and self._entries_since_snapshot:
                    self._take_snapshot(self._log.chain.last_confirmed)
                await cursor.__aexit__(None, None, None)

    # Publishing

    def take(self, items: Sequence[Pending]) -> None:
        """Append those of ``items``, a run of one producer, that are not stored yet; answer the
        others. Raises what the log raises, then none was taken."""
        producer = cast(Producer, items[0][2])
        if not producer.is_chunking:
            last = self._numbers.all_new(producer.name, items)
            if last is not None:
                self._append(items)
                self._numbers.taken(producer.name, last)
                return
        for number, item in enumerate(items, 1):
            self._take_one(producer, item, entries_behind=len(items) - number)

    def _take_one(self, producer: Producer, item: Pending, *, entries_behind: int) -> None:
        """``entries_behind`` came with it and follow it."""
        counts = not producer.is_chunking or completes_message(item[0])
        verdict = self._numbers.judge(producer.name, item[3]) if counts else Verdict.NEW
        if verdict is Verdict.STORED:
            producer.confirm_repeat(item, entries_behind=entries_behind)
        elif verdict is Verdict.UNKNOWN:
            producer.refuse(item, api.PersistenceError, UNKNOWN_REASON)
        else:
            try:
                self._append([item])
            except NotAllowed as error:
                producer.refuse(item, api.NotAllowedError, str(error))
                return
            if counts:
                self._numbers.taken(producer.name, highest_of(item))

    def stored(self, last: Position, batch: Sequence[Pending]) -> None:
        """``batch`` is durable up to ``last``."""
        if not self.is_enabled:
            return
        for publisher, run in groupby(batch, key=lambda item: cast(Producer, item[2])):
            self._numbers.stored(publisher.name, run, is_chunking=publisher.is_chunking)
        if self._waiting:
            self._wake()
        self._entries_since_snapshot += len(batch)
        if self._entries_since_snapshot >= self._config.deduplication_snapshot_entries:
            self._take_snapshot(last)

    # Keeping

    def _take_snapshot(self, position: Position) -> None:
        assert self.cursor is not None
        self._entries_since_snapshot = 0
        self._snapshot_at_s = self._clock.monotonic()
        self.cursor.position_properties = self._numbers.snapshot(
            self._config.deduplication_producers_max
        )
        self.cursor.acknowledged.acknowledge_upto(position)
        self.cursor.changed()

    def sweep(self, snapshot_interval_s: int) -> None:
        """Once in a while: forget who is gone for long, keep the numbers that changed."""
        if not self.is_enabled:
            return
        now_s = self._clock.monotonic()
        is_due = 0 < snapshot_interval_s <= now_s - self._snapshot_at_s
        if is_due and self._entries_since_snapshot:
            self._take_snapshot(self._log.chain.last_confirmed)
        if self._numbers.forget_idle(now_s - self._config.deduplication_producer_idle_s):
            self._take_snapshot(self._log.chain.last_confirmed)

    def connected(self, producer: Producer) -> None:
        """One more producer."""
        self._numbers.connected(producer.name)

    def disconnected(self, producer: Producer) -> None:
        """A producer has gone."""
        if self.is_enabled:
            self._numbers.disconnected(producer.name, self._clock.monotonic())


async def delete_cursor(cursor: Cursor) -> None:
    """Delete the cursor, entered or not, of a topic that needs it no more."""
    try:
        await cursor.delete()
    finally:
        await cursor.__aexit__(None, None, None)
