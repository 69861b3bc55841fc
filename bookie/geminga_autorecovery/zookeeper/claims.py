"""Claims of under-replicated ledgers: an ephemeral lock in ZooKeeper for each that is worked on.

A ledger is claimed by taking its lock (``ledger_locks``), and given back with it. Losing the
session loses the locks; then two workers may copy the same ledger, which wastes work, and a garbage
collector may delete one that is being copied: so a worker asks ``holds`` after it has copied,
before it names the new bookies in the metadata. Facts: ``ZkLedgerUnderreplicationManager`` of
Apache BookKeeper.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random

from geminga_autorecovery.zookeeper.children import children_of
from geminga_autorecovery.zookeeper.ledger_locks import LedgerLocks
from geminga_autorecovery.zookeeper.watches import Watches
from geminga_protocol.records.ledgers.underreplication import (
    LOCKS_PATH,
    MARK_LEVELS,
    MARKS_PATH,
    encode_lock,
    mark_path,
    marked_ledger_id,
)
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeMissing,
    VersionMismatch,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A ledger that no other worker works on."""

    ledger_id: int
    # The version of its mark when it was claimed; -1 where it had none. ``done`` deletes the mark
    # at this version only, so that a loss that was marked since is not forgotten.
    mark_version: int


class Claims:
    """The ledgers that one worker, named ``holder``, has claimed.

    All methods raise ``CoordinationError``.
    """

    def __init__(self, coordination: Coordination, random: Random, *, holder: str) -> None:
        self._coordination = coordination
        self._random = random
        self._locks = LedgerLocks(coordination, encode_lock(holder))
        # Of marks and locks: what changes since ``take`` read them ends a wait for these.
        self.watches = Watches(coordination)

    async def take(self) -> Claim | None:
        """Claim any marked ledger that is not claimed; None where there is none.

        Ledgers are tried in random order, so that workers rarely compete for the same one.
        """
        # Changes from here on end a wait for the watches.
        self.watches.begin()
        # A lock whose release failed keeps its ledger from all workers.
        await self._locks.settle()
        locked = set(await children_of(self.watches.children, LOCKS_PATH))
        # Depth first: with many marks, most directories need not be read.
        directories = [(MARKS_PATH, 0)]
        while directories:
            path, level = directories.pop()
            names = await children_of(self.watches.children, path)
            self._random.shuffle(names)
            # Four levels of directories, each shuffled by itself; below the last one are the marks.
            if level < MARK_LEVELS:
                directories += ((f"{path}/{name}", level + 1) for name in names)
                continue
            for name in names:
                ledger_id = marked_ledger_id(name)
                # Locks have the names of marks. The list may be old by now: ``take`` decides.
                if name in locked or ledger_id is None:
                    continue
                # The version before the lock: a mark that is renewed after this outlives ``done``.
                stat = await self._coordination.exists(mark_path(ledger_id))
                if stat is not None and await self._locks.take(ledger_id):
                    return Claim(ledger_id, stat.version)
        return None

    async def take_ledger(self, ledger_id: int) -> Claim | None:
        """Claim this ledger, marked or not; None where it is claimed already."""
        await self._locks.settle()
        stat = await self._coordination.exists(mark_path(ledger_id))
        # The mark is looked at before the lock is taken, as in ``take``.
        claim = Claim(ledger_id, -1 if stat is None else stat.version)
        return claim if await self._locks.take(ledger_id) else None

    async def done(self, claim: Claim) -> None:
        """The ledger is whole: delete its mark, unless it was renewed, and give the claim back."""
        path = mark_path(claim.ledger_id)
        try:
            if claim.mark_version >= 0:
                with suppress(NodeMissing, VersionMismatch):
                    # The mark goes before the lock: in the other order another worker could claim
                    # the ledger for a mark that is about to go.
                    await self._coordination.delete(path, version=claim.mark_version)
                    # The directories above that have become empty go as well.
                    for _ in range(MARK_LEVELS):
                        path = path.rpartition("/")[0]
                        try:
                            await self._coordination.delete(path)
                        except CoordinationError:
                            break  # another mark is below it, or it stays for the next one
        finally:
            # Also where the mark could not be deleted: the ledger is then checked once more.
            await self.give_back(claim)

    async def give_back(self, claim: Claim) -> None:
        """Let other workers try; no error where the claim is lost already."""
        if claim.ledger_id in self._locks:
            await self._locks.release(claim.ledger_id)

    async def holds(self, claim: Claim) -> bool:
        """Whether the claim is still ours: it is lost with the session that it was made in."""
        return claim.ledger_id in self._locks and await self._locks.holds(claim.ledger_id)
