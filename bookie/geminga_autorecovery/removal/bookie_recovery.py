"""Takes all ledgers off a bookie here and now: for a cluster without replication workers, or for
people in a hurry, as ``bookkeeper shell recover`` does.

A ledger that a worker has claimed is waited for, in bounded time; it is often the worker that moves
it then. Nothing fails in silence: whatever stays on the bookie is told with its reason. What
``recover`` did stays done when it is broken off, and it can be begun again at any moment. Facts:
``BookKeeperAdmin`` of Apache BookKeeper, which takes no locks and copies beside the workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import Random

from geminga_autorecovery.removal.decommission import (
    LOOK_INTERVAL_S,
    OnProgress,
    Progress,
    ledgers_of,
    still_on,
)
from geminga_autorecovery.replication.repair import LedgerRepair, RepairOptions, RepairResult
from geminga_autorecovery.zookeeper.claims import Claim, Claims
from geminga_autorecovery.zookeeper.underreplication_marks import prepare_underreplication
from geminga_ledger.errors import LedgerError
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.underreplication import decode_lock, lock_path
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination, NodeMissing

log = logging.getLogger(__name__)

# How long ledgers that workers have claimed are waited for, while none of them gets done. Longer
# than a worker lets an open ledger alone whose bookie has just gone
# (``open_ledger_rereplication_grace_s``).
BUSY_WAIT_S = 120.0

OnTrouble = Callable[[int, str], None]
"""Is told of a ledger that is not as it should be now, and why, in words."""


async def recover(
    bookie_id: str,
    *,
    coordination: Coordination,
    repair: LedgerRepair,
    clock: Clock,
    random: Random,
    on_progress: OnProgress,
    on_trouble: OnTrouble,
    busy_wait_s: float = BUSY_WAIT_S,
) -> Progress:
    """Take all ledgers off the bookie now, fencing those that are not closed.

    The bookie counts as lost, whether it is registered or not. ``on_trouble`` hears of each ledger
    that counts as failed. Ledgers that workers have claimed are waited for until none of them got
    done for ``busy_wait_s`` seconds. The cookie stays. Raises ``CoordinationError``.
    """
    await prepare_underreplication(coordination)
    claims = Claims(coordination, random, holder="recover")
    ledger_ids = await ledgers_of(bookie_id, coordination, repair.store)
    recovery = _Recovery(bookie_id, len(ledger_ids), claims, repair, on_progress, on_trouble)
    for ledger_id in ledger_ids:
        await recovery.attempt(ledger_id)
        recovery.tell()
    changed_at_s = clock.monotonic()
    while recovery.busy:
        if clock.monotonic() - changed_at_s >= busy_wait_s:
            for ledger_id in sorted(recovery.busy):
                holder = await _holder(ledger_id, coordination)
                why = f"a replication worker {holder}has been on it for {busy_wait_s:g} s or longer"
                recovery.fail(ledger_id, f"{why}; try again, or see its log")
            break
        await asyncio.sleep(LOOK_INTERVAL_S)
        if await recovery.attempt_busy():
            changed_at_s = clock.monotonic()
        recovery.tell()
    return recovery.tell()


class _Recovery:
    """How far one recovery is; ``busy`` are the ledgers that somebody else has claimed."""

    def __init__(
        self,
        bookie_id: str,
        ledgers: int,
        claims: Claims,
        repair: LedgerRepair,
        on_progress: OnProgress,
        on_trouble: OnTrouble,
    ) -> None:
        self.busy: set[int] = set()
        self._bookie_id = bookie_id
        self._ledgers = ledgers
        self._done = 0
        self._failed = 0
        self._claims = claims
        self._repair = repair
        self._options = RepairOptions(lost=frozenset({bookie_id}))
        self._on_progress = on_progress
        self._on_trouble = on_trouble

    def tell(self) -> Progress:
        """Say how far it is."""
        progress = Progress(self._ledgers, self._done, self._failed, len(self.busy))
        self._on_progress(progress)
        return progress

    def fail(self, ledger_id: int, why: str) -> None:
        """The ledger stays where it is."""
        self.busy.discard(ledger_id)
        self._failed += 1
        log.warning("ledger not recovered", extra={"ledger": ledger_id, "error": why})
        self._on_trouble(ledger_id, why)

    async def attempt_busy(self) -> bool:
        """Look after those that were claimed by others; whether one of them is settled now."""
        before = len(self.busy)
        left = set(await still_on(self._bookie_id, sorted(self.busy), self._repair.store))
        self._done += before - len(left)
        self.busy = left
        for ledger_id in sorted(left):
            await self.attempt(ledger_id)
        return len(self.busy) < before

    async def attempt(self, ledger_id: int) -> None:
        """Move a ledger, if nobody else is on it."""
        claim = await self._claims.take_ledger(ledger_id)
        if claim is None:
            self.busy.add(ledger_id)
            return
        self.busy.discard(ledger_id)
        troubles: list[str] = []
        is_off = await self._move(claim, troubles)
        why = "; ".join(dict.fromkeys(troubles))
        if not is_off:
            self.fail(ledger_id, why)
            return
        self._done += 1
        if why:
            self._on_trouble(ledger_id, f"it is off {self._bookie_id}, but: {why}")

    async def _move(self, claim: Claim, troubles: list[str]) -> bool:
        """Whether the ledger is off the bookie; why it is not whole is added to ``troubles``."""
        ledger_id = claim.ledger_id
        result = RepairResult.FAULTY
        try:
            await self._repair.take_over(ledger_id, self._options)
            result = await self._repair.repair(
                ledger_id,
                self._options,
                is_claimed=partial(self._claims.holds, claim),
                on_trouble=troubles.append,
            )
            return result is RepairResult.WHOLE or not await still_on(
                self._bookie_id, [ledger_id], self._repair.store
            )
        except LedgerError as error:
            troubles.append(str(error))
            return False
        finally:
            if result is RepairResult.WHOLE:
                await self._claims.done(claim)
            else:
                await self._claims.give_back(claim)


async def _holder(ledger_id: int, coordination: Coordination) -> str:
    """Who has claimed a ledger, as words to put in; nothing where that cannot be told."""
    try:
        value, _ = await coordination.get(lock_path(ledger_id))
        holder = decode_lock(value)
    except (NodeMissing, MalformedRecord):
        return ""
    return f"({holder}) " if holder else ""
