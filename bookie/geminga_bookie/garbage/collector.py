"""Garbage collection: forgets ledgers that are gone, gives entry logs back that hold mostly such.

``garbage`` decides, ``ledger_deletion`` asks ZooKeeper which ledgers are gone, ``compaction``
empties logs; this has them act, one round at a time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from geminga_bookie.config import GarbageConfig
from geminga_bookie.decisions.garbage import (
    CompactionKind,
    RoundPlanner,
    dead_logs,
    has_room,
    is_worth_leaving,
    logs_to_compact,
)
from geminga_bookie.errors import CorruptFile
from geminga_bookie.formats.index_v2 import LogUsage
from geminga_bookie.garbage.compaction import Compactor
from geminga_bookie.garbage.ledger_deletion import LedgerDeletion
from geminga_bookie.storage.checkpoint import READ_ONLY_REASON, Checkpointer
from geminga_bookie.storage.storage import Storage
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# So many entry logs are named in one line of the log.
LOGS_NAMED_MAX = 20


@dataclass(slots=True)
class CollectionTotals:
    """What was collected since the start, under BookKeeper's words for it.

    When a compaction ended last is Unix time; at first, as upstream, when the bookie started.
    """

    deleted_ledgers: int = 0
    minor_compactions: int = 0
    major_compactions: int = 0
    reclaimed_by_deletion_bytes: int = 0
    reclaimed_by_compaction_bytes: int = 0
    failures: int = 0
    last_minor_ms: int = 0
    last_major_ms: int = 0


class Collector(Service):
    """Collects garbage in the background every ``limits.gc_interval_s``, and when it is told to.

    While a full disk keeps the bookie read-only, every ``gc_full_disk_interval_s``; each time
    the log is told of it, and what helps.

    ``instance_id`` is the cluster's, as it stands in the bookie's cookie. ``may_minor`` and
    ``may_major`` may be set to False while a disk is (nearly) full, ``is_disk_full`` to True: then
    each round gives back what it can, where the copies easily find room. ``suspended`` are the
    compactions that somebody ordered to wait until the opposite order, or a restart.
    """

    def __init__(
        self,
        limits: GarbageConfig,
        storage: Storage,
        checkpointer: Checkpointer,
        compactor: Compactor,
        *,
        coordination: Coordination,
        clock: Clock,
        bookie_id: str,
        instance_id: str,
    ) -> None:
        super().__init__()
        self._limits = limits
        self._storage = storage
        self._checkpointer = checkpointer
        self._compactor = compactor
        self._clock = clock
        self._bookie_id = bookie_id
        self._deletion = LedgerDeletion(
            storage,
            checkpointer,
            coordination,
            bookie_id=bookie_id,
            instance_id=instance_id,
            fences_kept_s=limits.gc_fences_kept_s,
            on_deleted=self._ledgers_deleted,
        )
        self._rounds = RoundPlanner(limits, clock.monotonic())
        self._is_wanted = asyncio.Event()
        self._running = asyncio.Lock()
        # Logs with a block that cannot be copied: left alone, so that what can be read stays.
        self._damaged_logs: set[int] = set()
        # Logs that stay because a disk lacks room, of one round, with what is of use in them.
        self._unfit_logs: dict[int, int] = {}
        self._told_full_s = -limits.gc_full_disk_interval_s
        self.may_minor = True
        self.may_major = True
        self.is_disk_full = False
        self.suspended: set[CompactionKind] = set()
        self.is_forced = False
        self.compaction = CompactionKind.NONE
        self.collected = CollectionTotals(
            last_minor_ms=clock.wall_ms(), last_major_ms=clock.wall_ms()
        )

    async def _open(self, stack: AsyncExitStack) -> None:  # noqa: ARG002 nothing to close
        self.spawn_lasting(self._run_when_wanted, name="garbage collection")

    def request(self) -> None:
        """Begin a round soon, in the background: only deleted ledgers and what else is due."""
        self._is_wanted.set()

    async def force(self, *, is_minor: bool = True, is_major: bool = True) -> None:
        """Run a round now that does all it can, due or not, and wait for its end.

        Raises ``CoordinationError``, ``StrangeCluster``, ``OSError``, ``TimeoutError``.
        """
        self.is_forced = True
        try:
            await self.run(
                is_forced=True,
                may_minor=is_minor and self.may_minor,
                may_major=is_major and self.may_major,
            )
        finally:
            self.is_forced = False

    async def _run_when_wanted(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._pause_s):
                    await self._is_wanted.wait()
            except TimeoutError:
                pass
            self._is_wanted.clear()
            try:
                self._tell_full()
                await self.run(
                    is_forced=False,
                    may_minor=self.may_minor and CompactionKind.MINOR not in self.suspended,
                    may_major=self.may_major and CompactionKind.MAJOR not in self.suspended,
                )
            except (GemingaError, OSError, TimeoutError) as error:
                self.collected.failures += 1
                log.warning("garbage not collected this time", extra={"error": repr(error)})

    @property
    def _is_starved(self) -> bool:
        """Whether the bookie takes no adds until something is deleted."""
        return self.is_tight and self._storage.is_read_only

    @property
    def _pause_s(self) -> float | None:
        """How long to wait for the next round; None: until it is asked for."""
        interval_s = self._limits.gc_interval_s or None
        if not self._is_starved:
            return interval_s
        return min(self._limits.gc_full_disk_interval_s, interval_s or math.inf)

    def _tell_full(self) -> None:
        """Say for as long as it lasts what helps, but no more often than it is looked for."""
        now_s = self._clock.monotonic()
        if self._is_starved and now_s - self._told_full_s >= self._limits.gc_full_disk_interval_s:
            self._told_full_s = now_s
            log.warning(
                "the disk is full and the bookie takes no adds: delete topics; their room comes "
                "back when garbage is collected next, or at once with this command",
                extra={
                    "next_in_s": self._limits.gc_full_disk_interval_s,
                    "command": f"geminga bookie-admin force-gc {self._bookie_id}",
                    "free_bytes": self._storage.entry_log.free_bytes,
                },
            )

    async def run(self, *, is_forced: bool, may_minor: bool, may_major: bool) -> None:
        """One round. Raises as ``force``; what was done till then is done."""
        async with self._running:
            due = self._rounds.next(
                self._clock.monotonic(),
                is_forced=is_forced,
                may_minor=may_minor,
                may_major=may_major,
            )
            try:
                await self._deletion.run(
                    is_over_replication_due=due.is_over_replication_due,
                    with_unwritten=self.is_tight,
                )
            except Exception:
                # What was garbage before needs no ZooKeeper. Not when the bookie closes: an error
                # of this would take the place of the cancellation, and the collector would go on.
                await self._remove_dead_logs()
                raise
            await self._remove_dead_logs()
            self.compaction = due.compaction
            self._unfit_logs.clear()
            try:
                await self._compact(self._rounds.threshold(due.compaction))
                if self.is_tight and CompactionKind.MAJOR not in self.suspended:
                    await self._squeeze()
            finally:
                self.compaction = CompactionKind.NONE
                self._tell_unfit()
            self._count_compaction(due.compaction)

    def _ledgers_deleted(self, count: int) -> None:
        self.collected.deleted_ledgers += count

    def _count_compaction(self, compaction: CompactionKind) -> None:
        if compaction is CompactionKind.MINOR:
            self.collected.minor_compactions += 1
            self.collected.last_minor_ms = self._clock.wall_ms()
        elif compaction is CompactionKind.MAJOR:
            self.collected.major_compactions += 1
            self.collected.last_major_ms = self._clock.wall_ms()

    @property
    def is_tight(self) -> bool:
        """Whether a disk lacks room, by its measure or since it refused a checkpoint."""
        return self.is_disk_full or READ_ONLY_REASON in self._storage.read_only_reasons

    # Entry logs.

    async def _remove_dead_logs(self) -> None:
        async with self._checkpointer.lock:
            numbers = self._storage.entry_log.numbers
            end = self._storage.index.log_end()
            dead = dead_logs(numbers, self._storage.index.logs, end.log_number if end else 0)
        reclaimed_bytes, failure = await self._reclaim_all(dead)
        self.collected.reclaimed_by_deletion_bytes += reclaimed_bytes
        if failure is not None:
            raise failure

    async def _compact(self, threshold: float) -> None:
        end = self._storage.index.log_end()
        logs = self._storage.index.logs
        chosen = logs_to_compact(logs, end.log_number if end else 0, threshold)
        await self._reclaim_counted(chosen)

    async def _reclaim_counted(self, chosen: Sequence[int]) -> None:
        reclaimed_bytes, failure = await self._reclaim_all(chosen)
        self.collected.reclaimed_by_compaction_bytes += reclaimed_bytes
        if failure is not None:
            raise failure

    async def _squeeze(self) -> None:
        """Give back on a full disk what frees more than it takes, due or not.

        Even the log that is written to, where next to nothing in it is of use.
        """
        index = self._storage.index
        threshold = self._rounds.highest_threshold
        async with self._checkpointer.lock:
            end = index.log_end()
            if end is None:
                return
            before = end.log_number
            if is_worth_leaving(index.logs.get(before, LogUsage()), threshold):
                self._storage.entry_log.begin_anew()
                before += 1
            dead = dead_logs(self._storage.entry_log.numbers, index.logs, before)
        await self._reclaim_counted(dead)
        await self._reclaim_counted(logs_to_compact(index.logs, before, threshold))

    async def _reclaim_all(self, numbers: Sequence[int]) -> tuple[int, OSError | None]:
        """Give logs back; returns how many bytes that freed, and the first failure.

        One log that cannot be read now does not keep the others from being given back.
        """
        reclaimed_bytes = 0
        failure: OSError | None = None
        for number in numbers:
            if number in self._damaged_logs:
                continue
            try:
                if self._has_room(number):
                    reclaimed_bytes += await self._reclaim(number)
            except OSError as error:
                failure = failure or error
        return reclaimed_bytes, failure

    def _has_room(self, number: int) -> bool:
        usage = self._storage.index.logs.get(number, LogUsage())
        free_bytes = self._storage.entry_log.free_bytes
        if not usage.live_bytes or has_room(usage, free_bytes):
            return True
        self._unfit_logs[number] = usage.live_bytes
        return False

    def _tell_unfit(self) -> None:
        if self._unfit_logs:
            log.warning(
                "entry logs stay for now: no room for copies of what is of use in them",
                extra={
                    "logs": list(self._unfit_logs)[:LOGS_NAMED_MAX],
                    "count": len(self._unfit_logs),
                    "live_bytes": sum(self._unfit_logs.values()),
                    "free_bytes": self._storage.entry_log.free_bytes,
                },
            )

    async def _reclaim(self, number: int) -> int:
        try:
            return await self._compactor.reclaim(number)
        except CorruptFile as error:
            self._damaged_logs.add(number)
            log.error(  # noqa: TRY400 no trace: it is the file that is wrong
                "entry log is damaged and stays as it is; other replicas have what it lost",
                extra={"error": str(error)},
            )
            return 0
