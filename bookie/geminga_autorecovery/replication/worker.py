"""The replication worker: takes one marked ledger after the other and makes it whole.

A ledger that cannot be repaired now stays locked for a while, so that neither this worker nor
another tries at once again. So does one whose unclosed last fragment misses bookies: a living
writer replaces them, and what is left unclosed after the grace is taken over. Facts:
``ReplicationWorker`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import AsyncExitStack
from functools import partial
from random import Random

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.replication.repair import LedgerRepair, RepairOptions, RepairResult
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.claims import Claim, Claims
from geminga_autorecovery.zookeeper.underreplication_marks import (
    prepare_underreplication,
    read_mark,
)
from geminga_ledger.errors import LedgerError
from geminga_protocol.errors import WireError
from geminga_runtime.coordination import Coordination, CoordinationError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# Failures doubled the wait so often (NUM_OF_EXPONENTIAL_BACKOFF_RETRIALS).
DOUBLINGS_MAX = 5
# Ledgers whose failures are remembered (REPLICATED_FAILED_LEDGERS_MAXSIZE).
FAILED_LEDGERS_MAX = 2_000
# An idle worker looks through all marks at most so often, however many change.
SCAN_PAUSE_S = 0.5


class ReplicationWorker(Service):
    """One worker, which works on one ledger at a time."""

    def __init__(
        self,
        coordination: Coordination,
        random: Random,
        repair: LedgerRepair,
        config: AutoRecoveryConfig,
        *,
        holder: str,
    ) -> None:
        super().__init__()
        self._coordination = coordination
        self._repair = repair
        self._config = config
        self._claims = Claims(coordination, random, holder=holder)
        # How often each ledger could not be repaired, the latest last.
        self._failures: OrderedDict[int, int] = OrderedDict()
        self._deferred_room = asyncio.Semaphore(config.ledgers_deferred_max)

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack  # the work is a task of the service
        self.spawn_lasting(self._work, name="replication worker")

    async def _work(self) -> None:
        while True:
            try:
                await prepare_underreplication(self._coordination)
                while True:
                    await self._work_once()
            except (CoordinationError, LedgerError, WireError) as error:
                log.warning("worker tries again later", extra={"error": str(error)})
                await asyncio.sleep(self._config.retry_s)

    async def _work_once(self) -> None:
        """Repair one ledger, or wait until there may be one."""
        if not await controls.is_enabled(self._coordination):
            await self._until_enabled()
            return
        # Room for it to be put off is taken first: what is claimed can always be let go of.
        await self._deferred_room.acquire()
        is_put_off = False
        try:
            claim = await self._claims.take()
            if claim is not None:
                is_put_off = await self._repair_claimed(claim)
        finally:
            if not is_put_off:
                self._deferred_room.release()
        if claim is None:
            await self._claims.changed(self._config.rescan_interval_s)
            await asyncio.sleep(SCAN_PAUSE_S)

    async def _until_enabled(self) -> None:
        changed = asyncio.Event()
        if await controls.is_enabled(self._coordination, on_change=changed.set):
            return
        await changed.wait()

    async def _repair_claimed(self, claim: Claim) -> bool:
        """Repair a ledger; whether it is put off, and with it the end of the claim."""
        ledger_id = claim.ledger_id
        try:
            mark = await read_mark(self._coordination, ledger_id)
            terms = RepairOptions(
                suspects=frozenset(mark.missing_bookies if mark else ()),
                is_replacing_preferred=ledger_id in self._failures,
            )
            result = await self._repair.repair(
                ledger_id, terms, is_claimed=partial(self._claims.holds, claim)
            )
        except LedgerError as error:
            log.warning("ledger not repaired", extra={"ledger": ledger_id, "error": str(error)})
            result = RepairResult.FAULTY
        except (CoordinationError, asyncio.CancelledError):
            await self._give_back(claim)
            raise
        except Exception:
            log.exception("ledger not repaired", extra={"ledger": ledger_id})
            self.faults += 1
            result = RepairResult.FAULTY
        if result is RepairResult.WHOLE:
            self._failures.pop(ledger_id, None)
            self._repair.counters.ledgers_replicated += 1
            await self._claims.done(claim)
            log.info("ledger is whole", extra={"ledger": ledger_id})
            return False
        delay_s = (
            self._config.open_ledger_rereplication_grace_s
            if result is RepairResult.UNCLOSED
            else self._failure_delay_s(ledger_id)
        )
        self._repair.counters.ledgers_deferred += 1
        log.info("ledger put off", extra={"ledger": ledger_id, "delay_s": delay_s})
        task = self.spawn(
            self._let_go(claim, delay_s, is_unclosed=result is RepairResult.UNCLOSED),
            name=f"ledger {ledger_id} put off",
        )
        task.add_done_callback(lambda _: self._deferred_room.release())
        return True

    async def _let_go(self, claim: Claim, delay_s: float, *, is_unclosed: bool) -> None:
        """Give a claim back after a while, having taken the ledger over where nobody else did."""
        try:
            await asyncio.sleep(delay_s)
            if is_unclosed and await controls.is_enabled(self._coordination):
                await self._repair.take_over(claim.ledger_id)
        except (LedgerError, CoordinationError) as error:
            log.warning(
                "ledger not taken over", extra={"ledger": claim.ledger_id, "error": str(error)}
            )
        finally:
            await self._give_back(claim)

    async def _give_back(self, claim: Claim) -> None:
        try:
            await self._claims.give_back(claim)
        except CoordinationError as error:
            # The next claim settles it, or the end of the session.
            log.info("lock stays for now", extra={"ledger": claim.ledger_id, "error": str(error)})

    def _failure_delay_s(self, ledger_id: int) -> float:
        """How long a ledger is let alone that could not be repaired: doubled each time, bounded."""
        failures = self._failures.pop(ledger_id, 0)
        self._failures[ledger_id] = failures + 1
        if len(self._failures) > FAILED_LEDGERS_MAX:
            self._failures.popitem(last=False)
        return self._config.failed_ledger_grace_s / (1 << max(DOUBLINGS_MAX - failures, 0))
