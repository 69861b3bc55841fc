"""Who works on which under-replicated ledger: locks in ZooKeeper, ephemeral, one a ledger.

A ledger is claimed by taking its lock (``ledger_locks``), and given back with it. Losing the
session loses the locks; then two workers may copy the same ledger, which wastes work, and a garbage
collector may delete one that is being copied: who has copied asks ``holds`` before it writes down
where. Facts: ``ZkLedgerUnderreplicationManager`` of Apache
BookKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from geminga_autorecovery.zookeeper.ledger_locks import LedgerLocks
from geminga_autorecovery.zookeeper.watches import Watches
from geminga_protocol.records.underreplication import (
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
    """A marked ledger that nobody else works on; ``mark_version`` is its mark's when claimed."""

    ledger_id: int
    mark_version: int


class Claims:
    """The ledgers that one worker, named ``holder``, has claimed.

    All methods raise ``CoordinationError``.
    """

    def __init__(self, coordination: Coordination, random: Random, *, holder: str) -> None:
        self._coordination = coordination
        self._random = random
        self._locks = LedgerLocks(coordination, encode_lock(holder))
        self._watches = Watches(coordination)

    async def take(self) -> Claim | None:
        """Claim any marked ledger that nobody has claimed; None where there is none.

        Ledgers are tried in random order, so that workers do not run into each other.
        """
        self._watches.begin()
        await self._locks.settle()
        locked = set(await self._children(LOCKS_PATH))
        directories = [(MARKS_PATH, 0)]
        while directories:
            path, level = directories.pop()
            names = await self._children(path)
            self._random.shuffle(names)
            if level < MARK_LEVELS:
                directories += ((f"{path}/{name}", level + 1) for name in names)
                continue
            claim = await self._take_one(each for each in names if each not in locked)
            if claim is not None:
                return claim
        return None

    async def take_ledger(self, ledger_id: int) -> Claim | None:
        """Claim this ledger, marked or not; None where somebody else has."""
        await self._locks.settle()
        stat = await self._coordination.exists(mark_path(ledger_id))
        claim = Claim(ledger_id, -1 if stat is None else stat.version)
        return claim if await self._locks.take(ledger_id) else None

    async def changed(self, timeout_s: float) -> None:
        """Return when marks or locks changed since ``take`` looked, or after ``timeout_s``."""
        await self._watches.wait(timeout_s)

    async def done(self, claim: Claim) -> None:
        """The ledger is well: delete its mark, unless somebody renewed it; give the claim back."""
        path = mark_path(claim.ledger_id)
        try:
            if claim.mark_version >= 0:
                with suppress(NodeMissing, VersionMismatch):
                    await self._coordination.delete(path, version=claim.mark_version)
                    await self._remove_empty(path)
        finally:
            await self.give_back(claim)

    async def give_back(self, claim: Claim) -> None:
        """Let others try; no error where the claim is lost already."""
        if claim.ledger_id in self._locks:
            await self._locks.release(claim.ledger_id)

    async def holds(self, claim: Claim) -> bool:
        """Whether the claim is not lost with the session that it was made in."""
        return claim.ledger_id in self._locks and await self._locks.holds(claim.ledger_id)

    async def _take_one(self, names: Iterable[str]) -> Claim | None:
        for name in names:
            ledger_id = marked_ledger_id(name)
            if ledger_id is None:
                continue
            stat = await self._coordination.exists(mark_path(ledger_id))
            if stat is not None and await self._locks.take(ledger_id):
                return Claim(ledger_id, stat.version)
        return None

    async def _remove_empty(self, path: str) -> None:
        """Delete the directories above a mark that are empty now."""
        for _ in range(MARK_LEVELS):
            path = path.rpartition("/")[0]
            try:
                await self._coordination.delete(path)
            except CoordinationError:
                return  # another mark is below it, or it stays for the next one

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._watches.children(path)
        except NodeMissing:
            return []
