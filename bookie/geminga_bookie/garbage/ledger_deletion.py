"""Deletes from a bookie the ledgers that are gone, and those that have all their copies elsewhere.

A ledger is only forgotten when ZooKeeper said so itself: after it was brought up to date (a server
that lags behind would not know a new ledger yet), first by a list that lacks the ledger, then by an
answer about that ledger alone. Whatever else it answers leaves the ledger where it is.

A ledger that was fenced stays for a while longer: the fence is all that stops its former writer, a
broker that may not have heard for long that its topic is another's. Without it the writer's next
entry would make the ledger anew, and be confirmed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from itertools import chain

from geminga_autorecovery.ledger_locks import LedgerLocks
from geminga_bookie.decisions.garbage import is_over_replicated, parents_of, unlisted
from geminga_bookie.formats.index_v2 import BlockLocation, Counts
from geminga_bookie.index.index import Change, Index
from geminga_bookie.storage.checkpoint import Checkpointer
from geminga_bookie.storage.storage import Storage
from geminga_protocol.errors import WireError
from geminga_protocol.records.bookie_info import AVAILABLE_PATH, READ_ONLY_PATH
from geminga_protocol.records.ledger_metadata import (
    INSTANCE_ID_PATH,
    LedgerMetadata,
    ledger_path,
)
from geminga_runtime.coordination import (
    Check,
    Coordination,
    CoordinationError,
    NodeMissing,
)
from geminga_runtime.errors import GemingaError

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


class LedgerDeletion:
    """Deletes ledgers of bookie ``bookie_id``, and tells ``on_deleted`` how many they are.

    ``instance_id`` is the cluster's, as it stands in the bookie's cookie.
    """

    def __init__(
        self,
        storage: Storage,
        checkpointer: Checkpointer,
        coordination: Coordination,
        *,
        bookie_id: str,
        instance_id: str,
        fences_kept_s: float,
        on_deleted: Callable[[int], None],
    ) -> None:
        self._storage = storage
        self._checkpointer = checkpointer
        self._coordination = coordination
        self._bookie_id = bookie_id
        self._instance_id = instance_id
        self._fences_kept_s = fences_kept_s
        # Since when fenced ledgers are known to be gone, by the loop's time.
        self._gone_since_s: dict[int, float] = {}
        self._on_deleted = on_deleted
        self._locks = LedgerLocks(coordination, _LOCK, answer_timeout_s=ANSWER_TIMEOUT_S)

    async def run(self, *, is_over_replication_due: bool, with_unwritten: bool) -> None:
        """Forget the ledgers that are gone. Those that come meanwhile are not looked at, nor those
        that are in memory only, except ``with_unwritten``: what need not be written to a full disk.

        Raises ``CoordinationError``, ``StrangeCluster``, ``OSError``, ``TimeoutError``.
        """
        portions = _ledger_portions(self._storage.index)
        if with_unwritten:
            portions = chain(_in_portions(self._storage.ledgers.new_ids()), portions)
        await self._locks.settle()
        for ledger_ids in portions:
            await self._catch_up()
            gone = await self._gone(ledger_ids)
            if is_over_replication_due:
                known = set(gone)
                kept = [ledger_id for ledger_id in ledger_ids if ledger_id not in known]
                await self._delete_over_replicated(kept)
            await self.forget(gone, "its metadata is gone")

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
        gone = [ledger_id for ledger_id in suspects if await self._is_gone(ledger_id)]
        return [ledger_id for ledger_id in gone if not self._stops_a_writer(ledger_id)]

    def _stops_a_writer(self, ledger_id: int) -> bool:
        """Whether the ledger, which is gone, was fenced, and is kept for that."""
        ledger = self._storage.ledgers.find(ledger_id)
        if ledger is None or not ledger.is_fenced:
            return False
        now_s = asyncio.get_running_loop().time()
        if now_s < self._gone_since_s.setdefault(ledger_id, now_s) + self._fences_kept_s:
            return True
        del self._gone_since_s[ledger_id]
        return False

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
                    await self.forget(
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

    async def forget(
        self, ledger_ids: Sequence[int], reason: str, may_go: MayGo | None = None
    ) -> None:
        """Remove ledgers from memory and index; their bytes go with their logs.

        ``may_go`` is asked of each again while nobody else writes to the index.
        """
        gone = [each for each in ledger_ids if await self._forget_one(each, may_go)]
        if not gone:
            return
        self._on_deleted(len(gone))
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
