"""Takes all ledgers off a bookie that will not come back: for tools.

``decommission`` has the cluster's workers do it and forgets the bookie at the end, as ``bookkeeper
shell decommissionbookie`` does. ``recover`` does it here and now, for a cluster without workers or
for people in a hurry, as ``bookkeeper shell recover`` does. Both say how far they are, and can be
begun again at any moment. Facts: ``BookKeeperAdmin`` and ``DecommissionCommand`` of Apache
BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from magnetar_autorecovery import controls
from magnetar_autorecovery.claims import Claim, Claims
from magnetar_autorecovery.errors import BookieStillThere, DecommissionStalled, RecoveryDisabled
from magnetar_autorecovery.fragments import bookies_of
from magnetar_autorecovery.ledger_listing import ledger_directories, ledgers_in, visit_all
from magnetar_autorecovery.live_bookies import read_live_bookies
from magnetar_autorecovery.marks import Marks, prepare_underreplication
from magnetar_autorecovery.repair import LedgerRepair, Repaired, Terms
from magnetar_ledger.errors import LedgerError, NoSuchLedger
from magnetar_ledger.store import LedgerStore
from magnetar_protocol.records.cookies import cookie_path
from magnetar_runtime.clock import Clock
from magnetar_runtime.coordination import Coordination, NodeMissing

log = logging.getLogger(__name__)

METADATA_READS_MAX = 64
# How often the ledgers that are left are counted.
LOOK_INTERVAL_S = 1.0
# Longer than workers let a ledger alone that they could not repair.
STALL_S = 900.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: of ``ledgers`` that had the bookie, so many are done, and so many failed."""

    ledgers: int
    done: int
    failed: int = 0


OnProgress = Callable[[Progress], None]


async def decommission(
    bookie_id: str,
    *,
    coordination: Coordination,
    store: LedgerStore,
    clock: Clock,
    on_progress: OnProgress,
    stall_s: float = STALL_S,
    deletes_cookie: bool = True,
) -> Progress:
    """Have the replication workers take all ledgers off the bookie; then delete its cookie.

    Raises ``BookieStillThere`` where it is registered, ``RecoveryDisabled``, ``CoordinationError``,
    and ``DecommissionStalled`` after ``stall_s`` seconds in which no ledger was moved.
    """
    if bookie_id in (await read_live_bookies(coordination.children)).all:
        raise BookieStillThere(bookie_id)
    await prepare_underreplication(coordination)
    ledger_ids = await ledgers_of(bookie_id, coordination, store)
    marks = Marks(coordination, clock)

    async def mark(ledger_id: int) -> None:
        await marks.mark(ledger_id, [bookie_id])

    await visit_all(ledger_ids, mark, at_once_max=METADATA_READS_MAX)
    left, moved_at_s = ledger_ids, clock.monotonic()
    while True:
        before, left = left, await _still_on(bookie_id, left, store)
        progress = Progress(len(ledger_ids), len(ledger_ids) - len(left))
        on_progress(progress)
        if not left:
            break
        now_s = clock.monotonic()
        if len(left) < len(before):
            moved_at_s = now_s
        elif now_s - moved_at_s >= stall_s:
            raise DecommissionStalled(bookie_id, len(left), now_s - moved_at_s)
        if not await controls.is_enabled(coordination):
            raise RecoveryDisabled
        await asyncio.sleep(LOOK_INTERVAL_S)
    if deletes_cookie:
        with suppress(NodeMissing):
            await coordination.delete(cookie_path(bookie_id))
    return progress


async def recover(
    bookie_id: str,
    *,
    coordination: Coordination,
    repair: LedgerRepair,
    random: Random,
    on_progress: OnProgress,
) -> Progress:
    """Take all ledgers off the bookie now, fencing those that are not closed.

    The bookie counts as lost, whether it is registered or not. A ledger that cannot be moved, or on
    which a worker is busy, counts as failed. The cookie stays. Raises ``CoordinationError``.
    """
    await prepare_underreplication(coordination)
    claims = Claims(coordination, random, holder="recover")
    ledger_ids = await ledgers_of(bookie_id, coordination, repair.store)
    terms = Terms(lost=frozenset({bookie_id}))
    done = failed = 0
    for ledger_id in ledger_ids:
        claim = await claims.take_ledger(ledger_id)
        if claim is not None and await _recover_claimed(claims, claim, repair, terms):
            done += 1
        else:
            failed += 1
        on_progress(Progress(len(ledger_ids), done, failed))
    return Progress(len(ledger_ids), done, failed)


async def ledgers_of(bookie_id: str, coordination: Coordination, store: LedgerStore) -> list[int]:
    """The ledgers with the bookie in an ensemble, ascending. Raises ``CoordinationError``."""
    found: list[int] = []
    for directory in await ledger_directories(coordination):
        found += await _still_on(bookie_id, await ledgers_in(coordination, directory), store)
    return found


async def _still_on(bookie_id: str, ledger_ids: list[int], store: LedgerStore) -> list[int]:
    found: list[int] = []

    async def visit(ledger_id: int) -> None:
        try:
            stored = await store.read(ledger_id)
        except NoSuchLedger:
            return
        except LedgerError as error:
            log.warning("ledger not read", extra={"ledger": ledger_id, "error": str(error)})
            return
        if bookie_id in bookies_of(stored.metadata):
            found.append(ledger_id)

    await visit_all(ledger_ids, visit, at_once_max=METADATA_READS_MAX)
    return sorted(found)


async def _recover_claimed(
    claims: Claims, claim: Claim, repair: LedgerRepair, terms: Terms
) -> bool:
    """Move one ledger off the lost bookies; whether it is whole now."""
    ledger_id = claim.ledger_id
    result = Repaired.FAULTY
    try:
        await repair.take_over(ledger_id, terms)
        result = await repair.repair(ledger_id, terms)
    except LedgerError as error:
        log.warning("ledger not recovered", extra={"ledger": ledger_id, "error": str(error)})
    finally:
        if result is Repaired.WHOLE:
            await claims.done(claim)
        else:
            await claims.give_back(claim)
    return result is Repaired.WHOLE
