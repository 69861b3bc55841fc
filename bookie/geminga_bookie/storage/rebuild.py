"""Making a lost index again from the entry logs, whose blocks say everything the index says.

The index is written part by part, and counts only when its last part has been committed: a crash in
between leaves an index without a version, which the next start clears and makes anew. Journal marks
are in no entry log, so the whole journal is replayed after a rebuild.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from geminga_bookie.entry_logs.entry_log import EntryLog
from geminga_bookie.entry_logs.log_lists import Loss
from geminga_bookie.entry_logs.log_scan import next_block, read_seed, scan_log
from geminga_bookie.errors import CorruptFile, EntriesLost
from geminga_bookie.formats import entry_log_v1 as layout
from geminga_bookie.formats.entry_log_v1 import LedgerRecord
from geminga_bookie.formats.index_v2 import BlockLocation, Counts, LogEnd
from geminga_bookie.index.index import Change, Index
from geminga_runtime.disk import DiskFile

log = logging.getLogger(__name__)

# The index gets so many blocks with one commit.
BLOCKS_PER_COMMIT = 10_000


async def rebuild_index(entry_log: EntryLog, index: Index, *, accepts_loss: bool = False) -> None:
    """Read every entry log there is, and write to ``index`` what is in it.

    The end of the last log that a crash tore is left out: the journal still has what was in it.
    Ledgers that were deleted before come back too; garbage collection deletes them again.

    Raises ``EntriesLost`` where a log is missing, or is damaged so that it does not tell what was
    in it; with ``accepts_loss`` the index is made of the rest. Raises ``OSError``.
    """
    # First: which logs there are, and which of those in the lists are missing.
    numbers = await entry_log.find()
    log.warning(
        "the index is missing: it is rebuilt from the entry logs",
        extra={"entry_logs": len(numbers)},
    )
    # It is empty, or holds what an earlier rebuild left that did not come to its end.
    index.clear()
    rebuild = _Rebuild(index, await entry_log.losses())
    # Only at the end of the last log that anything was written to may a block be torn.
    last_used = 0
    for number in reversed(entry_log.numbers):
        async with entry_log.opened(number) as file:
            if file.size > layout.FILE_HEADER_BYTES:
                last_used = number
                break
    # All logs, the oldest first: of two records of a ledger, the later one is the newer.
    for number in numbers:
        async with entry_log.opened(number) as file:
            path = entry_log.path(number)
            await rebuild.read_log(file, path, number, may_be_torn=number >= last_used)
    # The bookie refuses to start, or goes on with what there is: only the commit makes it an index.
    if rebuild.losses:
        loss = EntriesLost(
            [f"{each.path}: {each.what}" for each in rebuild.losses], rebuild.incomplete()
        )
        if not accepts_loss:
            raise loss
        log.error("the loss of entries is accepted, as the settings say: %s", loss)
        rebuild.forget_lost()
    await rebuild.commit()


@dataclass(slots=True, eq=False)
class _Rebuild:
    """What was read so far."""

    index: Index
    # Files that are missing or damaged, as far as known by now. The lists give the first of them;
    # reading the logs adds what is damaged.
    losses: list[Loss]
    # Blocks that are not committed yet.
    _blocks: list[BlockLocation] = field(init=False, default_factory=list)
    _ledgers: dict[int, LedgerRecord] = field(init=False, default_factory=dict)
    # By ledger: the highest entry that was found in a block. A record that says more than this has
    # lost the blocks between.
    _last_found: dict[int, int] = field(init=False, default_factory=dict)
    # Behind the last block of the last log that was read: checkpoints go on there. None while no
    # log had a good header.
    _end: LogEnd | None = field(init=False, default=None)
    _entry_count: int = field(init=False, default=0)

    async def read_log(self, file: DiskFile, path: str, number: int, *, may_be_torn: bool) -> None:
        """Note all blocks of a log; where it is damaged, go on at the next block that is found."""
        seed = await read_seed(file, path)
        if seed is None:
            # A file that was just being made has no whole header, and nothing behind it.
            if not may_be_torn or file.size > layout.FILE_HEADER_BYTES:
                self.losses.append(Loss(path, "its header is damaged"))
            return
        self._end = LogEnd(number, layout.FILE_HEADER_BYTES)
        end = None if may_be_torn else file.size
        # Damage does not end the reading: it goes on at the next block that is found, and each gap
        # is a loss of its own.
        begin: int | None = layout.FILE_HEADER_BYTES
        while begin is not None:
            try:
                scan = scan_log(file, path, number, seed, begin=begin, end=end)
                async with aclosing(scan) as blocks:
                    async for block in blocks:
                        self._end = LogEnd(number, block.end)
                        for record in block.ledgers:
                            self._note_ledger(record)
                        if block.location is not None:
                            self._note_block(block.location, block.master_key)
                        if len(self._blocks) >= BLOCKS_PER_COMMIT:
                            # So many that memory stays small while a large disk is read.
                            await self._commit_blocks()
                break
            except CorruptFile as damage:
                begin = await next_block(file, seed, damage.offset)
                behind = "its end" if begin is None else f"byte {begin}"
                what = f"it is damaged from byte {damage.offset} to {behind}"
                self.losses.append(Loss(path, what))
        await self._commit_blocks()

    async def commit(self) -> None:
        """Tell the index the rest; only now does it count as an index."""
        ledgers = [self._ledgers[ledger_id] for ledger_id in sorted(self._ledgers)]
        counts = Counts(len(ledgers), self._entry_count)
        await self.index.commit(Change(ledgers=ledgers, log_end=self._end, counts=counts))

    def _note_block(self, at: BlockLocation, master_key: bytes) -> None:
        self._entry_count += at.entries
        self._blocks.append(at)
        found = self._last_found.get(at.ledger_id, -1)
        self._last_found[at.ledger_id] = max(found, at.last_entry)
        self._note_ledger(
            LedgerRecord(at.ledger_id, master_key, is_fenced=False, last_entry=at.last_entry)
        )

    async def _commit_blocks(self) -> None:
        # Flushed and not committed: without a version it is no index yet.
        self.index.note(Change(blocks=self._blocks, log_end=self._end))
        await self.index.store.flush()
        self._blocks = []

    def _note_ledger(self, record: LedgerRecord) -> None:
        # Of two records the later one is newer. But what stands for a record here may come from a
        # block of entries, which says nothing of fences and explicit LACs; and compaction copies
        # blocks to later logs. So the fence and the last entry only ever grow.
        known = self._ledgers.get(record.ledger_id, record)
        self._ledgers[record.ledger_id] = replace(
            record,
            is_fenced=record.is_fenced or known.is_fenced,
            last_entry=max(record.last_entry, known.last_entry),
            explicit_lac=record.explicit_lac or known.explicit_lac,
        )

    def incomplete(self) -> list[int]:
        """The ledgers that lack their end.

        Some of them may have been deleted, and their logs removed for that.
        """
        return [
            ledger_id
            for ledger_id, record in sorted(self._ledgers.items())
            if record.last_entry > self._last_found.get(ledger_id, -1)
        ]

    def forget_lost(self) -> None:
        """Let ledgers end where what was found of them does."""
        for ledger_id in self.incomplete():
            last_entry = self._last_found.get(ledger_id, -1)
            self._ledgers[ledger_id] = replace(self._ledgers[ledger_id], last_entry=last_entry)
