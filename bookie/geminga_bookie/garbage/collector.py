"""Garbage collection: forgets ledgers that are gone, gives entry logs back that hold mostly such.

``garbage`` decides, ``compaction`` empties logs; this asks ZooKeeper and acts, one round at a time.
A ledger is only forgotten when ZooKeeper said so itself: after it was brought up to date (a server
that lags behind would not know a new ledger yet), first by a list that lacks the ledger, then by an
answer about that ledger alone. Whatever else it answers leaves the ledger where it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain

from geminga_autorecovery.ledger_locks import LedgerLocks
from geminga_bookie.errors import CorruptFile
from geminga_bookie.garbage.compaction import Compactor
from geminga_bookie.garbage.garbage import (
    Compaction,
    Rounds,
    dead_logs,
    has_room,
    is_over_replicated,
    is_worth_leaving,
    logs_to_compact,
    parents_of,
    unlisted,
)
from geminga_bookie.settings import GarbageLimits
from geminga_bookie.storage.checkpoint import READ_ONLY_REASON, Checkpointer
from geminga_bookie.storage.index import BlockLocation, Change, Counts, Index, LogUsage
from geminga_bookie.storage.storage import Storage
from geminga_protocol.errors import WireError
from geminga_protocol.records.bookie_info import AVAILABLE_PATH, READ_ONLY_PATH
from geminga_protocol.records.ledger_metadata import (
    INSTANCE_ID_PATH,
    LedgerMetadata,
    ledger_path,
)
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import (
    Check,
    Coordination,
    CoordinationError,
    NodeMissing,
)
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# Ledgers are looked at in portions, between which others get their turn: reading so many records
# takes about a millisecond.
LEDGERS_PER_PORTION = 500
# The index is told of so many blocks at a time, which takes about 10 ms.
BLOCKS_PER_CHANGE = 2_000
# So many ledgers are named in one line of the log.
LEDGERS_NAMED_MAX = 20
# ZooKeeper's answer to one request; a session that is gone for longer ends the round.
ANSWER_TIMEOUT_S = 30.0
# A copier of the same process has the same session; its locks say who it is.
_LOCK = b""
# The same for all answers for which checkpoints wait.
LOCKED_TIMEOUT_S = 5.0

MayGo = Callable[[int], Awaitable[bool]]


class StrangeCluster(GemingaError):
    """ZooKeeper holds another cluster than the one this bookie belongs to: nothing is deleted."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(
            f"{INSTANCE_ID_PATH} in ZooKeeper says {found!r}, and this bookie belongs to "
            f"{expected!r}: no ledger is deleted. Give the bookie the ZooKeeper of its cluster."
        )


