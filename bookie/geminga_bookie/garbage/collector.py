"""Garbage collection, one round at a time: deleted ledgers first, then the logs they leave empty.

A round removes ledgers from the index that ZooKeeper does not know any more (``ledger_deletion``),
then the entry logs of which nothing is in use, then it compacts logs of which little is, if that is
due. What is due is decided in ``decisions.garbage``.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import AsyncExitStack

from geminga_bookie.config import GarbageConfig
from geminga_bookie.counters import CollectionTotals
from geminga_bookie.decisions.garbage import (
    CompactionKind,
    RoundPlanner,
    dead_logs,
    has_room,
    is_worth_leaving,
    logs_to_compact,
)
from geminga_bookie.errors import CorruptFile, UnknownFormat
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


class Collector(Service):
    """Runs rounds in the background every ``limits.gc_interval_s``, and on request.

    While a full disk keeps the bookie read-only, rounds come every ``gc_full_disk_interval_s``, and
    each time our log says what helps: only deleting topics does.

    ``instance_id`` is the cluster's, as the bookie's cookie has it.
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
        # May be set to False while a disk is full, or nearly: compaction needs room for copies.
        self.may_minor = True
        self.may_major = True
        # May be set to True: then each round gives back what it can, where the copies easily find
        # room, due or not.
        self.is_disk_full = False
        # Compactions that an operator turned off, until the opposite order or a restart. Forced
        # rounds do not look at this: their order says which compactions they do.
        self.suspended: set[CompactionKind] = set()
        # A round that was forced is under way; the compaction that is.
        self.is_forced = False
        self.compaction = CompactionKind.NONE
        self.collected = CollectionTotals(
            last_minor_ms=clock.wall_ms(), last_major_ms=clock.wall_ms()
        )
        self._deletion = LedgerDeletion(
            storage,
            checkpointer,
            coordination,
            bookie_id=bookie_id,
            instance_id=instance_id,
            fences_kept_s=limits.gc_fences_kept_s,
            totals=self.collected,
        )
        # It is asked once for each round, and remembers what it has planned.
        self._planner = RoundPlanner(limits, clock.monotonic())
        self._is_wanted = asyncio.Event()
        # One round at a time, of those that are due, requested and forced.
        self._running = asyncio.Lock()
        # Logs with a block that cannot be copied: left alone, so that what can be read stays.
        self._damaged_logs: set[int] = set()
        # Logs that this round left because a disk lacks room for copies, and the bytes in use.
        self._unfit_logs: dict[int, int] = {}
        # When our log said last that the disk is full.
        self._reported_full_s = -limits.gc_full_disk_interval_s

    async def _open(self, stack: AsyncExitStack) -> None:  # noqa: ARG002 nothing to close
        self.spawn_lasting(self._run_when_wanted, name="garbage collection")

    @property
    def is_tight(self) -> bool:
        """Whether a disk lacks room, by its measure or because it refused a checkpoint."""
        return self.is_disk_full or READ_ONLY_REASON in self._storage.read_only_reasons

    def request(self) -> None:
        """Begin a round soon, in the background: deleted ledgers, and what else is due."""
        self._is_wanted.set()

    async def force(self, *, is_minor: bool = True, is_major: bool = True) -> None:
        """Run a round now that does all it can, due or not, and wait for its end.

        Raises ``CoordinationError``, ``StrangeCluster``, ``OSError``, ``TimeoutError``.
        """
        self.is_forced = True
        try:
            await self.run(
                is_forced=True,
                # Forced or not, there must be room for the copies.
                may_minor=is_minor and self.may_minor,
                may_major=is_major and self.may_major,
            )
        finally:
            self.is_forced = False

    async def _run_when_wanted(self) -> None:
        limits = self._limits
        while True:
            # Without an interval, rounds are only requested. The pause is worked out anew each
            # time: a disk may have become full, or have been freed.
            pause_s = limits.gc_interval_s or None
            if self.is_tight and self._storage.is_read_only:
                pause_s = min(limits.gc_full_disk_interval_s, pause_s or math.inf)
            try:
                async with asyncio.timeout(pause_s):
                    await self._is_wanted.wait()
            except TimeoutError:
                pass
            # Cleared before the round: a request that comes during it gets another round.
            self._is_wanted.clear()
            try:
                # Reported before the round, which may take minutes.
                self._report_full()
                await self.run(
                    is_forced=False,
                    may_minor=self.may_minor and CompactionKind.MINOR not in self.suspended,
                    may_major=self.may_major and CompactionKind.MAJOR not in self.suspended,
                )
            # What was not done is due again after the next pause; every other error ends this loop,
            # which is then started again as lasting work.
            except (GemingaError, OSError, TimeoutError) as error:
                self.collected.failures += 1
                log.warning("garbage not collected this time", extra={"error": repr(error)})

    def _report_full(self) -> None:
        """Say what helps while a full disk keeps the bookie read-only, at most once an interval."""
        now_s = self._clock.monotonic()
        interval_s = self._limits.gc_full_disk_interval_s
        is_starved = self.is_tight and self._storage.is_read_only
        if is_starved and now_s - self._reported_full_s >= interval_s:
            self._reported_full_s = now_s
            log.warning(
                "the disk is full and the bookie takes no adds: delete topics; their room comes "
                "back when garbage is collected next, or at once with this command",
                extra={
                    "next_in_s": interval_s,
                    "command": f"geminga bookie-admin force-gc {self._bookie_id}",
                    "free_bytes": self._storage.entry_log.free_bytes,
                },
            )

    async def run(self, *, is_forced: bool, may_minor: bool, may_major: bool) -> None:
        """Run one round. Raises like ``force``; what was done until then is done."""
        # A round: plan it; delete ledgers, which frees no bytes yet; remove the logs that this
        # leaves empty; compact what is due, and on a full disk whatever helps.
        async with self._running:
            due = self._planner.next(
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
            # Before compaction: what these free is room for its copies.
            await self._remove_dead_logs()
            # Shown by the HTTP admin while it lasts.
            self.compaction = due.compaction
            self._unfit_logs.clear()
            try:
                index = self._storage.index
                end = index.log_end()
                threshold = self._planner.threshold(due.compaction)
                await self._reclaim(
                    logs_to_compact(index.logs, end.log_number if end else 0, threshold)
                )
                if self.is_tight and CompactionKind.MAJOR not in self.suspended:
                    await self._compact_full_disk()
            finally:
                self.compaction = CompactionKind.NONE
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
            # Only compactions that came to their end are counted.
            if due.compaction is CompactionKind.MINOR:
                self.collected.minor_compactions += 1
                self.collected.last_minor_ms = self._clock.wall_ms()
            elif due.compaction is CompactionKind.MAJOR:
                self.collected.major_compactions += 1
                self.collected.last_major_ms = self._clock.wall_ms()

    # Entry logs. The log that checkpoints append to is never given back here: ``end`` is its
    # number.

    async def _remove_dead_logs(self) -> None:
        """Give back the logs of which nothing is in use."""
        # Under the lock, so that the files, their usage and the end are of one moment.
        async with self._checkpointer.lock:
            numbers = self._storage.entry_log.numbers
            end = self._storage.index.log_end()
            dead = dead_logs(numbers, self._storage.index.logs, end.log_number if end else 0)
        await self._reclaim(dead, by_compaction=False)

    async def _compact_full_disk(self) -> None:
        """Give back, due or not, whatever frees more than its copies take.

        Even the current log, where next to nothing in it is in use.
        """
        index = self._storage.index
        threshold = self._planner.highest_threshold
        async with self._checkpointer.lock:
            end = index.log_end()
            if end is None:
                return
            before = end.log_number
            # The next block then begins a new file, and the log that was current is like the
            # others.
            if is_worth_leaving(index.logs.get(before, LogUsage()), threshold):
                # The lock is held, so that no checkpoint is in the middle of appending to the log.
                self._storage.entry_log.begin_anew()
                before += 1
            dead = dead_logs(self._storage.entry_log.numbers, index.logs, before)
        await self._reclaim(dead)
        await self._reclaim(logs_to_compact(index.logs, before, threshold))

    async def _reclaim(self, numbers: Sequence[int], *, by_compaction: bool = True) -> None:
        """Give logs back, and count what that frees. Raises the first ``OSError``, at the end.

        A log that cannot be read now does not keep the others from being given back.
        """
        reclaimed_bytes = 0
        # Raised after the bytes are counted.
        failure: OSError | None = None
        for number in numbers:
            if number in self._damaged_logs:
                continue
            try:
                # Looked up for each log: the copies of the last one have taken room.
                usage = self._storage.index.logs.get(number, LogUsage())
                free_bytes = self._storage.entry_log.free_bytes
                # A log without anything in use needs no room to be removed, however full the disk.
                if usage.live_bytes and not has_room(usage, free_bytes):
                    self._unfit_logs[number] = usage.live_bytes
                    continue
                reclaimed_bytes += await self._compactor.reclaim(number)
            except CorruptFile as error:
                self._damaged_logs.add(number)
                log.error(  # noqa: TRY400 no trace: it is the file that is wrong
                    "entry log is damaged and stays as it is; other replicas have what it lost",
                    extra={"error": str(error)},
                )
            except UnknownFormat as error:
                self._damaged_logs.add(number)
                log.error(  # noqa: TRY400 no trace: the log's file is what cannot be read
                    "entry log is of a newer version and stays as it is",
                    extra={"error": str(error)},
                )
            except OSError as error:
                # The disk of one log may have failed while those of the others work.
                failure = failure or error
        if by_compaction:
            self.collected.reclaimed_by_compaction_bytes += reclaimed_bytes
        else:
            self.collected.reclaimed_by_deletion_bytes += reclaimed_bytes
        if failure is not None:
            raise failure
