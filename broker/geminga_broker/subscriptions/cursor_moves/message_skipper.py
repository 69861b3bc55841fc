"""Passes messages that no consumer has acknowledged: skipped, cleared and expired ones.

Consumers stay connected. What they hold of these messages counts as acknowledged, and what they
were not sent is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from geminga_broker.managed_ledger.acknowledgement.unacknowledged import nth_unacknowledged
from geminga_broker.managed_ledger.cursors.cursor import Cursor, OnDurable
from geminga_broker.managed_ledger.cursors.durable_future import DurableFuture
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import EntryId, Position
from geminga_broker.managed_ledger.reading.payloads import entry_time_ms
from geminga_runtime.clock import Clock
from geminga_server.metrics import Meter


@dataclass(slots=True, eq=False)
class MessageSkipper:
    """Moves a cursor on, and reports what it passed."""

    _managed_ledger: ManagedLedger
    _cursor: Cursor
    _clock: Clock
    # Called with the single entries that were passed, or with None for everything up to the
    # mark-delete position.
    _on_passed: Callable[[list[EntryId] | None], None]
    # Entries that expired since the topic was loaded, and when the last ones did (Unix time; 0 for
    # never).
    expired: int = field(default=0, init=False)
    last_expired_ms: int = field(default=0, init=False)
    # Made with the first expired entry: most subscriptions never have one.
    expiry_meter: Meter | None = field(default=None, init=False)

    # Skipping

    async def entries(self, count: int) -> None:
        """Pass the next ``count`` entries of the backlog; all if it has fewer."""
        if count > 0:
            # Acknowledged entries in between do not count: ``count`` is of the backlog.
            chain = self._managed_ledger.chain
            last = nth_unacknowledged(self._cursor.acknowledged, chain, count)
            await self._pass(last or chain.last_confirmed)

    async def everything(self) -> None:
        """Pass all entries that are in the log now."""
        await self._pass(self._managed_ledger.chain.last_confirmed)

    async def _pass(self, position: Position) -> None:
        if self._cursor.acknowledged.acknowledge_upto(position):
            durable = DurableFuture()
            self._cursor.changed(durable)
            # Not after the write: consumers must not be sent meanwhile what was skipped.
            self._on_passed(None)
            await durable

    # Expiry

    async def expire_upto(self, position: Position) -> int:
        """Pass everything up to ``position`` as expired; return how many entries that are, once the
        cursor is durable."""
        durable = DurableFuture()
        count = self.expire_at_once(position, durable)
        if count:
            await durable
        return count

    def expire_at_once(self, position: Position, on_durable: OnDurable | None = None) -> int:
        """``expire_upto`` without waiting."""
        # Counted by the difference: the positions passed may have been acknowledged one by one.
        before = self._cursor.backlog_entries
        if not self._cursor.acknowledged.acknowledge_upto(position):
            return 0
        # Entries that were acknowledged before do not count as expired.
        count = before - self._cursor.backlog_entries
        self._cursor.changed(on_durable)
        self._count_expired(count)
        self._on_passed(None)
        return count

    def expire_entries(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """Pass single entries as expired; acknowledged ones change nothing."""
        acknowledge = self._cursor.acknowledged.acknowledge
        # Not made durable at once: if the broker crashes, the next owner expires them again.
        expired = [(ledger_id, each) for each in entry_ids if acknowledge(ledger_id, each)]
        if expired:
            self._cursor.changed()
            self._count_expired(len(expired))
            self._on_passed(expired)

    def _count_expired(self, count: int) -> None:
        if self.expiry_meter is None:
            self.expiry_meter = Meter(None, 0)
        self.expired += count
        self.last_expired_ms = self._clock.wall_ms()

    async def expire_older_than(self, age_s: float) -> int:
        """Expire what was published more than ``age_s`` ago; return how many entries.

        Reads a few entries. Raises ``StorageUnavailable``.
        """
        time_ms = self._clock.wall_ms() - int(age_s * 1000)
        # Entry times grow with positions, up to differences between publishers' clocks, so that a
        # binary search finds the first entry to keep.
        mark = self._cursor.mark_delete
        if mark >= self._managed_ledger.chain.last_confirmed:
            return 0
        first_kept = await self._managed_ledger.reader.first_where(
            lambda payload: entry_time_ms(payload) >= time_ms, after=mark
        )
        return await self.expire_upto(self._managed_ledger.chain.previous_of(first_kept))
