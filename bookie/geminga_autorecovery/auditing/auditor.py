"""The auditor's work: notices lost bookies, and marks the ledgers that lack copies.

Two kinds of work go on side by side as long as this daemon is elected. One task watches which
bookies are registered: when bookies are lost, and at long intervals, an *audit* compares the
metadata of all ledgers with the bookies there are, and marks every ledger on a missing one. At
longer intervals the *periodic checks* look at every ledger itself (``periodic_checks``), a task for
each kind. Facts: ``Auditor`` and ``AuditorBookieCheckTask`` of Apache BookKeeper.
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
from geminga_autorecovery.zookeeper.children import children_of
from geminga_autorecovery.zookeeper.ledger_list import ledger_directories, ledgers_in, visit_all
from geminga_autorecovery.zookeeper.live_bookies import read_live_bookies
from geminga_autorecovery.zookeeper.underreplication_marks import (
    UnderreplicationMarks,
    prepare_underreplication,
)
from geminga_autorecovery.zookeeper.watches import Watches
from geminga_ledger.errors import LedgerError, NoSuchLedger
from geminga_ledger.metadata.store import StoredMetadata
from geminga_protocol.errors import WireError
from geminga_protocol.records.bookies.cookies import COOKIES_PATH
from geminga_protocol.records.ledgers.underreplication import DISABLED_PATH, LOST_BOOKIE_DELAY_PATH
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
        self.counters = counters = AuditorCounters()
        self._coordination = coordination
        self._clock = clock
        self._repair = repair
        self._config = config
        # In their own order and time: one that takes hours must not keep the others waiting.
        self._checks: tuple[PeriodicCheck, ...] = (
            ReadingCheck(
                repair,
                counters,
                interval_s=config.auditor_periodic_check_interval_s,
                at_once_max=config.ledger_checks_max,
            ),
            ReplicasCheck(
                repair,
                counters,
                interval_s=config.auditor_periodic_replicas_check_interval_s,
                at_once_max=config.ledger_checks_max,
            ),
            PlacementCheck(
                repair,
                counters,
                interval_s=config.auditor_periodic_placement_policy_check_interval_s,
                at_once_max=config.metadata_reads_max,
            ),
        )
        self._marks = UnderreplicationMarks(coordination, clock)
        # Only the task of the audits uses watches: the checks sleep until they are due.
        self._watches = Watches(coordination)
        # Which bookies are missing, and when that is acted on. New with each term.
        self._lost = LostBookies(frozenset())
        # By the clock: when the regular audit is due.
        self._next_audit_s = 0.0
        # The grace of lost bookies in ZooKeeper: its node's version, and what it says.
        self._delay_version: int | None = None
        self._delay_s = config.lost_bookie_recovery_delay_s

    async def run(self) -> None:
        """Watch, audit and check until cancelled."""
        # What was known in an earlier term is of no use: bookies may have come and gone since.
        self._lost = LostBookies(frozenset())
        # Another auditor may have died in the middle of an audit: begin with one.
        self._next_audit_s = self._clock.monotonic()
        self._delay_version = None
        # Nothing is watched or checked before the bookies of the cookies are known: a bookie that
        # was lost before this term would otherwise never have been seen, and not be missed.
        await self._persist(self._begin)
        # An error that none of them expects ends the term; the election begins another. When
        # ``run`` is cancelled, all tasks are: no check of an earlier term goes on.
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._watch_once), name="auditor: bookies")
            for check in self._checks:
                if check.interval_s:
                    work = partial(self._check_once, check)
                    group.create_task(self._repeat(work), name=f"auditor: {type(check).__name__}")

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._persist(work)

    async def _persist(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, again and again until it does not fail."""
        while True:
            try:
                await work()
            # Begun anew, work goes through all ledgers again: those that are marked already are
            # marked once more, which does no harm.
            except (CoordinationError, LedgerError, WireError) as error:
                log.warning("auditor tries again later", extra={"error": str(error)})
                await asyncio.sleep(self._config.retry_s)
            else:
                return

    async def _begin(self) -> None:
        """Learn of every bookie that has a cookie, also of those lost before this term."""
        # The parent nodes and the layout, which other daemons refuse to work without (upstream:
        # ``LedgerUnderreplicationManager``).
        await prepare_underreplication(self._coordination)
        await controls.initialize_lost_bookie_delay(
            self._coordination, self._config.lost_bookie_recovery_delay_s
        )
        # A cookie stays until its bookie is decommissioned, so that all bookies that may be in an
        # ensemble have one. The registered ones alone would hide those that are down now.
        known = await children_of(self._coordination.children, COOKIES_PATH)
        self._lost = LostBookies(frozenset(known))
        # Before any check begins: it waits while a lost bookie is in its grace.
        await self._observe()

    # --- audits: the metadata are compared with the registered bookies ------------------------

    async def _watch_once(self) -> None:
        """Read which bookies are registered; then audit if that is due, or wait for a change."""
        # Called before anything is read in this turn: what changes after it was read ends the wait
        # below at once.
        self._watches.begin()
        # The node switches all of auto-recovery off (upstream: ``bookkeeper shell autorecovery
        # -disable``).
        if await self._watches.exists(DISABLED_PATH) is not None:
            await self._watches.wait(self._config.rescan_interval_s)
            return
        await self._observe()
        now_s = self._clock.monotonic()
        # While a lost bookie is in its grace, a regular audit would mark its ledgers too early.
        due_s = self._lost.audit_at_s if self._lost.audit_at_s is not None else self._next_audit_s
        # After an audit the next turn begins without a wait, as bookies may have come and gone
        # meanwhile.
        if due_s <= now_s:
            await self._audit()
            return
        # The wait ends when a bookie comes or goes, the switch or the grace changes, or an audit is
        # due.
        await self._watches.wait(min(due_s - now_s, self._config.rescan_interval_s))

    async def _observe(self) -> None:
        """Read, and watch, the registered bookies and the grace of lost ones."""
        now_s = self._clock.monotonic()
        try:
            value, stat = await self._watches.get(LOST_BOOKIE_DELAY_PATH)
        except NodeMissing:
            pass
        else:
            before_s, version = self._delay_s, self._delay_version
            self._delay_s = controls.lost_bookie_delay_of(
                value, self._config.lost_bookie_recovery_delay_s
            )
            self._delay_version = stat.version
            # By the version: writing the same grace again asks for an audit at once.
            if version is not None and version != stat.version:
                is_same = self._delay_s == before_s
                self._lost.delay_changed(self._delay_s, is_same=is_same, now_s=now_s)
        # Watched: a bookie that registers or is lost ends the wait of ``_watch_once``.
        live = await read_live_bookies(self._watches.children)
        self._lost.observe(live.all, delay_s=self._delay_s, now_s=now_s)
        # Both begin anew with each term, as ``_lost`` does.
        self.counters.audits_delayed = self._lost.delayed_count
        self.counters.audits_cancelled = self._lost.cancelled_count

    async def _audit(self) -> None:
        """Mark every ledger with a bookie in an ensemble that is not registered."""
        begun_s = self._clock.monotonic()
        log.info("audit begins", extra={"lost": sorted(self._lost.lost)})
        # Read once: a bookie that is lost during the audit is found by the next one.
        live = (await read_live_bookies(self._coordination.children)).all

        async def visit(ledger_id: int) -> None:
            try:
                stored = await self._repair.store.read(ledger_id)
            except LedgerError as error:
                self._skip(ledger_id, error)
                return
            # Open ledgers are marked too: whether one is taken from its writer, the worker decides.
            await self._mark(stored, bookies_of(stored.metadata) - live)

        # Broken off, the audit is still due: the lost bookies stay lost.
        if await self._visit_ledgers(visit, at_once_max=self._config.metadata_reads_max):
            # Noted after the last mark: an auditor that dies before leaves the loss to the next
            # one, which begins with an audit.
            self._lost.audited(live)
            # 0 switches the regular audits off; losses are audited all the same.
            interval_s = self._config.auditor_periodic_bookie_check_interval_s or math.inf
            self._next_audit_s = self._clock.monotonic() + interval_s
            self.counters.audits += 1
            self.counters.audit_s += self._clock.monotonic() - begun_s

    # --- periodic checks: every ledger is looked at itself ------------------------------------

    async def _check_once(self, check: PeriodicCheck) -> None:
        """Wait until a check of all ledgers is due, and run it."""
        # Wait until the check is due; then until no bookie is in its grace and auto-recovery is on;
        # then visit all ledgers, and write down when that was done. The last run may have been
        # another daemon's, or before a restart of this one.
        last_ms = await controls.last_check_ms(self._coordination, check.last_check)
        wait_s = 0.0
        if last_ms is not None:
            since_s = (self._clock.wall_ms() - last_ms) / MS_PER_S
            # A time that lies ahead was written by a clock that goes wrong, or ours does. Unix
            # time, as the last run may have been on another machine; only the pause is monotonic.
            wait_s = max(check.interval_s - max(since_s, 0.0), 0.0)
        await asyncio.sleep(wait_s)
        while self._lost.audit_at_s is not None or not await controls.is_enabled(
            self._coordination
        ):
            # A lost bookie is in its grace: the check would mark its ledgers now.
            self.counters.checks_skipped += 1
            await asyncio.sleep(self._config.rescan_interval_s)
        begun_s = self._clock.monotonic()
        await check.begin()

        async def visit(ledger_id: int) -> None:
            try:
                stored = await self._repair.store.read(ledger_id)
                missing = await check.visit(stored)
            except LedgerError as error:
                self._skip(ledger_id, error)
                return
            await self._mark(stored, missing)

        if await self._visit_ledgers(visit, at_once_max=check.at_once_max):
            now_ms = self._clock.wall_ms()
            # Only a whole run counts: one that was broken off begins anew with the next attempt.
            await controls.set_last_check(self._coordination, now_ms, check.last_check)
            check.finish(self._clock.monotonic() - begun_s)
        else:
            await asyncio.sleep(self._config.rescan_interval_s)

    # --- both ---------------------------------------------------------------------------------

    async def _visit_ledgers(
        self, visit: Callable[[int], Awaitable[None]], *, at_once_max: int
    ) -> bool:
        """Visit all ledgers; False where auto-recovery was switched off meanwhile."""
        for directory in await ledger_directories(self._coordination):
            # A directory is 10,000 ledgers at most: often enough to notice the switch.
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
            # The workers watch the marks: the first that claims the ledger begins at once.
            await self._marks.mark(stored.ledger_id, missing)
            self.counters.ledgers_marked += 1
            # The whole ledger, although only some of its copies may be missing: an upper bound of
            # the work.
            self.counters.marked_bytes += stored.metadata.length

    def _skip(self, ledger_id: int, error: LedgerError) -> None:
        # A ledger that was deleted since it was listed is no matter.
        if not isinstance(error, NoSuchLedger):
            log.warning("ledger not checked", extra={"ledger": ledger_id, "error": str(error)})
