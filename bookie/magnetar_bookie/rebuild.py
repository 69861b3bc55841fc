"""Making a lost index again from the entry logs, whose blocks say everything the index says."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from magnetar_bookie.errors import CorruptFile
from magnetar_bookie.formats import entry_log_v1 as layout
from magnetar_bookie.formats.entry_log_v1 import BlockHeader, BlockKind, LedgerRecord
from magnetar_bookie.index import BlockLocation, Checkpoint, Counts, Index, LogEnd
from magnetar_runtime.disk import Disk, DiskFile

log = logging.getLogger(__name__)

# Headers are small and blocks are large: one small read for each block.
_TABLE_PEEK_BYTES = 16 * 1024
# The index is told of so many blocks at a time.
BLOCKS_PER_COMMIT = 10_000


async def rebuild_index(disk: Disk, index: Index, numbers: list[int]) -> None:
    """Read every entry log in ``numbers`` and tell ``index`` what is in it.

    The end of a log that a crash tore is left out: the journal still has what was in it.
    Raises ``CorruptFile`` for damage in the middle of a log, ``OSError``.
    """
    log.warning("the index is missing: it is rebuilt", extra={"entry_logs": len(numbers)})
    rebuild = _Rebuild(index)
    for number in numbers:
        path = layout.file_name(number)
        file = await disk.open(path)
        try:
            await rebuild.read_log(file, path, number)
        finally:
            await file.close()
    await rebuild.commit()


class _Rebuild:
    """What was read so far: blocks not committed yet, ledgers, and the end of the last log."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._blocks: list[BlockLocation] = []
        self._ledgers: dict[int, LedgerRecord] = {}
        self._end: LogEnd | None = None
        self._entry_count = 0

    async def read_log(self, file: DiskFile, path: str, number: int) -> None:
        seed = layout.decode_file_header(path, await file.read(0, layout.FILE_HEADER_BYTES))
        if seed is None:
            if file.size > layout.FILE_HEADER_BYTES:
                raise CorruptFile(path, 0, "the file's header is not what was written")
            return
        self._end = LogEnd(number, layout.FILE_HEADER_BYTES)
        async with aclosing(_blocks_of(file, path, seed)) as blocks:
            async for offset, header, content in blocks:
                size = layout.BLOCK_HEADER_BYTES + header.content_bytes
                self._end = LogEnd(number, offset + size)
                if header.kind == BlockKind.LEDGERS:
                    self._note_ledgers(path, offset, header, content)
                    continue
                self._entry_count += header.count
                last_entry = layout.decode_last_entry(header, content)
                self._blocks.append(
                    BlockLocation(
                        header.ledger_id, header.first_entry, last_entry, number, offset, size
                    )
                )
                self._note_ledger(
                    LedgerRecord(
                        header.ledger_id, header.master_key, is_fenced=False, last_entry=last_entry
                    )
                )
                if len(self._blocks) >= BLOCKS_PER_COMMIT:
                    await self._commit_blocks()

    async def commit(self) -> None:
        """Tell the index the rest; only now does it count as an index."""
        ledgers = [self._ledgers[ledger_id] for ledger_id in sorted(self._ledgers)]
        counts = Counts(len(ledgers), self._entry_count)
        await self._index.commit(Checkpoint(self._blocks, ledgers, self._end, None, counts))

    async def _commit_blocks(self) -> None:
        await self._index.commit_blocks(self._blocks)
        self._blocks = []

    def _note_ledgers(self, path: str, offset: int, header: BlockHeader, content: bytes) -> None:
        records = layout.decode_ledgers(header, content)
        if records is None:
            raise CorruptFile(path, offset, "a block of ledgers is not what was written")
        for record in records:
            self._note_ledger(record)

    def _note_ledger(self, record: LedgerRecord) -> None:
        known = self._ledgers.get(record.ledger_id, record)
        self._ledgers[record.ledger_id] = replace(
            record,
            is_fenced=record.is_fenced or known.is_fenced,
            last_entry=max(record.last_entry, known.last_entry),
            explicit_lac=record.explicit_lac or known.explicit_lac,
        )


async def _blocks_of(
    file: DiskFile, path: str, seed: int
) -> AsyncGenerator[tuple[int, BlockHeader, bytes], None]:
    """Offset, header and (the beginning of) the content of each block of a log."""
    offset = layout.FILE_HEADER_BYTES
    while offset < file.size:
        head = await file.read(offset, layout.BLOCK_HEADER_BYTES + _TABLE_PEEK_BYTES)
        header = layout.decode_block_header(seed, head, 0)
        if header is None or offset + layout.BLOCK_HEADER_BYTES + header.content_bytes > file.size:
            await _require_torn_tail(file, path, offset, seed)
            return
        content = head[layout.BLOCK_HEADER_BYTES :]
        needed = layout.table_bytes(header)
        if len(content) < needed:
            content = await file.read(offset + layout.BLOCK_HEADER_BYTES, needed)
        yield offset, header, content[: header.content_bytes]
        offset += layout.BLOCK_HEADER_BYTES + header.content_bytes


async def _require_torn_tail(file: DiskFile, path: str, offset: int, seed: int) -> None:
    tail = await file.read(offset + 1, file.size)
    if layout.find_block_header(seed, tail) >= 0:
        raise CorruptFile(path, offset, "a block is not what was written, and another follows")
    log.warning(
        "entry log ends in the middle of a block: left out, the journal has it",
        extra={"file": path, "offset": offset, "left_out_bytes": file.size - offset},
    )
