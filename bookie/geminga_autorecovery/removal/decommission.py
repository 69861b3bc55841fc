"""Takes all ledgers off a bookie that will not come back: for tools.

The cluster's workers copy them, and the bookie's cookie is deleted at the end, as ``bookkeeper
shell decommissionbookie`` does. It reports progress, and can be begun again at any moment. Doing it
without workers is the business of ``bookie_recovery``. Facts: ``BookKeeperAdmin`` and
``DecommissionCommand`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from geminga_autorecovery.decisions.fragments import bookies_of
from geminga_autorecovery.errors import BookieStillThere, DecommissionStalled, RecoveryDisabled
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.ledger_list import ledger_directories, ledgers_in, visit_all
from geminga_autorecovery.zookeeper.live_bookies import read_live_bookies
from geminga_autorecovery.zookeeper.underreplication_marks import (
    UnderreplicationMarks,
    prepare_underreplication,
)
from geminga_ledger.errors import LedgerError, NoSuchLedger
from geminga_ledger.metadata.store import LedgerStore
from geminga_protocol.records.bookies.cookies import cookie_path
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination, NodeMissing

log = logging.getLogger(__name__)

# Ledgers whose metadata is read at once.
METADATA_READS_MAX = 64
# The pause before the ledgers that are left are counted again.
CHECK_INTERVAL_S = 1.0
# Longer than the 300 s after which workers try a ledger again that they could not repair.
STALL_S = 900.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a removal is, in ledgers."""

    # That had the bookie in an ensemble.
    ledgers: int
    done: int
    failed: int = 0
    # That are waited for: a replication worker has claimed them.
    busy: int = 0


OnProgress = Callable[[Progress], None]


async def decommission(
    bookie_id: str,
    *,
    coordination: Coordination,
    store: LedgerStore,
    clock: Clock,
    on_progress: OnProgress,
    deletes_cookie: bool = True,
    stall_s: float = STALL_S,
) -> Progress:
    """Have the replication workers take all ledgers off the bookie; then delete its cookie.

    Raises ``BookieStillThere`` where it is registered, ``RecoveryDisabled``, ``CoordinationError``,
    and ``DecommissionStalled`` after ``stall_s`` seconds in which no ledger was moved.
    """
    # Registered, it would get new ledgers while its old ones are moved.
    if bookie_id in (await read_live_bookies(coordination.children)).all:
        raise BookieStillThere(bookie_id)
    await prepare_underreplication(coordination)
    # Listed once. The bookie is not registered, so that no ledger gets it into an ensemble from
    # here on.
    ledger_ids = await ledgers_of(bookie_id, coordination, store)
    # The auditor, if one is elected, marks them as well, but perhaps after a grace.
    marks = UnderreplicationMarks(coordination, clock)

    async def mark(ledger_id: int) -> None:
        await marks.mark(ledger_id, [bookie_id])

    # A mark that a worker has deleted in the meantime is not made again here: the loop below counts
    # what the metadata says, and the auditor marks what is left.
    await visit_all(ledger_ids, mark, at_once_max=METADATA_READS_MAX)
    # The ledgers still on the bookie, and when their number last went down.
    left, moved_at_s = ledger_ids, clock.monotonic()
    while True:
        # The metadata counts and not the marks: the cookie may go only when the bookie is in no
        # ensemble.
        before, left = left, await still_on(bookie_id, left, store)
        progress = Progress(len(ledger_ids), len(ledger_ids) - len(left))
        on_progress(progress)
        if not left:
            break
        now_s = clock.monotonic()
        # Any progress counts: many ledgers of a slow cluster may take days.
        if len(left) < len(before):
            moved_at_s = now_s
        elif now_s - moved_at_s >= stall_s:
            raise DecommissionStalled(bookie_id, len(left), now_s - moved_at_s)
        # Workers do nothing then, and would be waited for until the stall.
        if not await controls.is_enabled(coordination):
            raise RecoveryDisabled
        await asyncio.sleep(CHECK_INTERVAL_S)
    # The bookie is forgotten: with its cookie gone, an empty one may register under its id.
    if deletes_cookie:
        with suppress(NodeMissing):
            await coordination.delete(cookie_path(bookie_id))
    return progress


async def ledgers_of(bookie_id: str, coordination: Coordination, store: LedgerStore) -> list[int]:
    """The ledgers with the bookie in an ensemble, ascending. Raises ``CoordinationError``."""
    found: list[int] = []
    for directory in await ledger_directories(coordination):
        found += await still_on(bookie_id, await ledgers_in(coordination, directory), store)
    return found


async def still_on(bookie_id: str, ledger_ids: list[int], store: LedgerStore) -> list[int]:
    """Those of the ledgers that have the bookie in an ensemble, ascending."""
    found: list[int] = []

    async def visit(ledger_id: int) -> None:
        try:
            stored = await store.read(ledger_id)
        except NoSuchLedger:
            return
        except LedgerError as error:
            # Without its metadata it is not known whether it was on the bookie, and where to move
            # it.
            log.warning("ledger not read", extra={"ledger": ledger_id, "error": str(error)})
            return
        if bookie_id in bookies_of(stored.metadata):
            found.append(ledger_id)

    await visit_all(ledger_ids, visit, at_once_max=METADATA_READS_MAX)
    return sorted(found)