@dataclass(slots=True)
class Collected:
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
    """Collects garbage in the background every ``limits.interval_s``, and when it is told to.

    ``instance_id`` is the cluster's, as it stands in the bookie's cookie. ``may_minor`` and
    ``may_major`` may be set to False while a disk is (nearly) full, ``is_disk_full`` to True: then
    each round gives back what it can, where the copies easily find room. ``suspended`` are the
    compactions that somebody ordered to wait until the opposite order, or a restart.
    """

    def __init__(
        self,
        limits: GarbageLimits,
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
        self._coordination = coordination
        self._clock = clock
        self._bookie_id = bookie_id
        self._instance_id = instance_id
        self._locks = LedgerLocks(coordination, _LOCK, answer_timeout_s=ANSWER_TIMEOUT_S)
        self._rounds = Rounds(limits, clock.monotonic())
        self._is_wanted = asyncio.Event()
        self._running = asyncio.Lock()
        # Logs with a block that cannot be copied: left alone, so that what can be read stays.
        self._damaged_logs: set[int] = set()
        self.may_minor = True
        self.may_major = True
        self.is_disk_full = False
        self.suspended: set[Compaction] = set()
        self.is_forced = False
        self.compaction = Compaction.NONE
        self.collected = Collected(last_minor_ms=clock.wall_ms(), last_major_ms=clock.wall_ms())

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
        interval_s = self._limits.interval_s or None
        while True:
            try:
                async with asyncio.timeout(interval_s):
                    await self._is_wanted.wait()
            except TimeoutError:
                pass
            self._is_wanted.clear()
            try:
                await self.run(
                    is_forced=False,
                    may_minor=self.may_minor and Compaction.MINOR not in self.suspended,
                    may_major=self.may_major and Compaction.MAJOR not in self.suspended,
                )
            except (GemingaError, OSError, TimeoutError) as error:
                self.collected.failures += 1
                log.warning("garbage not collected this time", extra={"error": repr(error)})

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
                await self._delete_ledgers(is_over_replication_due=due.is_over_replication_due)
            finally:
                # What was garbage before needs no ZooKeeper.
                await self._remove_dead_logs()
            self.compaction = due.compaction
            try:
                await self._compact(self._rounds.threshold(due.compaction))
                if self.is_tight and Compaction.MAJOR not in self.suspended:
                    await self._squeeze()
            finally:
                self.compaction = Compaction.NONE
            self._count_compaction(due.compaction)

    def _count_compaction(self, compaction: Compaction) -> None:
        if compaction is Compaction.MINOR:
            self.collected.minor_compactions += 1
            self.collected.last_minor_ms = self._clock.wall_ms()
        elif compaction is Compaction.MAJOR:
            self.collected.major_compactions += 1
            self.collected.last_major_ms = self._clock.wall_ms()

    @property
    def is_tight(self) -> bool:
        """Whether a disk lacks room, by its measure or since it refused a checkpoint."""
        return self.is_disk_full or READ_ONLY_REASON in self._storage.read_only_reasons

    # Ledgers.

    async def _delete_ledgers(self, *, is_over_replication_due: bool) -> None:
        """Forget the ledgers that are gone. Those that come meanwhile are not looked at."""
        portions = _ledger_portions(self._storage.index)
        if self.is_tight:  # what need not be written to a full disk
            portions = chain(_in_portions(self._storage.ledgers.new_ids()), portions)
        await self._locks.settle()
        for ledger_ids in portions:
            await self._catch_up()
            gone = await self._gone(ledger_ids)
            if is_over_replication_due:
                known = set(gone)
                kept = [ledger_id for ledger_id in ledger_ids if ledger_id not in known]
                await self._delete_over_replicated(kept)
            await self._forget(gone, "its metadata is gone")

    async def _catch_up(self) -> None:
        """Have ZooKeeper answer from now on with what is known to all of it.

        A transaction goes through the leader, and its answer comes from a server that has
        everything before it. Raises ``StrangeCluster`` where it is not our cluster.
        """
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            value, stat = await self._coordination.get(INSTANCE_ID_PATH)
            await self._coordination.transaction([Check(INSTANCE_ID_PATH, stat.version)])
        found = value.decode(errors="replace")
        if found != self._instance_id:
            raise StrangeCluster(found, self._instance_id)

    async def _gone(self, ledger_ids: Sequence[int]) -> list[int]:
        """Those of the ledgers that ZooKeeper does not know."""
        suspects: list[int] = []
        for parent, below in parents_of(ledger_ids).items():
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    children = await self._coordination.children(parent)
            except NodeMissing:
                children = []
            suspects += unlisted(below, children)
        return [ledger_id for ledger_id in suspects if await self._is_gone(ledger_id)]

    async def _is_gone(self, ledger_id: int) -> bool:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await self._coordination.exists(ledger_path(ledger_id)) is None

    async def _delete_over_replicated(self, ledger_ids: Sequence[int]) -> None:
        """Forget closed ledgers that have their copies elsewhere, each under its copier's lock."""
        live = await self._live_bookies()
        for ledger_id in ledger_ids:
            if not await self._is_over_replicated(ledger_id, live):
                continue
            # While a worker copies the ledger, this bookie may be the one that it copies to.
            try:
                if await self._locks.take(ledger_id):
                    await self._forget(
                        [ledger_id], "it has all its copies elsewhere", self._is_still_superfluous
                    )
            finally:
                await self._release(ledger_id)

    async def _is_still_superfluous(self, ledger_id: int) -> bool:
        """Whether the ledger may be deleted now. Asked last: the lock, under which no copier can
        have changed the metadata that was read before.
        """
        live = await self._live_bookies()
        return await self._is_over_replicated(ledger_id, live) and await self._locks.holds(
            ledger_id
        )

    async def _is_over_replicated(self, ledger_id: int, live: Collection[str]) -> bool:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                value, _ = await self._coordination.get(ledger_path(ledger_id))
            return is_over_replicated(LedgerMetadata.decode(value), self._bookie_id, live)
        except (NodeMissing, WireError):
            return False

    async def _live_bookies(self) -> frozenset[str]:
        """The bookies that are registered, writable or read-only."""
        names: set[str] = set()
        for parent in (AVAILABLE_PATH, READ_ONLY_PATH):
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    names.update(await self._coordination.children(parent))
            except NodeMissing:
                continue
        return frozenset(names)

    async def _release(self, ledger_id: int) -> None:
        try:
            await self._locks.release(ledger_id)
        except (CoordinationError, TimeoutError) as error:
            log.warning("lock stays till the next round", extra={"error": repr(error)})

    async def _forget(
        self, ledger_ids: Sequence[int], reason: str, may_go: MayGo | None = None
    ) -> None:
        """Remove ledgers from memory and index; their bytes go with their logs.

        ``may_go`` is asked of each again while nobody else writes to the index.
        """
        gone = [each for each in ledger_ids if await self._forget_one(each, may_go)]
        if not gone:
            return
        self.collected.deleted_ledgers += len(gone)
        named = gone[:LEDGERS_NAMED_MAX]
        log.info("ledgers deleted", extra={"ledgers": len(gone), "ledger": named, "why": reason})

    async def _forget_one(self, ledger_id: int, may_go: MayGo | None) -> bool:
        """Whether the ledger is gone; where it may not go any more, what is left of it stays."""
        index = self._storage.index
        is_done = False
        while not is_done:
            async with self._checkpointer.lock:
                if may_go is not None:
                    async with asyncio.timeout(LOCKED_TIMEOUT_S):
                        if not await may_go(ledger_id):
                            return False
                ledger = self._storage.ledgers.find(ledger_id)
                if ledger is None:
                    return True
                self._storage.forget(ledger_id, ledger.master_key)
                self._checkpointer.forget(ledger_id)
                if index.ledger(ledger_id) is None:
                    return True
                blocks, is_done = _first_blocks(index, ledger_id)
                counts = self._storage.counts
                entries = counts.entries - sum(at.entries for at in blocks)
                # What an index once counted too few must not keep its garbage for ever.
                counts = Counts(max(0, counts.ledgers - is_done), max(0, entries))
                # Last of all the ledger's own record: a crash before leaves a ledger to be deleted.
                removed = [ledger_id] if is_done else []
                index.note(Change(removed_blocks=blocks, removed_ledgers=removed, counts=counts))
                self._storage.counts = counts
            await asyncio.sleep(0)
        return True

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
        log.warning(
            "entry log stays for now: no room for copies of what is of use in it",
            extra={
                "file": self._storage.entry_log.path(number),
                "live_bytes": usage.live_bytes,
                "free_bytes": free_bytes,
            },
        )
        return False

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


def _in_portions(ledger_ids: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(ledger_ids), LEDGERS_PER_PORTION):
        yield list(ledger_ids[start : start + LEDGERS_PER_PORTION])


def _ledger_portions(index: Index) -> Iterator[list[int]]:
    """The ledgers that the index knows, in portions; each is read when it is asked for.

    A ledger that comes behind is not met: the newest ids come first.
    """
    highest: int | None = None
    while True:
        portion: list[int] = []
        records = index.ledgers() if highest is None else index.ledgers(highest)
        for record in records:
            portion.append(record.ledger_id)
            if len(portion) == LEDGERS_PER_PORTION:
                break
        if portion:
            yield portion
        if len(portion) < LEDGERS_PER_PORTION or not portion[-1]:
            return
        highest = portion[-1] - 1


def _first_blocks(index: Index, ledger_id: int) -> tuple[list[BlockLocation], bool]:
    """Some blocks of a ledger, and whether they are all there are."""
    blocks: list[BlockLocation] = []
    for at in index.blocks_of(ledger_id):
        if len(blocks) == BLOCKS_PER_CHANGE:
            return blocks, False
        blocks.append(at)
    return blocks, True
