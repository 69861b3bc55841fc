"""Going through an entry log block by block, without the entries: what a log says of itself.

A lost index is rebuilt from this, and compaction learns from it what it must move.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from geminga_bookie.errors import CorruptFile
from geminga_bookie.formats import entry_log_v1 as layout
from geminga_bookie.formats.entry_log_v1 import BlockHeader, BlockKind, LedgerRecord
from geminga_bookie.formats.index_v2 import BlockLocation
from geminga_bookie.formats.salvage_v1 import salvage_entries
from geminga_runtime.disk import DiskFile

log = logging.getLogger(__name__)

# Headers are small and blocks are large: one small read for each block.
_TABLE_PEEK_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ScannedBlock:
    """A block of entries, with its ledger's master key; or, ``location`` None, ledger records.

    ``end`` is the offset behind it.
    """

    end: int
    location: BlockLocation | None
    master_key: bytes
    ledgers: tuple[LedgerRecord, ...] = ()


async def read_seed(file: DiskFile, path: str) -> int | None:
    """The seed of the file's block headers; None where there is none that fits them.

    A damaged file header is enough where the first block shows which of its bytes are right. Raises
    ``UnknownFormat``, ``OSError``.
    """
    head = await file.read(0, layout.FILE_HEADER_BYTES + layout.BLOCK_HEADER_BYTES)
    seed = layout.decode_file_header(path, head)
    if seed is not None or len(head) < layout.FILE_HEADER_BYTES:
        return seed
    for possible in layout.possible_seeds(head):
        if layout.decode_block_header(possible, head, layout.FILE_HEADER_BYTES) is not None:
            log.error("entry log has a damaged file header", extra={"file": path})
            return possible
    return None


async def scan_log(
    file: DiskFile,
    path: str,
    number: int,
    seed: int,
    *,
    begin: int = layout.FILE_HEADER_BYTES,
    end: int | None = None,
) -> AsyncGenerator[ScannedBlock, None]:
    """The blocks of log ``number`` from ``begin`` up to ``end``, which is where one ends.

    None: up to the end of the file, less a block that a crash tore. Raises ``CorruptFile`` for
    damage in the middle, ``OSError``.
    """
    limit = file.size if end is None else end
    offset = begin
    while offset < limit:
        head = await file.read(offset, layout.BLOCK_HEADER_BYTES + _TABLE_PEEK_BYTES)
        header = layout.decode_block_header(seed, head, 0)
        if header is None or offset + layout.BLOCK_HEADER_BYTES + header.content_bytes > limit:
            if end is not None:
                raise CorruptFile(path, offset, "a block is not what was written")
            await _require_torn_tail(file, path, offset, seed)
            return
        content = head[layout.BLOCK_HEADER_BYTES :]
        # A list of ids is believed where it fits its block's checksum, or the entries; all else the
        # header says.
        is_dense = header.kind == BlockKind.DENSE_ENTRIES
        needed = 0 if is_dense else header.content_bytes
        if len(content) < needed:
            content = await file.read(offset + layout.BLOCK_HEADER_BYTES, needed)
        block = _scanned(path, number, offset, header, content[: header.content_bytes])
        yield block
        offset = block.end


async def next_block(file: DiskFile, seed: int, offset: int) -> int | None:
    """Where the first block behind ``offset`` begins; None where there is none. Reads it all."""
    found = layout.find_block_header(seed, await file.read(offset + 1, file.size))
    return None if found < 0 else offset + 1 + found


def _scanned(
    path: str, number: int, offset: int, header: BlockHeader, content: bytes
) -> ScannedBlock:
    size = layout.BLOCK_HEADER_BYTES + header.content_bytes
    if header.kind == BlockKind.LEDGERS:
        records = layout.decode_ledgers(header, content)
        if records is None:
            raise CorruptFile(path, offset, "a block of ledgers is not what was written")
        return ScannedBlock(offset + size, None, header.master_key, tuple(records))
    last_entry = layout.decode_last_entry(header, content)
    if (
        header.kind == BlockKind.ENTRIES
        and not layout.is_content(header, content)
        and last_entry not in salvage_entries(header, content)
    ):
        # Its last entry does not say itself that it is that one. The block may span more than its
        # damaged table says: whoever asks for any such entry must hear that it cannot be read, and
        # not that there is none.
        last_entry = header.first_entry + layout.BLOCK_SPAN_MAX - 1
    location = BlockLocation(
        header.ledger_id, header.first_entry, last_entry, number, offset, size, header.count
    )
    return ScannedBlock(location.end, location, header.master_key)


async def _require_torn_tail(file: DiskFile, path: str, offset: int, seed: int) -> None:
    if await next_block(file, seed, offset) is not None:
        raise CorruptFile(path, offset, "a block is not what was written, and another follows")
    log.warning(
        "entry log ends in the middle of a block: left out, the journal has it",
        extra={"file": path, "offset": offset, "left_out_bytes": file.size - offset},
    )
