"""Takes all ledgers off a bookie in this process, as ``bookkeeper shell recover`` does: for a
cluster without replication workers, or for operators who cannot wait for them.

A ledger that a worker has claimed is waited for, in bounded time; often the worker moves it then.
Every ledger that stays on the bookie is reported with its reason. What ``recover`` did stays done
when it is broken off, and it can be begun again at any moment. Facts: ``BookKeeperAdmin`` of Apache
BookKeeper, which takes no locks and copies beside the workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from geminga_autorecovery.removal.decommission import (
    CHECK_INTERVAL_S,
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
from geminga_protocol.records.ledgers.underreplication import decode_lock, lock_path
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination, NodeMissing

log = logging.getLogger(__name__)

# So long ledgers that workers have claimed are waited for, while none of them is finished. Longer
# than a worker keeps an open ledger whose bookie was just lost
# (``open_ledger_rereplication_grace_s``).
BUSY_WAIT_S = 120.0

OnTrouble = Callable[[int, str], None]
"""Gets a ledger that is not whole now, and the reason in words."""


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

    The bookie counts as lost, whether it is registered or not. ``on_trouble`` gets each ledger that
    counts as failed. Ledgers that workers have claimed are waited for until none of them was
    finished for ``busy_wait_s`` seconds. The cookie stays. Raises ``CoordinationError``.
    """
    await prepare_underreplication(coordination)
    # These are the locks that workers take, so that no worker moves the same ledger meanwhile.
    claims = Claims(coordination, random, holder="recover")
    ledger_ids = await ledgers_of(bookie_id, coordination, repair.store)
    # Each in turn, and not side by side: a tool should not take more of the cluster than a worker
    # does. First each ledger once; then those that workers had claimed, until none of them moves.
    # No ledger counts as two of done, failed and busy.
    recovery = _Recovery(bookie_id, len(ledger_ids), claims, repair, on_progress, on_trouble)
    for ledger_id in ledger_ids:
        await recovery.attempt(ledger_id)
        recovery.tell()
    # When a busy ledger was last settled, by its worker or by us.
    changed_at_s = clock.monotonic()
    while recovery.busy:
        if clock.monotonic() - changed_at_s >= busy_wait_s:
            for ledger_id in sorted(recovery.busy):
                holder = await _holder(ledger_id, coordination)
                why = f"a replication worker {holder}has been on it for {busy_wait_s:g} s or longer"
                recovery.fail(ledger_id, f"{why}; try again, or see its log")
            break
        await asyncio.sleep(CHECK_INTERVAL_S)
        # Any progress begins the wait anew: one worker may have many of these ledgers to get
        # through.
        if await recovery.attempt_busy():
            changed_at_s = clock.monotonic()
        recovery.tell()
    return recovery.tell()


@dataclass(eq=False, slots=True)
class _Recovery:
    """One recovery, and how far it is."""

    bookie_id: str
    # How many there are in all.
    ledgers: int
    claims: Claims
    repair: LedgerRepair
    on_progress: OnProgress
    on_trouble: OnTrouble
    done: int = 0
    failed: int = 0
    # The ledgers that a worker has claimed.
    busy: set[int] = field(default_factory=set[int])

    def tell(self) -> Progress:
        """Report the progress."""
        progress = Progress(self.ledgers, self.done, self.failed, len(self.busy))
        self.on_progress(progress)
        return progress

    def fail(self, ledger_id: int, why: str) -> None:
        """Give a ledger up, which stays where it is."""
        self.busy.discard(ledger_id)
        self.failed += 1
        log.warning("ledger not recovered", extra={"ledger": ledger_id, "error": why})
        self.on_trouble(ledger_id, why)

    async def attempt_busy(self) -> bool:
        """Try the busy ledgers again; returns whether one of them is settled now."""
        before = len(self.busy)
        # Those that are off the bookie by now were moved by their workers.
        left = set(await still_on(self.bookie_id, sorted(self.busy), self.repair.store))
        self.done += before - len(left)
        self.busy = left
        for ledger_id in sorted(left):
            await self.attempt(ledger_id)
        return len(self.busy) < before

    async def attempt(self, ledger_id: int) -> None:
        """Move a ledger, unless a worker has claimed it."""
        claim = await self.claims.take_ledger(ledger_id)
        if claim is None:
            self.busy.add(ledger_id)
            return
        self.busy.discard(ledger_id)
        # Each trouble once: a check before and one after the repair may find the same.
        troubles: list[str] = []
        is_off = await self._move(claim, troubles)
        why = "; ".join(dict.fromkeys(troubles))
        if not is_off:
            self.fail(ledger_id, why)
            return
        self.done += 1
        if why:
            self.on_trouble(ledger_id, f"it is off {self.bookie_id}, but: {why}")

    async def _move(self, claim: Claim, troubles: list[str]) -> bool:
        """Whether the ledger is off the bookie; why it is not whole is added to ``troubles``."""
        ledger_id = claim.ledger_id
        # As if it were gone: nothing is copied to it, and it is read from last.
        options = RepairOptions(lost=frozenset({self.bookie_id}))
        result = RepairResult.FAULTY
        try:
            # Closed first: the open last fragment of a ledger is not repaired. Its writer, if it
            # lives, is fenced, and finds out with its next add.
            await self.repair.take_over(ledger_id, options)
            result = await self.repair.repair(
                ledger_id,
                options,
                is_claimed=partial(self.claims.holds, claim),
                on_trouble=troubles.append,
            )
            # It may lack copies on other bookies still: that is trouble, but not this bookie's.
            return result is RepairResult.WHOLE or not await still_on(
                self.bookie_id, [ledger_id], self.repair.store
            )
        except LedgerError as error:
            troubles.append(str(error))
            return False
        finally:
            # Only a whole ledger loses its mark: workers go on with any other.
            if result is RepairResult.WHOLE:
                await self.claims.done(claim)
            else:
                await self.claims.give_back(claim)


async def _holder(ledger_id: int, coordination: Coordination) -> str:
    """The name of a ledger's claimant as an insertion, ``"(name) "``; empty where it has none."""
    try:
        value, _ = await coordination.get(lock_path(ledger_id))
        holder = decode_lock(value)
    except (NodeMissing, MalformedRecord):
        return ""
    return f"({holder}) " if holder else ""
