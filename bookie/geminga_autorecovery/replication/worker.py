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

# So often failures double the pause (NUM_OF_EXPONENTIAL_BACKOFF_RETRIALS).
DOUBLINGS_MAX = 5
# Ledgers whose failures are remembered (REPLICATED_FAILED_LEDGERS_MAXSIZE).
FAILED_LEDGERS_MAX = 2_000
# An idle worker pauses so long between two looks through all marks, however many change.
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
        # The holder's name is in the locks, which tools show as "who is on it".
        self._claims = Claims(coordination, random, holder=holder)
        # By ledger: how often it could not be repaired in a row; the ledger that failed last is
        # last.
        self._failures: OrderedDict[int, int] = OrderedDict()
        # Deferred: the ledger's lock is kept for a while, so that no worker tries it again at once.
        # Each deferred ledger takes one place, and so does the claim that is being worked on.
        self._deferred_room = asyncio.Semaphore(config.ledgers_deferred_max)

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack  # the work is a task of the service
        self.spawn_lasting(self._work, name="replication worker")

    async def _work(self) -> None:
        while True:
            try:
                # After each error again: the nodes may have gone with what ZooKeeper has lost.
                await prepare_underreplication(self._coordination)
                while True:
                    await self._work_once()
            except (CoordinationError, LedgerError, WireError) as error:
                log.warning("worker tries again later", extra={"error": str(error)})
                await asyncio.sleep(self._config.retry_s)

    async def _work_once(self) -> None:
        """Repair one ledger, or wait until there may be one."""
        if not await controls.is_enabled(self._coordination):
            # Asked again with a watch: while enabled, no watch is left behind at each turn.
            changed = asyncio.Event()
            if not await controls.is_enabled(self._coordination, on_change=changed.set):
                await changed.wait()
            return
        # Room to defer a ledger is taken before it is claimed: then a claim can always be dealt
        # with, and a worker with too many deferred ledgers takes no more.
        await self._deferred_room.acquire()
        is_deferred = False
        try:
            # A claim is a lock in ZooKeeper: no other worker works on the ledger until it is given
            # back.
            claim = await self._claims.take()
            if claim is not None:
                is_deferred = await self._repair_claimed(claim)
        finally:
            if not is_deferred:
                self._deferred_room.release()
        if claim is None:
            # The wait ends when a mark comes or a lock goes. ``take`` began the watches before it
            # read anything.
            await self._claims.watches.wait(self._config.rescan_interval_s)
            await asyncio.sleep(SCAN_PAUSE_S)

    # What becomes of a claim:
    #
    #     WHOLE      the mark is deleted, if it was not renewed, and the lock given back
    #     UNCLOSED   the lock is kept for the writer's grace; then the ledger is taken over
    #     FAULTY     the lock is kept for a pause that grows with each failure
    #     an error of ZooKeeper's, or the end of the service: the lock is given back
    async def _repair_claimed(self, claim: Claim) -> bool:
        """Repair a ledger; returns whether it is deferred, with its claim."""
        ledger_id = claim.ledger_id
        try:
            # None where it was deleted since the claim: then the ledger is checked all the same.
            mark = await read_mark(self._coordination, ledger_id)
            options = RepairOptions(
                suspects=frozenset(mark.missing_bookies if mark else ()),
                # A bookie that could not be repaired in place is replaced the next time.
                is_replacing_preferred=ledger_id in self._failures,
            )
            result = await self._repair.repair(
                ledger_id, options, is_claimed=partial(self._claims.holds, claim)
            )
        except LedgerError as error:
            log.warning("ledger not repaired", extra={"ledger": ledger_id, "error": str(error)})
            result = RepairResult.FAULTY
        # Also on cancellation: otherwise the ledger would stay locked until the session ends.
        except (CoordinationError, asyncio.CancelledError):
            await self._give_back(claim)
            raise
        except Exception:
            # A mistake of ours about one ledger must not keep the worker from the others.
            log.exception("ledger not repaired", extra={"ledger": ledger_id})
            self.faults += 1
            result = RepairResult.FAULTY
        if result is RepairResult.WHOLE:
            # Whole, or deleted meanwhile. Its next failure, if there is one, is a new one.
            self._failures.pop(ledger_id, None)
            self._repair.counters.ledgers_replicated += 1
            await self._claims.done(claim)
            log.info("ledger is whole", extra={"ledger": ledger_id})
            return False
        is_unclosed = result is RepairResult.UNCLOSED
        if is_unclosed:
            # Its writer, if it lives, replaces the lost bookie by then.
            delay_s = self._config.open_ledger_rereplication_grace_s
        else:
            # The longest delay is halved for each failure that is missing to the last doubling.
            # With the usual 300 s: 9, 19, 37, 75, 150 and from then on 300 s.
            failures = self._failures.pop(ledger_id, 0)
            self._failures[ledger_id] = failures + 1
            if len(self._failures) > FAILED_LEDGERS_MAX:
                self._failures.popitem(last=False)
            halvings = max(DOUBLINGS_MAX - failures, 0)
            delay_s = self._config.failed_ledger_grace_s / (1 << halvings)
        self._repair.counters.ledgers_deferred += 1
        log.info("ledger put off", extra={"ledger": ledger_id, "delay_s": delay_s})
        # The claim waits in another task, so that this worker goes on with the next ledger
        # meanwhile.
        task = self.spawn(
            self._let_go(claim, delay_s, is_unclosed=is_unclosed),
            name=f"ledger {ledger_id} put off",
        )
        # Also when it is cancelled, as it is when the service closes.
        task.add_done_callback(lambda _: self._deferred_room.release())
        return True

    async def _let_go(self, claim: Claim, delay_s: float, *, is_unclosed: bool) -> None:
        """Give a claim back after a while; an unclosed ledger is taken over first, if its writer
        has not replaced the lost bookie. The next claim of it repairs the closed ledger."""
        try:
            await asyncio.sleep(delay_s)
            if is_unclosed and await controls.is_enabled(self._coordination):
                # The mark stays: the next claim finds a closed ledger, all of whose fragments can
                # be repaired.
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
            # The next ``take`` settles it, or the end of the session does.
            log.info("lock stays for now", extra={"ledger": claim.ledger_id, "error": str(error)})
