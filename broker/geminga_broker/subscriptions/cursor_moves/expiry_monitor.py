"""Finds the messages of one subscription that are older than the time to live, and expires them.

Where delayed messages are spared, each entry that is old enough is read once for its own delivery
time. Spared entries are left unacknowledged, and are checked again when the earliest of their times
has come.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from geminga_broker.errors import EntryDamaged
from geminga_broker.managed_ledger.acknowledgement.unacknowledged import unacknowledged_runs
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import EARLIEST, Entry, Position
from geminga_broker.managed_ledger.reading.payloads import entry_time_ms
from geminga_broker.subscriptions.cursor_moves.message_skipper import MessageSkipper
from geminga_broker.subscriptions.decisions.expired_entries import (
    NEVER_MS,
    end_of_expired_ledgers,
    is_expired,
    runs_between,
    split_expired,
)
from geminga_runtime.clock import Clock

# Entries checked before other subscriptions get a turn.
CHECKED_ENTRIES_MAX = 500


@dataclass(slots=True, eq=False)
class ExpiryMonitor:
    """Expires messages of a cursor through a skipper, which does the acknowledging."""

    _managed_ledger: ManagedLedger
    _cursor: Cursor
    _clock: Clock
    _skipper: MessageSkipper
    # One check at a time: a check reads, and may take longer than the pause between two.
    _is_checking: bool = field(default=False, init=False)
    # Up to here every unacknowledged entry was spared, and none expires before ``_first_due_ms``
    # (Unix time).
    _checked_upto: Position = field(default=EARLIEST, init=False)
    _first_due_ms: int = field(default=NEVER_MS, init=False)
    # Grows with each reset of the cursor: what a check has read before is of no use then.
    _moves: int = field(default=0, init=False)

    def moved(self) -> None:
        """The cursor was reset: entries that it had passed may be unacknowledged again."""
        self._moves += 1
        self._check_all()

    def _check_all(self) -> None:
        """Let the next check begin at the mark-delete position."""
        self._checked_upto = EARLIEST
        self._first_due_ms = NEVER_MS

    async def older_than(self, ttl_s: int, *, spares_delayed: bool) -> None:
        """Expire what is older than ``ttl_s`` now.

        Raises ``StorageUnavailable`` if the age of an entry cannot be read.
        """
        if self._is_checking or not self._cursor.backlog_entries:
            return
        self._is_checking = True
        try:
            # Fixed for the whole check: what grows too old meanwhile waits for the next one.
            limit_ms = self._clock.wall_ms() - ttl_s * 1000
            if spares_delayed:
                await self._expire_undelayed(limit_ms)
            else:
                # Nothing is spared: when that changes, all entries must be checked again.
                self._check_all()
                moves = self._moves
                upto = await self._last_before(limit_ms, self._cursor.mark_delete)
                # Reading took a while: after a seek in between, ``upto`` would expire entries that
                # a consumer has just asked for.
                if self._moves == moves:
                    self._skipper.expire_at_once(upto)
        finally:
            self._is_checking = False

    async def _last_before(self, limit_ms: int, after: Position) -> Position:
        """The last entry that is older than ``limit_ms``; ``after`` if none behind it is."""
        chain = self._managed_ledger.chain
        # Whole ledgers without a read: a backlog of days is mostly that.
        after = end_of_expired_ledgers(chain, after, limit_ms)
        first = chain.next_after(after)
        if first > self._managed_ledger.reader.readable_upto:
            return after
        if entry_time_ms(await self._managed_ledger.reader.read_one(first)) >= limit_ms:
            return after  # the usual case, for one read
        # Entry times grow along the log, up to differences between publishers' clocks.
        first_kept = await self._managed_ledger.reader.first_where(
            lambda payload: entry_time_ms(payload) >= limit_ms, after=first
        )
        return chain.previous_of(first_kept)

    async def _expire_undelayed(self, limit_ms: int) -> None:
        """Expire the old entries that are not delayed, until the cursor is reset."""
        # The time of a spared entry has come: find it among all.
        if self._first_due_ms < limit_ms:
            self._check_all()
        moves = self._moves
        after = max(self._cursor.mark_delete, self._checked_upto)
        upto = await self._last_before(limit_ms, after)
        # Acknowledged entries in between are not read.
        runs = unacknowledged_runs(self._cursor.acknowledged, self._managed_ledger.chain)
        for ledger_id, start, last in runs_between(runs, after, upto):
            are_old = is_expired(self._managed_ledger.chain.span(ledger_id), limit_ms)
            first = start
            while first <= last:
                run: list[Entry]
                try:
                    run = await self._managed_ledger.reader.read(
                        Position(ledger_id, first), min(last - first + 1, CHECKED_ENTRIES_MAX)
                    )
                except EntryDamaged:
                    run = [(first, b"", 1)]  # an entry that cannot be read is not spared
                if self._moves != moves:
                    return
                expired, due_ms = split_expired(run, limit_ms, are_old=are_old)
                self._first_due_ms = min(self._first_due_ms, due_ms)
                self._skipper.expire_entries(ledger_id, expired)
                first += len(run)
                # Noted after each read: a check that fails later continues from here.
                self._checked_upto = Position(ledger_id, first - 1)
                # Other subscriptions' turn. The cursor may be reset or deleted meanwhile.
                await asyncio.sleep(0)
            # A reset during that pause has already let the next check begin anew.
            if self._moves != moves:
                return
        self._checked_upto = max(self._checked_upto, upto)
