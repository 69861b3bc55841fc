"""The auditor's work: notices lost bookies, and marks the ledgers that lack copies.

Several things go on side by side, for as long as this process is elected. Bookies are watched;
those that stay away are looked for in the metadata of all ledgers, and so are those that nobody
knew, at long intervals (the audit). At longer intervals every ledger is looked at itself
(``periodic_checks``). Facts: ``Auditor`` and ``AuditorBookieCheckTask`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial

from geminga_autorecovery.auditing.periodic_checks import (
    PeriodicCheck,
    PlacementCheck,
    ReadingCheck,
    ReplicasCheck,
)
from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.counters import AuditorCounters
from geminga_autorecovery.decisions.fragments import bookies_of
from geminga_autorecovery.decisions.lost_bookies import LostBookies
from geminga_autorecovery.replication.repair import LedgerRepair
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.ledger_listing import ledger_directories, ledgers_in, visit_all
from geminga_autorecovery.zookeeper.live_bookies import read_live_bookies
from geminga_autorecovery.zookeeper.underreplication_marks import (
    UnderreplicationMarks,
    prepare_underreplication,
)
from geminga_autorecovery.zookeeper.watches import Watches
from geminga_ledger.errors import LedgerError, NoSuchLedger
from geminga_ledger.metadata.store import StoredMetadata
from geminga_protocol.errors import WireError
from geminga_protocol.records.cookies import COOKIES_PATH
from geminga_protocol.records.underreplication import DISABLED_PATH, LOST_BOOKIE_DELAY_PATH
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination, CoordinationError, NodeMissing

log = logging.getLogger(__name__)

MS_PER_S = 1000


class Auditor:
    """One auditor, for one or more terms of office; ``run`` is a term."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        repair: LedgerRepair,
        config: AutoRecoveryConfig,
    ) -> None:
        self.counters = AuditorCounters()
        self._coordination = coordination
        self._clock = clock
        self._repair = repair
        self._config = config
        self._checks: tuple[PeriodicCheck, ...] = (
            ReadingCheck(repair, config, self.counters),
            ReplicasCheck(repair, config, self.counters),
            PlacementCheck(repair, config, self.counters),
        )
        self._marks = UnderreplicationMarks(coordination, clock)
        self._watches = Watches(coordination)
        self._lost = LostBookies(frozenset())
        self._next_audit_s = 0.0
        self._delay_version: int | None = None
        self._delay_s = config.lost_bookie_recovery_delay_s

    async def run(self) -> None:
        """Watch, audit and check until cancelled."""
        self._lost = LostBookies(frozenset())
        self._next_audit_s = self._clock.monotonic()
        self._delay_version = None
        await self._persist(self._begin)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(self._watch_once), name="auditor: bookies")
            for check in self._checks:
                if check.interval_s:
                    work = partial(self._check_once, check)
                    group.create_task(self._keep(work), name=f"auditor: {type(check).__name__}")

    async def _keep(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._persist(work)

    async def _persist(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it until it does not fail."""
        while True:
            try:
                await work()
            except (CoordinationError, LedgerError, WireError) as error:
                log.warning("auditor tries again later", extra={"error": str(error)})
                await asyncio.sleep(self._config.retry_s)
            else:
                return

    async def _begin(self) -> None:
        """Know every bookie that has a cookie, also those that were lost before this term."""
        await prepare_underreplication(self._coordination)
        await controls.initialize_lost_bookie_delay(
            self._coordination, self._config.lost_bookie_recovery_delay_s
        )
        try:
            known = await self._coordination.children(COOKIES_PATH)
        except NodeMissing:
            known = []
        self._lost = LostBookies(frozenset(known))
        # Before anything is checked it must be known who is being waited for.
        await self._observe()

    # --- the audit: lost bookies --------------------------------------------------------------

    async def _watch_once(self) -> None:
        """Look at the bookies there are, audit if it is time, and wait for a change."""
        self._watches.begin()
        if await self._watches.exists(DISABLED_PATH) is not None:
            await self._watches.wait(self._config.rescan_interval_s)
            return
        await self._observe()
        now_s = self._clock.monotonic()
        if self._audit_due_s() <= now_s:
            await self._audit()
            return
        wait_s = min(self._audit_due_s() - now_s, self._config.rescan_interval_s)
        await self._watches.wait(wait_s)

    def _audit_due_s(self) -> float:
        """When the next audit is; the regular one waits for one that a lost bookie put off."""
        if self._lost.audit_at_s is not None:
            return self._lost.audit_at_s
        return self._next_audit_s

    async def _observe(self) -> None:
        now_s = self._clock.monotonic()
        await self._read_delay(now_s)
        live = await read_live_bookies(self._watches.children)
        self._lost.observe(live.all, delay_s=self._delay_s, now_s=now_s)
        self.counters.audits_delayed = self._lost.delayed_count
        self.counters.audits_cancelled = self._lost.cancelled_count

    async def _read_delay(self, now_s: float) -> None:
        """Notice that somebody wrote the grace of lost bookies anew, be it to the same."""
        try:
            value, stat = await self._watches.get(LOST_BOOKIE_DELAY_PATH)
        except NodeMissing:
            return
        before_s, version = self._delay_s, self._delay_version
        self._delay_s = controls.lost_bookie_delay_of(
            value, self._config.lost_bookie_recovery_delay_s
        )
        self._delay_version = stat.version
        if version is not None and version != stat.version:
            self._lost.delay_changed(self._delay_s, is_same=self._delay_s == before_s, now_s=now_s)

    async def _audit(self) -> None:
        """Mark every ledger with a bookie in an ensemble that is not registered."""
        begun_s = self._clock.monotonic()
        log.info("audit begins", extra={"lost": sorted(self._lost.lost)})
        live = (await read_live_bookies(self._coordination.children)).all

        async def visit(ledger_id: int) -> None:
            try:
                stored = await self._repair.store.read(ledger_id)
            except LedgerError as error:
                self._skip(ledger_id, error)
                return
            await self._mark(stored, bookies_of(stored.metadata) - live)

        if await self._visit_ledgers(visit, at_once_max=self._config.metadata_reads_max):
            self._lost.audited(live)
            interval_s = self._config.auditor_periodic_bookie_check_interval_s or math.inf
            self._next_audit_s = self._clock.monotonic() + interval_s
            self.counters.audits += 1
            self.counters.audit_s += self._clock.monotonic() - begun_s

    # --- the checks: every ledger is looked at ------------------------------------------------

    async def _check_once(self, check: PeriodicCheck) -> None:
        """Wait until all ledgers are to be checked again, and check them."""
        await asyncio.sleep(await self._until_check_s(check))
        while self._lost.audit_at_s is not None or not await controls.is_enabled(
            self._coordination
        ):
            # What the lost bookies have would be marked now, though they are being waited for.
            self.counters.checks_skipped += 1
            await asyncio.sleep(self._config.rescan_interval_s)
        begun_s = self._clock.monotonic()
        await check.begin()
        visit = partial(self._check, check)
        if await self._visit_ledgers(visit, at_once_max=check.at_once_max):
            await controls.set_last_check(self._coordination, self._clock.wall_ms(), check.last)
            check.finish(self._clock.monotonic() - begun_s)
        else:
            await asyncio.sleep(self._config.rescan_interval_s)

    async def _until_check_s(self, check: PeriodicCheck) -> float:
        last_ms = await controls.last_check_ms(self._coordination, check.last)
        if last_ms is None:
            return 0.0
        since_s = (self._clock.wall_ms() - last_ms) / MS_PER_S
        # A time that lies ahead was written by a clock that goes wrong, or ours does.
        return max(check.interval_s - max(since_s, 0.0), 0.0)

    async def _check(self, check: PeriodicCheck, ledger_id: int) -> None:
        try:
            stored = await self._repair.store.read(ledger_id)
            missing = await check.visit(stored)
        except LedgerError as error:
            self._skip(ledger_id, error)
            return
        await self._mark(stored, missing)

    # --- both ---------------------------------------------------------------------------------

    async def _visit_ledgers(
        self, visit: Callable[[int], Awaitable[None]], *, at_once_max: int
    ) -> bool:
        """Visit all ledgers; False where somebody switched auto-recovery off meanwhile."""
        for directory in await ledger_directories(self._coordination):
            if not await controls.is_enabled(self._coordination):
                return False
            ledger_ids = await ledgers_in(self._coordination, directory)
            await visit_all(ledger_ids, visit, at_once_max=at_once_max)
        return True

    async def _mark(self, stored: StoredMetadata, missing: frozenset[str]) -> None:
        if missing:
            log.info(
                "ledger is under-replicated",
                extra={"ledger": stored.ledger_id, "missing": sorted(missing)},
            )
            await self._marks.mark(stored.ledger_id, missing)
            self.counters.ledgers_marked += 1
            self.counters.marked_bytes += stored.metadata.length

    def _skip(self, ledger_id: int, error: LedgerError) -> None:
        if not isinstance(error, NoSuchLedger):
            log.warning("ledger not checked", extra={"ledger": ledger_id, "error": str(error)})
