"""Going on without entry logs that are lost, once somebody has said that this is wanted.

The index then knows no block of theirs any more: the bookie answers that it has none of these
entries, as if they had never been. Recovery believes that, which is why it is never done unasked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from geminga_bookie.entry_logs.entry_log import EntryLog
from geminga_bookie.formats.entry_log_v1 import LedgerRecord
from geminga_bookie.formats.index_v2 import BlockLocation, Counts, LogEnd
from geminga_bookie.index.index import Change, Index

log = logging.getLogger(__name__)

# Blocks that are looked at before others get their turn: about a millisecond.
BLOCKS_PER_TURN = 500
# So many ledgers are named in one line of the log.
LEDGERS_NAMED_MAX = 20


async def forget_lost_logs(entry_log: EntryLog, index: Index) -> None:
    """Have ``index`` forget what is in none of the files any more; durable on return.

    Raises ``OSError``.
    """
    await entry_log.find()
    for number, usage in list(index.logs.items()):
        size = await entry_log.size_of(number)
        if size is None or size < usage.end:
            await _forget(entry_log.path(number), index, number, size)


async def _forget(path: str, index: Index, number: int, size: int | None) -> None:
    known: list[BlockLocation] = []
    for count, at in enumerate(index.blocks_in(number)):
        if at is not None:
            known.append(at)
        if count % BLOCKS_PER_TURN == 0:
            await asyncio.sleep(0)
    kept = [at for at in known if size is not None and at.end <= size]
    lost = [at for at in known if size is None or at.end > size]
    end = index.log_end()
    is_last = end is not None and end.log_number == number
    kept_end = max((at.end for at in kept), default=0)
    # What is known of the log's length can only grow: it is forgotten as a whole, then noted anew.
    index.note(Change(removed_blocks=known, removed_logs=[number]))
    index.note(Change(blocks=kept, log_end=LogEnd(number, kept_end) if is_last and kept else None))
    ledger_ids = sorted({at.ledger_id for at in lost})
    counts = index.counts()
    counts = Counts(counts.ledgers, counts.entries - sum(at.entries for at in lost))
    await index.commit(Change(ledgers=list(_shortened(index, ledger_ids)), counts=counts))
    log.error(
        "entries were lost with an entry log, and are forgotten as the settings say",
        extra={
            "file": path,
            "ledgers": len(ledger_ids),
            "ledger": ledger_ids[:LEDGERS_NAMED_MAX],
            "entries": sum(at.entries for at in lost),
        },
    )


def _shortened(index: Index, ledger_ids: Sequence[int]) -> Iterator[LedgerRecord]:
    """What is left of ledgers: they end where their last block does."""
    for ledger_id in ledger_ids:
        record = index.ledger(ledger_id)
        if record is not None:
            last = max((at.last_entry for at in index.blocks_of(ledger_id)), default=-1)
            yield replace(record, last_entry=last)
