"""Deletes from a bookie the ledgers that are gone, and those that have all their copies elsewhere.

A ledger is deleted only when ZooKeeper itself said that it is gone: after ZooKeeper was brought up
to date (a server that lags behind would not know a new ledger yet), first by a list that lacks the
ledger, then by an answer about that ledger alone. Every other answer, or none, leaves the ledger
where it is.

A ledger that was fenced stays for a while longer. The fence is all that stops its former writer, a
broker that may not have heard yet that its topic has another owner. Without it, the writer's next
entry would make the ledger anew, and be acknowledged.

Deleting removes a ledger from memory and the index only. Nothing is flushed for it: a crash may
bring the ledger back, and the next round deletes it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from itertools import chain, islice

from geminga_autorecovery.zookeeper.ledger_locks import LedgerLocks
from geminga_bookie.counters import CollectionTotals
from geminga_bookie.decisions.garbage import is_over_replicated, parents_of, unlisted
from geminga_bookie.formats.index_v2 import Counts
from geminga_bookie.index.index import Change, Index
from geminga_bookie.storage.checkpoint import Checkpointer
from geminga_bookie.storage.storage import Storage
from geminga_protocol.errors import WireError
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH, READ_ONLY_PATH
from geminga_protocol.records.ledgers.ledger_metadata import (
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

# Ledgers are looked at in portions, between which other tasks run: reading so many records takes
# about a millisecond.
LEDGERS_PER_PORTION = 500
# So many blocks are removed from the index with one change, which takes about 10 ms.
BLOCKS_PER_CHANGE = 2_000
# So many ledgers are named in one line of the log.
LEDGERS_NAMED_MAX = 20
# ZooKeeper's answer to one request; a session that is gone for longer ends the round.
ANSWER_TIMEOUT_S = 30.0
# A copier of the same process has the same session; its locks say who it is.
_LOCK = b""
# The same for all answers together that are waited for under the lock that checkpoints need too.
LOCKED_TIMEOUT_S = 5.0

# Asked of a ledger right before it is deleted.
MayGo = Callable[[int], Awaitable[bool]]


class StrangeCluster(GemingaError):
    """ZooKeeper holds another cluster than the one this bookie belongs to: nothing is deleted."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(
            f"{INSTANCE_ID_PATH} in ZooKeeper says {found!r}, and this bookie belongs to "
            f"{expected!r}: no ledger is deleted. Give the bookie the ZooKeeper of its cluster."
        )


