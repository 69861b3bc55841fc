"""Going on without entry logs that are lost, where the settings accept the loss.

The index then knows no block of theirs any more: the bookie answers that it has none of these
entries, as if they had never been added. Ledger recovery believes that and may close a ledger too
early, which is why a bookie refuses to start until ``accept_lost_entries`` is set.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from geminga_bookie.entry_logs.entry_log import EntryLog
from geminga_bookie.formats.entry_log_v1 import LedgerRecord
from geminga_bookie.formats.index_v2 import BlockLocation, Counts, LogEnd
from geminga_bookie.index.index import Change, Index

log = logging.getLogger(__name__)

# Blocks of the index that are looked at before other tasks run: about a millisecond.
BLOCKS_PER_TURN = 500
# So many ledgers are named in one line of the log.
LEDGERS_NAMED_MAX = 20


async def forget_lost_logs(entry_log: EntryLog, index: Index) -> None:
    """Remove from ``index`` every block that is in none of the files; durable on return.

    Raises ``OSError``.
    """
    # Runs before ``EntryLog.open``, which would refuse to start without these logs.
    existing = await entry_log.find()
    for number, usage in list(index.logs.items()):
        # The index knows how long each log was at least: a shorter one has lost its end.
        size: int | None = None
        if number in existing:
            async with entry_log.opened(number) as file:
                size = file.size
        if size is None or size < usage.end:
            await _forget(entry_log.path(number), index, number, size)


async def _forget(path: str, index: Index, number: int, size: int | None) -> None:
    """Forget the blocks behind ``size`` bytes of log ``number``; all of them where it is None."""
    # A log that is missing cannot say what was in it: the index is searched from end to end.
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
    # A log's known length only grows, by each block that was ever in it. So the log is removed from
    # the index as a whole, and what is left of it is noted anew.
    index.note(Change(removed_blocks=known, removed_logs=[number]))
    index.note(Change(blocks=kept, log_end=LogEnd(number, kept_end) if is_last and kept else None))
    # Each ledger that lost something ends where its last block does now.
    ledger_ids = sorted({at.ledger_id for at in lost})
    shortened: list[LedgerRecord] = []
    for ledger_id in ledger_ids:
        record = index.ledger(ledger_id)
        # With the old record, a read of the ledger's last entry would look for one that is gone,
        # and find none where there are earlier ones.
        if record is not None:
            last = max((at.last_entry for at in index.blocks_of(ledger_id)), default=-1)
            shortened.append(replace(record, last_entry=last))
    counts = index.counts()
    counts = Counts(counts.ledgers, counts.entries - sum(at.entries for at in lost))
    # The notes become durable with this commit. A crash before it leaves the index as it was, and
    # the next start, with the same setting, begins anew.
    await index.commit(Change(ledgers=shortened, counts=counts))
    log.error(
        "entries were lost with an entry log, and are forgotten as the settings say",
        extra={
            "file": path,
            "ledgers": len(ledger_ids),
            "ledger": ledger_ids[:LEDGERS_NAMED_MAX],
            "entries": sum(at.entries for at in lost),
        },
    )
