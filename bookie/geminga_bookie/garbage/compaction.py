"""Giving an entry log back: what is still of use in it moves to the log that is written now.

Safe to die anywhere. Copies are durable before the index names them, the index has flushed their
new places before the old file goes, and what it does not know at the next start is cut off. Reads
go on meanwhile: to the old places until the index names the new ones, and who comes to a file that
is gone asks the index again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

from geminga_bookie.entry_logs.log_scan import ScannedBlock, scan_log
from geminga_bookie.errors import CorruptFile
from geminga_bookie.formats.entry_log_v1 import LedgerRecord
from geminga_bookie.formats.index_v2 import BlockLocation, LogUsage
from geminga_bookie.index.index import Change
from geminga_bookie.storage.checkpoint import Checkpointer
from geminga_bookie.storage.storage import Storage

log = logging.getLogger(__name__)

# Blocks that are looked at in the index before others get their turn: about a millisecond.
BLOCKS_PER_TURN = 500


class Compactor:
    """Empties and removes entry logs, copying at most ``bytes_per_s`` (0: as fast as it goes)."""

    def __init__(self, storage: Storage, checkpointer: Checkpointer, *, bytes_per_s: float) -> None:
        self._storage = storage
        self._checkpointer = checkpointer
        self._bytes_per_s = bytes_per_s
        self.moved_bytes = 0

    async def reclaim(self, number: int) -> int:
        """Move what is of use in log ``number``, then remove it; returns how much smaller that is.

        The log must not be the one that is written to. Damaged blocks are moved as they are. Raises
        ``CorruptFile`` where bytes are missing, ``OSError``; then the log stays, and what was moved
        already is found anew.
        """
        try:
            return await self._reclaim(number)
        except OSError:
            async with self._checkpointer.lock:
                await self._storage.entry_log.drop_after(self._storage.index.log_end())
            raise

    async def _reclaim(self, number: int) -> int:
        usage = self._storage.index.logs.get(number, LogUsage())
        path = self._storage.entry_log.path(number)
        try:
            ledger_ids, moved_bytes, size = await self._move_all(number, usage.end)
        except CorruptFile as error:
            log.warning("entry log does not tell what is in it", extra={"error": str(error)})
            moved_bytes = 0
            # What it said of ledgers, the index says too.
            ledger_ids = [record.ledger_id for record in self._storage.index.ledgers()]
            size = usage.end
        if self._storage.index.logs.get(number, LogUsage()).live_bytes:
            # The log did not say of all that the index knows in it; or the index counted too much.
            moved_bytes += await self._move_known(number)
        await self._finish(number, ledger_ids)
        log.info(
            "entry log removed", extra={"file": path, "bytes": size, "moved_bytes": moved_bytes}
        )
        return size - moved_bytes

    async def _move_all(self, number: int, end: int) -> tuple[list[int], int, int]:
        """Move what is of use before ``end``.

        Returns the ledgers of which the log says something besides their entries, the bytes that
        were moved, and those of the file.
        """
        moved_bytes = 0
        ledger_ids: dict[int, None] = {}
        batch: list[BlockLocation] = []
        entry_log = self._storage.entry_log
        async with entry_log.reading(number) as (file, seed):
            size = file.size
            scan = scan_log(file, entry_log.path(number), number, seed, end=end)
            async with aclosing(scan) as blocks:
                async for block in blocks:
                    self._sort(block, batch, ledger_ids)
                    if sum(at.size for at in batch) >= self._storage.entry_log.batch_bytes:
                        moved_bytes += await self._move(batch)
                        batch = []
            moved_bytes += await self._move(batch)
        return list(ledger_ids), moved_bytes, size

    async def _move_known(self, number: int) -> int:
        """Move what the index knows in a log that cannot be gone through; returns its bytes."""
        known: list[BlockLocation] = []
        for count, at in enumerate(self._storage.index.blocks_in(number)):
            if at is not None:
                known.append(at)
            if count % BLOCKS_PER_TURN == 0:
                await asyncio.sleep(0)
        moved_bytes = 0
        batch: list[BlockLocation] = []
        for at in sorted(known, key=lambda at: at.offset):
            batch.append(at)
            if sum(each.size for each in batch) >= self._storage.entry_log.batch_bytes:
                moved_bytes += await self._move(batch)
                batch = []
        return moved_bytes + await self._move(batch)

    def _sort(
        self, block: ScannedBlock, batch: list[BlockLocation], ledger_ids: dict[int, None]
    ) -> None:
        if block.location is None:
            ledger_ids.update((record.ledger_id, None) for record in block.ledgers)
        elif self._storage.index.knows(block.location):
            batch.append(block.location)

    async def _move(self, batch: list[BlockLocation]) -> int:
        """Copy blocks and have the index name the copies; waits as long as that should take."""
        storage = self._storage
        blocks = [await storage.entry_log.read_whole(at) for at in batch]
        async with self._checkpointer.lock:
            # Their ledgers may have been deleted since they were read.
            living = [
                (at, block)
                for at, block in zip(batch, blocks, strict=True)
                if storage.index.knows(at)
            ]
            if not living:
                return 0
            places = await storage.entry_log.append(
                (block, master_key or self._master_key(at.ledger_id))
                for at, (block, master_key) in living
            )
            storage.index.note(
                Change(
                    blocks=places,
                    removed_blocks=[at for at, _ in living],
                    log_end=storage.entry_log.end,
                )
            )
        moved_bytes = sum(at.size for at in places)
        self.moved_bytes += moved_bytes
        if self._bytes_per_s:
            await asyncio.sleep(moved_bytes / self._bytes_per_s)
        return moved_bytes

    def _master_key(self, ledger_id: int) -> bytes:
        """Of a ledger whose block does not say it any more."""
        record = self._storage.index.ledger(ledger_id)
        assert record is not None, "a ledger with blocks has a record"
        return record.master_key

    async def _finish(self, number: int, ledger_ids: list[int]) -> None:
        """Remove an emptied log, after what else only it may say is said elsewhere too."""
        storage = self._storage
        async with self._checkpointer.lock:
            records = [
                record for ledger_id in ledger_ids for record in self._telling_record(ledger_id)
            ]
            if records:
                await storage.entry_log.append_ledgers(records)
            # With the log's own record, so that a start after a crash here removes the file.
            await storage.index.commit(
                Change(removed_logs=[number], log_end=storage.entry_log.end if records else None)
            )
            await storage.entry_log.remove(number)

    def _telling_record(self, ledger_id: int) -> list[LedgerRecord]:
        """The ledger's record, where it says what no block of entries would say after a rebuild."""
        record = self._storage.index.ledger(ledger_id)
        if record is None:
            return []
        is_telling = record.is_fenced or record.last_entry < 0 or bool(record.explicit_lac)
        return [record] if is_telling else []
