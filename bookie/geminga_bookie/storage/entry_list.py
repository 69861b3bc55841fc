"""Which entries of a ledger this bookie has: for the list that auditors and tools ask for."""

from __future__ import annotations

import asyncio

from geminga_bookie.errors import LogRemoved
from geminga_bookie.storage.storage import Storage
from geminga_protocol.bookkeeper.availability import Run, join_runs, runs_of
from geminga_protocol.bookkeeper.errors import BookieFailed, NoSuchLedger

# Blocks whose tables are read before others get their turn: about a millisecond.
BLOCKS_PER_TURN = 50


async def entry_runs(storage: Storage, ledger_id: int) -> list[Run]:
    """The entries in memory and in entry logs, as rising runs that do not touch.

    What is added meanwhile may be there or not. Raises ``NoSuchLedger``, ``BookieFailed``,
    ``CorruptFile`` and ``OSError``.
    """
    for _ in range(storage.block_moves_max):
        try:
            return await _runs(storage, ledger_id)
        except LogRemoved:
            continue  # compaction moved blocks: the index knows where to
    raise BookieFailed(ledger_id)


async def _runs(storage: Storage, ledger_id: int) -> list[Run]:
    if storage.ledgers.find(ledger_id) is None:
        raise NoSuchLedger(ledger_id)
    # Memory first: what a checkpoint carries away meanwhile is then seen twice, not never.
    runs = runs_of(sorted(storage.write_cache.entry_ids(ledger_id)))
    for number, location in enumerate(list(storage.index.blocks_of(ledger_id))):
        if number % BLOCKS_PER_TURN == 0:
            await asyncio.sleep(0)
        runs += runs_of(await storage.entry_log.read_ids(location))
    return join_runs(runs)
