"""Looks which messages of one subscription have grown too old, and lets it pass them.

Where delayed messages are spared, each entry that is old enough is read once to see whether it is
one, and its own time; those that are spared are passed over, and looked at again when the time of
the first of them has come.
"""

from __future__ import annotations

import asyncio

from geminga_broker.errors import EntryDamaged
from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.payloads import entry_time_ms
from geminga_broker.managed_ledger.positions import EARLIEST, Entry, Position
from geminga_broker.managed_ledger.unacknowledged import unacknowledged_runs
from geminga_broker.subscriptions.cursor_moves.message_skipper import MessageSkipper
from geminga_broker.subscriptions.decisions.expired_entries import (
    NEVER_MS,
    end_of_expired_ledgers,
    is_expired,
    runs_between,
    sort_out,
)
from geminga_runtime.clock import Clock

# Entries looked at before others get a turn.
LOOK_ENTRIES_MAX = 500


class ExpiryMonitor:
    """Expires messages of ``cursor`` by way of ``skipping``."""

    __slots__ = (
        "_clock",
        "_cursor",
        "_first_due_ms",
        "_is_looking",
        "_looked_upto",
        "_managed_ledger",
        "_moves",
        "_skipping",
    )

    def __init__(
        self, managed_ledger: ManagedLedger, cursor: Cursor, clock: Clock, skipping: MessageSkipper
    ) -> None:
        self._managed_ledger = managed_ledger
        self._cursor = cursor
        self._clock = clock
        self._skipping = skipping
        self._is_looking = False
        # Up to here whatever is not acknowledged is delayed, the first of it until then.
        self._looked_upto = EARLIEST
        self._first_due_ms = NEVER_MS
        self._moves = 0

    def moved(self) -> None:
        """The cursor is elsewhere, and what it had acknowledged may be there again."""
        self._moves += 1
        self._look_at_all()

    def _look_at_all(self) -> None:
        self._looked_upto = EARLIEST
        self._first_due_ms = NEVER_MS

    async def older_than(self, ttl_s: int, *, spares_delayed: bool) -> None:
        """Pass what is older than ``ttl_s`` now.

        Raises ``StorageUnavailable`` where it cannot be read how old something is.
        """
        if self._is_looking or not self._cursor.backlog_entries:
            return
        self._is_looking = True
        try:
            limit_ms = self._clock.wall_ms() - ttl_s * 1000
            if spares_delayed:
                await self._sparing_delayed(limit_ms)
            else:
                self._look_at_all()
                moves = self._moves
                upto = await self._last_before(limit_ms, self._cursor.mark_delete)
                if self._moves == moves:
                    self._skipping.expire_at_once(upto)
        finally:
            self._is_looking = False

    async def _last_before(self, limit_ms: int, after: Position) -> Position:
        """The last entry that is older; ``after`` where none is that comes later."""
        chain = self._managed_ledger.chain
        after = end_of_expired_ledgers(chain, after, limit_ms)
        first = chain.next_after(after)
        if first > self._managed_ledger.reader.readable_upto:
            return after
        if entry_time_ms(await self._managed_ledger.reader.read_one(first)) >= limit_ms:
            return after  # the usual answer: one look is enough
        first_kept = await self._managed_ledger.reader.first_where(
            lambda payload: entry_time_ms(payload) >= limit_ms, after=first
        )
        return chain.previous_of(first_kept)

    async def _sparing_delayed(self, limit_ms: int) -> None:
        if self._first_due_ms < limit_ms:
            self._look_at_all()
        moves = self._moves
        after = max(self._cursor.mark_delete, self._looked_upto)
        upto = await self._last_before(limit_ms, after)
        runs = unacknowledged_runs(self._cursor.acknowledged, self._managed_ledger.chain)
        for run in runs_between(runs, after, upto):
            await self._look_at(*run, limit_ms)
            if self._moves != moves:
                return
        self._looked_upto = max(self._looked_upto, upto)

    async def _look_at(self, ledger_id: int, start: int, last: int, limit_ms: int) -> None:
        """Expire what is not delayed of a ledger's entries, until the cursor is moved."""
        moves = self._moves
        are_old = is_expired(self._managed_ledger.chain.span(ledger_id), limit_ms)
        first = start
        while first <= last:
            run = await self._read(Position(ledger_id, first), last - first + 1)
            if self._moves != moves:
                return
            expired, due_ms = sort_out(run, limit_ms, are_old=are_old)
            self._first_due_ms = min(self._first_due_ms, due_ms)
            self._skipping.expire_entries(ledger_id, expired)
            first += len(run)
            self._looked_upto = Position(ledger_id, first - 1)
            await asyncio.sleep(0)

    async def _read(self, position: Position, count: int) -> list[Entry]:
        """Entries from ``position`` on, at least one; one that is damaged counts as not delayed."""
        try:
            return await self._managed_ledger.reader.read(position, min(count, LOOK_ENTRIES_MAX))
        except EntryDamaged:
            return [(position[1], b"", 1)]
