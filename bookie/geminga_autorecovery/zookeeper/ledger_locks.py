"""Locks of ledgers: taken to copy a ledger's entries, and to delete those of one that exists.

Each is an ephemeral node in ZooKeeper. A lock whose creation or deletion got no answer is released
again later, so that it does not keep others from the ledger as long as this session lives. A
session that is lost takes its locks with it, without notice: a holder asks again right before it
does what must not be done without the lock. Facts: ``ZkLedgerUnderreplicationManager`` of Apache
BookKeeper.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from geminga_protocol.records.ledgers.underreplication import lock_path
from geminga_runtime.coordination import (
    Check,
    Coordination,
    NodeExists,
    NodeMissing,
    NodeStat,
    VersionMismatch,
)


@dataclass(eq=False, slots=True)
class LedgerLocks:
    """The locks of one holder: ``content`` distinguishes them from others' of the same session.

    An answer of ZooKeeper may take ``answer_timeout_s``; None: as long as it takes. All methods
    raise ``CoordinationError`` and ``TimeoutError``.
    """

    coordination: Coordination
    content: bytes
    answer_timeout_s: float | None = field(default=None, kw_only=True)
    # Ledgers whose lock was taken and not given back; it may be lost with its session. A ledger is
    # in one of the two sets, or in none.
    _taken: set[int] = field(default_factory=set[int], init=False)
    # Ledgers whose lock may be ours in ZooKeeper though it is not held here.
    _doubtful: set[int] = field(default_factory=set[int], init=False)

    def __contains__(self, ledger_id: int) -> bool:
        """Whether the ledger's lock was taken and not given back."""
        return ledger_id in self._taken

    async def take(self, ledger_id: int) -> bool:
        """Lock a ledger; False where it is locked, here or elsewhere.

        After an error it may be locked: ``release`` it, or leave that to ``settle``.
        """
        if ledger_id in self._taken:
            return False
        self._doubtful.add(ledger_id)
        try:
            async with asyncio.timeout(self.answer_timeout_s):
                await self.coordination.create(
                    lock_path(ledger_id), self.content, ephemeral=True, make_parents=True
                )
        # It is another holder's. A lock of our own, from an attempt without an answer, is not there
        # any more: callers call ``settle`` first.
        except NodeExists:
            self._doubtful.discard(ledger_id)
            return False
        self._doubtful.discard(ledger_id)
        self._taken.add(ledger_id)
        return True

    async def holds(self, ledger_id: int) -> bool:
        """Whether a lock that was taken is still ours, by what ZooKeeper's leader knows."""
        async with asyncio.timeout(self.answer_timeout_s):
            stat = await self._ours(ledger_id)
            if stat is None:
                return False
            # A transaction goes through the leader; the server that answers a read may lag behind.
            # After it this server knows what the leader knew, so the second read counts.
            with suppress(NodeMissing, VersionMismatch):
                await self.coordination.transaction([Check(lock_path(ledger_id), stat.version)])
                return await self._ours(ledger_id) is not None
        return False

    async def release(self, ledger_id: int) -> None:
        """Give a lock back, if it is ours; where that fails, ``settle`` tries again."""
        self._taken.discard(ledger_id)
        self._doubtful.add(ledger_id)
        async with asyncio.timeout(self.answer_timeout_s):
            stat = await self._ours(ledger_id)
            # The version protects a lock that another holder has made in between.
            if stat is not None:
                with suppress(NodeMissing, VersionMismatch):
                    await self.coordination.delete(lock_path(ledger_id), version=stat.version)
        self._doubtful.discard(ledger_id)

    async def settle(self) -> None:
        """Release what could not be released before."""
        # ``sorted`` makes a copy, as ``release`` changes the set. The first error ends it: the rest
        # stays doubtful.
        for ledger_id in sorted(self._doubtful):
            await self.release(ledger_id)

    async def _ours(self, ledger_id: int) -> NodeStat | None:
        """The lock's node, where it is of this session and this holder."""
        try:
            value, stat = await self.coordination.get(lock_path(ledger_id))
        except NodeMissing:
            return None
        # Both must fit: this session has other holders, and the lock of an earlier session of ours
        # goes with that session.
        is_own_session = stat.ephemeral_owner == self.coordination.session_id
        return stat if is_own_session and value == self.content else None
