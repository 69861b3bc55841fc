"""Letting a subscription pass messages that nobody has acknowledged: skipped, cleared, expired.

Consumers stay: what they hold of it counts as acknowledged, what they were not sent is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from geminga_broker.managed_ledger.cursor import Cursor, OnDurable
from geminga_broker.managed_ledger.durable import Durable
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.payloads import entry_time_ms
from geminga_broker.managed_ledger.positions import EntryId, Position
from geminga_broker.managed_ledger.unacknowledged import nth_unacknowledged
from geminga_runtime.clock import Clock
from geminga_server.metrics import Meter


class MessageSkipper:
    """Moves ``cursor`` on; ``on_passed`` is called when it was, with the single entries that were
    acknowledged or None for everything up to its mark-delete position.

    ``expired`` counts entries that grew too old since the topic was loaded; ``last_expired_ms`` is
    when that was last looked for and found, 0 for never; the meter is made with the first of them.
    """

    def __init__(
        self,
        managed_ledger: ManagedLedger,
        cursor: Cursor,
        clock: Clock,
        on_passed: Callable[[list[EntryId] | None], None],
    ) -> None:
        self.expired = 0
        self.last_expired_ms = 0
        self.expiry_meter: Meter | None = None
        self._managed_ledger = managed_ledger
        self._cursor = cursor
        self._clock = clock
        self._on_passed = on_passed

    @property
    def expiry_rate(self) -> float:
        """How many entries a second grow too old."""
        return 0.0 if self.expiry_meter is None else self.expiry_meter.rates[0]

    def tick(self, now_s: float, period_s: float) -> None:
        """Once a stats period: renew that rate."""
        if self.expiry_meter is not None:
            self.expiry_meter.tick(now_s, self.expired, period_s=period_s)

    async def entries(self, count: int) -> None:
        """Pass the next ``count`` entries of the backlog, all where it has fewer."""
        if count > 0:
            chain = self._managed_ledger.chain
            last = nth_unacknowledged(self._cursor.acknowledged, chain, count)
            await self._pass(last or chain.last_confirmed)

    async def everything(self) -> None:
        """Pass all there is now."""
        await self._pass(self._managed_ledger.chain.last_confirmed)

    async def expire_upto(self, position: Position) -> int:
        """Pass everything up to ``position``, as expired; how many entries that are."""
        durable = Durable()
        count = self.expire_at_once(position, durable)
        if count:
            await durable.wait()
        return count

    def expire_at_once(self, position: Position, on_durable: OnDurable | None = None) -> int:
        """The same without waiting until it is durable."""
        before = self._cursor.backlog_entries
        if self._cursor.acknowledged.acknowledge_upto(position):
            count = before - self._cursor.backlog_entries
            self._cursor.changed(on_durable)
            self._count_expired(count)
            self._on_passed(None)
            return count
        return 0

    def expire_entries(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """Pass single entries, as expired; those acknowledged already change nothing."""
        acknowledge = self._cursor.acknowledged.acknowledge
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

    async def expire_before(self, time_ms: int) -> int:
        """Expire what was published before ``time_ms`` (Unix time); how many entries that are.

        Reads a few entries. Raises ``StorageUnavailable``.
        """
        mark = self._cursor.mark_delete
        if mark >= self._managed_ledger.chain.last_confirmed:
            return 0
        first_kept = await self._managed_ledger.reader.first_where(
            lambda payload: entry_time_ms(payload) >= time_ms, after=mark
        )
        return await self.expire_upto(self._managed_ledger.chain.previous_of(first_kept))

    async def expire_older_than(self, age_s: float) -> int:
        """The same for what is older than ``age_s`` now."""
        return await self.expire_before(self._clock.wall_ms() - int(age_s * 1000))

    async def _pass(self, position: Position) -> None:
        if self._cursor.acknowledged.acknowledge_upto(position):
            durable = Durable()
            self._cursor.changed(durable)
            self._on_passed(None)
            await durable.wait()
