"""Locks of ledgers: those who copy a ledger take one, and who deletes one that exists does too.

An ephemeral node in ZooKeeper for each. A lock whose making or deleting got no answer is looked
after again later, so that no ledger is kept from others for as long as this session lives. A
session that is lost takes its locks with it, unasked: who holds one asks again right before what
must not be done without. Facts: ``ZkLedgerUnderreplicationManager`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from geminga_protocol.records.underreplication import lock_path
from geminga_runtime.coordination import (
    Check,
    Coordination,
    NodeExists,
    NodeMissing,
    NodeStat,
    VersionMismatch,
)


class LedgerLocks:
    """The locks of one holder: ``content`` tells them from others' of the same process and session.

    An answer of ZooKeeper may take ``answer_timeout_s``, as long as it takes for None. All methods
    raise ``CoordinationError`` and ``TimeoutError``.
    """

    def __init__(
        self, coordination: Coordination, content: bytes, *, answer_timeout_s: float | None = None
    ) -> None:
        self._coordination = coordination
        self._content = content
        self._answer_timeout_s = answer_timeout_s
        # Ledgers whose lock was taken and not given back; it may be lost with its session.
        self._taken: set[int] = set()
        # Ledgers whose lock may be there though nobody here holds it.
        self._doubtful: set[int] = set()

    def __contains__(self, ledger_id: int) -> bool:
        """Whether the ledger's lock was taken and not given back."""
        return ledger_id in self._taken

    async def take(self, ledger_id: int) -> bool:
        """Lock a ledger; False where somebody has, here or elsewhere.

        After an error it may be locked: ``release`` it, or leave that to ``settle``.
        """
        if ledger_id in self._taken:
            return False
        self._doubtful.add(ledger_id)
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                await self._coordination.create(
                    lock_path(ledger_id), self._content, ephemeral=True, make_parents=True
                )
        except NodeExists:
            self._doubtful.discard(ledger_id)
            return False
        self._doubtful.discard(ledger_id)
        self._taken.add(ledger_id)
        return True

    async def holds(self, ledger_id: int) -> bool:
        """Whether a lock that was taken is still ours, as all of ZooKeeper knows it."""
        async with asyncio.timeout(self._answer_timeout_s):
            stat = await self._ours(ledger_id)
            if stat is None:
                return False
            # Through the leader: the server that answers may lag behind.
            with suppress(NodeMissing, VersionMismatch):
                await self._coordination.transaction([Check(lock_path(ledger_id), stat.version)])
                return await self._ours(ledger_id) is not None
        return False

    async def release(self, ledger_id: int) -> None:
        """Give a lock back, if it is ours; where that fails, ``settle`` tries again."""
        self._taken.discard(ledger_id)
        self._doubtful.add(ledger_id)
        async with asyncio.timeout(self._answer_timeout_s):
            stat = await self._ours(ledger_id)
            if stat is not None:
                with suppress(NodeMissing, VersionMismatch):
                    await self._coordination.delete(lock_path(ledger_id), version=stat.version)
        self._doubtful.discard(ledger_id)

    async def settle(self) -> None:
        """Give back what could not be given back before."""
        for ledger_id in sorted(self._doubtful):
            await self.release(ledger_id)

    async def _ours(self, ledger_id: int) -> NodeStat | None:
        try:
            value, stat = await self._coordination.get(lock_path(ledger_id))
        except NodeMissing:
            return None
        is_own_session = stat.ephemeral_owner == self._coordination.session_id
        return stat if is_own_session and value == self._content else None