class LedgerDeletion:
    """Deletes ledgers of bookie ``bookie_id``, and counts them in ``totals``.

    ``instance_id`` is the cluster's, as the bookie's cookie has it.
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
        totals: CollectionTotals,
    ) -> None:
        self._storage = storage
        self._checkpointer = checkpointer
        self._coordination = coordination
        self._bookie_id = bookie_id
        self._instance_id = instance_id
        self._fences_kept_s = fences_kept_s
        self._totals = totals
        # Since when fenced ledgers are known to be gone, by the loop's time.
        self._gone_since_s: dict[int, float] = {}
        self._locks = LedgerLocks(coordination, _LOCK, answer_timeout_s=ANSWER_TIMEOUT_S)

    async def run(self, *, is_over_replication_due: bool, with_unwritten: bool) -> None:
        """Delete the ledgers that are gone.

        Ledgers that are only in memory are not looked at, except ``with_unwritten``: on a full disk
        what is deleted need not be written. Raises ``CoordinationError``, ``StrangeCluster``,
        ``OSError``, ``TimeoutError``.
        """
        # For each portion: bring our ZooKeeper server up to date; see that it is our cluster's;
        # find what is gone; delete that.
        portions = _ledger_portions(self._storage.index)
        # Ledgers in memory come first: the next checkpoint need not write those that are deleted
        # here.
        if with_unwritten:
            new_ids = self._storage.ledgers.new_ids()
            starts = range(0, len(new_ids), LEDGERS_PER_PORTION)
            unwritten = (new_ids[start : start + LEDGERS_PER_PORTION] for start in starts)
            portions = chain(unwritten, portions)
        # Locks that an earlier round could not release are released first.
        await self._locks.settle()
        for ledger_ids in portions:
            # A transaction goes through the leader, and its answer comes from a server that has
            # everything before it: that brings our ZooKeeper server up to date. For each portion: a
            # round may take long, and our server may have fallen behind again.
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                value, stat = await self._coordination.get(INSTANCE_ID_PATH)
                await self._coordination.transaction([Check(INSTANCE_ID_PATH, stat.version)])
            found = value.decode(errors="replace")
            if found != self._instance_id:
                raise StrangeCluster(found, self._instance_id)
            gone = await self._gone(ledger_ids)
            if is_over_replication_due:
                known = set(gone)
                kept = [ledger_id for ledger_id in ledger_ids if ledger_id not in known]
                await self._delete_over_replicated(kept)
            await self.forget(gone, "its metadata is gone")

    async def _gone(self, ledger_ids: Sequence[int]) -> list[int]:
        """The ledgers, of these, that ZooKeeper does not know, and that stop no writer."""
        suspects: list[int] = []
        for parent, below in parents_of(ledger_ids).items():
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    children = await self._coordination.children(parent)
            except NodeMissing:  # no ledger is left below it
                children = []
            # One request for all ledgers below the parent, instead of one for each.
            suspects += unlisted(below, children)
        # Each is asked for once more by itself: deletion cannot be undone, and one list that lacks
        # a ledger is not enough for it.
        gone: list[int] = []
        for ledger_id in suspects:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if await self._coordination.exists(ledger_path(ledger_id)) is None:
                    gone.append(ledger_id)
        return [ledger_id for ledger_id in gone if not self._stops_a_writer(ledger_id)]

    def _stops_a_writer(self, ledger_id: int) -> bool:
        """Whether the ledger, whose metadata is gone, still stays for its fence."""
        ledger = self._storage.ledgers.find(ledger_id)
        if ledger is None or not ledger.is_fenced:
            return False
        # Counted from when this process first found it gone. A restart begins anew, which only
        # keeps the ledger longer.
        now_s = asyncio.get_running_loop().time()
        if now_s < self._gone_since_s.setdefault(ledger_id, now_s) + self._fences_kept_s:
            return True
        del self._gone_since_s[ledger_id]
        return False

    async def _delete_over_replicated(self, ledger_ids: Sequence[int]) -> None:
        """Delete closed ledgers that have their copies elsewhere, each under its copier's lock."""
        # Which bookies are alive is read once for all these, and again before each deletion.
        live = await self._live_bookies()
        for ledger_id in ledger_ids:
            # This first look takes no lock. Nearly all ledgers end here, at the price of one read.
            if not await self._is_over_replicated(ledger_id, live):
                continue
            # While a worker copies the ledger, this bookie may be the one that it copies to: the
            # lock that workers take keeps them away.
            try:
                # Where a worker has the lock, it is copying the ledger: the next round looks again.
                if await self._locks.take(ledger_id):
                    await self.forget(
                        [ledger_id], "it has all its copies elsewhere", self._is_still_superfluous
                    )
            finally:
                try:
                    await self._locks.release(ledger_id)
                except (CoordinationError, TimeoutError) as error:
                    log.warning("lock stays till the next round", extra={"error": repr(error)})

    async def _is_still_superfluous(self, ledger_id: int) -> bool:
        """Whether the ledger may be deleted now, asked while nothing else changes the index."""
        live = await self._live_bookies()
        # The lock is asked for last: if it is held now, no copier can have changed the metadata
        # that was read before.
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

    async def forget(
        self, ledger_ids: Sequence[int], reason: str, may_go: MayGo | None = None
    ) -> None:
        """Remove ledgers from memory and index; their bytes go when their logs do.

        ``may_go`` is asked of each ledger under the checkpointer's lock.
        """
        gone = [each for each in ledger_ids if await self._forget_one(each, may_go)]
        if not gone:
            return
        self._totals.deleted_ledgers += len(gone)
        named = gone[:LEDGERS_NAMED_MAX]
        log.info("ledgers deleted", extra={"ledgers": len(gone), "ledger": named, "why": reason})

    async def _forget_one(self, ledger_id: int, may_go: MayGo | None) -> bool:
        """Remove a ledger, a part at a time; False where it may not go (any more)."""
        index = self._storage.index
        is_done = False
        # The lock is taken for each part anew, so that a checkpoint does not wait for all of a
        # large ledger.
        while not is_done:
            async with self._checkpointer.lock:
                if may_go is not None:
                    async with asyncio.timeout(LOCKED_TIMEOUT_S):
                        if not await may_go(ledger_id):
                            return False
                # Read anew under the lock, in each turn of the loop: a checkpoint may have written
                # the ledger meanwhile, or an add may have made it anew.
                ledger = self._storage.ledgers.find(ledger_id)
                if ledger is None:
                    return True
                # The ledger leaves the memory first, or the next checkpoint would write it to the
                # index again.
                self._storage.forget(ledger_id, ledger.master_key)
                self._checkpointer.forget(ledger_id)
                if index.ledger(ledger_id) is None:
                    return True
                # One block more than a part may have shows whether this is the last part.
                blocks = list(islice(index.blocks_of(ledger_id), BLOCKS_PER_CHANGE + 1))
                is_done = len(blocks) <= BLOCKS_PER_CHANGE
                del blocks[BLOCKS_PER_CHANGE:]
                counts = self._storage.counts
                entries = counts.entries - sum(at.entries for at in blocks)
                # An index that once counted too few must not keep its garbage for that.
                counts = Counts(max(0, counts.ledgers - is_done), max(0, entries))
                # Last of all the ledger's own record: a crash before leaves a ledger to be deleted.
                removed = [ledger_id] if is_done else []
                index.note(Change(removed_blocks=blocks, removed_ledgers=removed, counts=counts))
                self._storage.counts = counts
            # Checkpoints and reads get their turn between two parts.
            await asyncio.sleep(0)
        return True


def _ledger_portions(index: Index) -> Iterator[list[int]]:
    """Yield the ledgers that the index knows, the newest ids first.

    Each portion is read when it is asked for, so a ledger that was deleted meanwhile does not come.
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
        # Ids fall: the next portion begins below the last one of this.
        highest = portion[-1] - 1
