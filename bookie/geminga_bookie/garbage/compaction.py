"""Compaction: giving an entry log back, after what is in use in it was copied to the current log.

The order of events makes it safe to die anywhere:

1. Blocks are copied to the current log, durable on return. A crash leaves bytes behind the index's
   ``LogEnd``, which the next start cuts off.
2. The index gets the copies' places instead of the old ones, and the new ``LogEnd``, but is not
   flushed: a crash may undo that, and the next start then finds the blocks in the old log.
3. When nothing in the old log is in use, records of ledgers that only it has are copied too. The
   index is committed, without the old log: everything from 2 is durable with it.
4. The old file is removed. A crash before that leaves a file that the index does not know, which
   the next start removes.

Reads go on meanwhile, to the old places until the index has the new ones. A read that comes to a
file that is gone asks the index again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass

from geminga_bookie.entry_logs.log_scan import scan_log
from geminga_bookie.errors import CorruptFile
from geminga_bookie.formats.entry_log_v1 import Block, LedgerRecord
from geminga_bookie.formats.index_v2 import BlockLocation, LogUsage
from geminga_bookie.index.index import Change
from geminga_bookie.storage.checkpoint import Checkpointer
from geminga_bookie.storage.storage import Storage

log = logging.getLogger(__name__)

# Blocks of the index that are looked at before other tasks run: about a millisecond.
BLOCKS_PER_TURN = 500


@dataclass(slots=True, eq=False)
class Compactor:
    """Empties and removes entry logs, copying at most ``bytes_per_s`` (0: without a limit)."""

    storage: Storage
    checkpointer: Checkpointer
    bytes_per_s: float
    # Counted since the start.
    moved_bytes: int = 0

    async def reclaim(self, number: int) -> int:
        """Move what is in use of log ``number``, then remove it; return how many bytes that freed.

        The log must not be the current one. Damaged blocks are moved as they are. Raises
        ``CorruptFile`` where bytes are missing, ``UnknownFormat`` and ``OSError``; then the log
        stays, and what was moved already is in use at its new place.
        """
        try:
            index = self.storage.index
            usage = index.logs.get(number, LogUsage())
            path = self.storage.entry_log.path(number)
            # One log is reclaimed at a time: what is counted from here on was moved out of this
            # one, also where the scan ends half way.
            moved_before_bytes = self.moved_bytes
            try:
                # First the compactor moves the blocks that it finds in the log; then those that
                # only the index knows of; then it removes the file.
                ledger_ids, size = await self._move_all(number, usage.end)
            except CorruptFile as error:
                log.warning("entry log does not tell what is in it", extra={"error": str(error)})
                # What it said of ledgers, the index says too.
                ledger_ids = [record.ledger_id for record in index.ledgers()]
                size = usage.end
            # The usage is read again: moves have lowered it, and so have deletions meanwhile.
            if index.logs.get(number, LogUsage()).live_bytes:
                # The index knows blocks that were not found in the log, or it counted too much. The
                # whole index is searched for them.
                known: list[BlockLocation] = []
                for count, at in enumerate(index.blocks_in(number)):
                    if at is not None:
                        known.append(at)
                    if count % BLOCKS_PER_TURN == 0:
                        await asyncio.sleep(0)
                batch: list[BlockLocation] = []
                for at in sorted(known, key=lambda at: at.offset):
                    batch.append(at)
                    if sum(each.size for each in batch) >= self.storage.entry_log.batch_bytes:
                        await self._move(batch)
                        batch = []
                await self._move(batch)
            await self._finish(number, ledger_ids)
            moved_bytes = self.moved_bytes - moved_before_bytes
            log.info(
                "entry log removed", extra={"file": path, "bytes": size, "moved_bytes": moved_bytes}
            )
            return size - moved_bytes
        except OSError:
            # Copies that the index does not know would take room for nothing.
            async with self.checkpointer.lock:
                await self.storage.entry_log.drop_after(self.storage.index.log_end())
            raise

    async def _move_all(self, number: int, end: int) -> tuple[list[int], int]:
        """Move what is in use before ``end``.

        Returns the ledgers of which the log has records, and the bytes of the file.
        """
        # A dict as an ordered set.
        ledger_ids: dict[int, None] = {}
        batch: list[BlockLocation] = []
        entry_log = self.storage.entry_log
        async with entry_log.open_files.reading(number) as (file, seed):
            size = file.size
            scan = scan_log(file, entry_log.path(number), number, seed, end=end)
            async with aclosing(scan) as blocks:
                async for block in blocks:
                    if block.location is None:
                        ledger_ids.update((record.ledger_id, None) for record in block.ledgers)
                    # A block that the index does not know at this place belongs to a deleted
                    # ledger, or was moved before: it stays behind.
                    elif self.storage.index.knows(block.location):
                        batch.append(block.location)
                    if sum(at.size for at in batch) >= entry_log.batch_bytes:
                        await self._move(batch)
                        batch = []
            await self._move(batch)
        return list(ledger_ids), size

    async def _move(self, batch: list[BlockLocation]) -> None:
        """Copy blocks and have the index name the copies; count the bytes copied.

        Takes as long as ``bytes_per_s`` wants, so that reads and checkpoints have the disk too.
        """
        storage = self.storage
        index = storage.index
        # The slow part is done without the lock, for which checkpoints would wait. At most
        # ``batch_bytes`` and one block are in memory.
        whole = [await storage.entry_log.read_whole(at) for at in batch]
        async with self.checkpointer.lock:
            living: list[BlockLocation] = []
            blocks: list[tuple[Block, bytes]] = []
            for at, (block, own_key) in zip(batch, whole, strict=True):
                # While the lock is held nothing else changes the index: what it knows now, the
                # change below may remove.
                if not index.knows(at):
                    continue  # its ledger was deleted since the block was read
                master_key = own_key
                if master_key is None:  # the block's header is damaged and does not say it
                    record = index.ledger(at.ledger_id)
                    assert record is not None, "a ledger with blocks has a record"
                    master_key = record.master_key
                living.append(at)
                blocks.append((block, master_key))
            if not living:
                return
            # All copies are durable before the index names one of them.
            places = await storage.entry_log.append(blocks)
            index.note(
                Change(
                    blocks=places,
                    removed_blocks=living,
                    log_end=storage.entry_log.end,
                )
            )
        moved_bytes = sum(at.size for at in places)
        self.moved_bytes += moved_bytes
        # The lock is free again, so that checkpoints can run during the pause.
        if self.bytes_per_s:
            await asyncio.sleep(moved_bytes / self.bytes_per_s)

    async def _finish(self, number: int, ledger_ids: list[int]) -> None:
        """Remove an emptied log, after what may stand in it alone was written elsewhere too."""
        storage = self.storage
        async with self.checkpointer.lock:
            records: list[LedgerRecord] = []
            for ledger_id in ledger_ids:
                record = storage.index.ledger(ledger_id)
                # After a rebuild, blocks of entries alone would not tell these. A record that only
                # says what blocks say too need not be written again.
                if record is not None and (
                    record.is_fenced or record.last_entry < 0 or record.explicit_lac
                ):
                    records.append(record)
            # Without records, the end of the log is what the last move noted.
            if records:
                await storage.entry_log.append_ledgers(records)
            # The commit takes the log's own record out of the index, so that a start after a crash
            # here removes the file.
            await storage.index.commit(
                Change(removed_logs=[number], log_end=storage.entry_log.end if records else None)
            )
            # After the commit, which made the copies' places durable: until then a crash could lead
            # back to this file.
            await storage.entry_log.remove(number)
