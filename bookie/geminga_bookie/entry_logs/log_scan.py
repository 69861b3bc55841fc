"""Reading an entry log from end to end, block by block, without the index.

A lost index is rebuilt from this, and compaction learns from it which blocks it must move. Entries
are not read where a block's header says all that is wanted.
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

# Headers are small and blocks are large: one small read for each block, with most tables in it.
_TABLE_PEEK_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ScannedBlock:
    """A block of entries, or a block of ledger records."""

    # The offset behind it.
    end: int
    # Which entries it spans, and where; None for ledger records.
    location: BlockLocation | None
    # Of the ledger whose entries they are; zeros for ledger records.
    master_key: bytes
    ledgers: tuple[LedgerRecord, ...] = ()


async def read_seed(file: DiskFile, path: str) -> int | None:
    """Read the seed of the file's block headers; None where none is found that fits them.

    A damaged file header is enough where the first block shows which of its bytes are right. Raises
    ``UnknownFormat``, ``OSError``.
    """
    head = await file.read(0, layout.FILE_HEADER_BYTES + layout.BLOCK_HEADER_BYTES)
    seed = layout.decode_file_header(path, head)
    # The header is good; or it was torn while the file was made, and then no block follows.
    if seed is not None or len(head) < layout.FILE_HEADER_BYTES:
        return seed
    # The damage is either in the checksum or in what it covers: unless both are, one of the seeds
    # fits.
    for possible in layout.possible_seeds(head):
        if layout.decode_block_header(path, possible, head, layout.FILE_HEADER_BYTES) is not None:
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
    """Yield the blocks of log ``number`` from ``begin`` up to ``end``, which is the end of a block.

    With ``end`` None, up to the end of the file, less a block there that a crash tore: it was being
    written by a checkpoint, so the journal still has its entries. Raises ``CorruptFile`` for damage
    in the middle, ``UnknownFormat``, ``OSError``.
    """
    limit = file.size if end is None else end
    offset = begin
    while offset < limit:
        # For each block, the scan reads its header and as much of its content as is needed, and
        # goes on to the next one by the size in the header.
        head = await file.read(offset, layout.BLOCK_HEADER_BYTES + _TABLE_PEEK_BYTES)
        header = layout.decode_block_header(path, seed, head, 0)
        if header is None or offset + layout.BLOCK_HEADER_BYTES + header.content_bytes > limit:
            # All blocks before a known end were durable: none of them may be torn.
            if end is not None:
                raise CorruptFile(path, offset, "a block is not what was written")
            # With a good block behind it, the bad one was good once too: appends are synced in
            # turn.
            if await next_block(file, seed, offset) is not None:
                what = "a block is not what was written, and another follows"
                raise CorruptFile(path, offset, what)
            log.warning(
                "entry log ends in the middle of a block: left out, the journal has it",
                extra={"file": path, "offset": offset, "left_out_bytes": file.size - offset},
            )
            return
        content = head[layout.BLOCK_HEADER_BYTES :]
        # A table of ids is believed where it fits its block's checksum, for which all of the block
        # is needed. What a dense block spans its header says.
        is_dense = header.kind == BlockKind.DENSE_ENTRIES
        needed = 0 if is_dense else header.content_bytes
        if len(content) < needed:
            content = await file.read(offset + layout.BLOCK_HEADER_BYTES, needed)
        content = content[: header.content_bytes]
        size = layout.BLOCK_HEADER_BYTES + header.content_bytes
        if header.kind == BlockKind.LEDGERS:
            records = layout.decode_ledgers(header, content)
            if records is None:
                raise CorruptFile(path, offset, "a block of ledgers is not what was written")
            yield ScannedBlock(offset + size, None, header.master_key, tuple(records))
        else:
            last_entry = _last_entry(header, content)
            location = BlockLocation(
                header.ledger_id, header.first_entry, last_entry, number, offset, size, header.count
            )
            yield ScannedBlock(location.end, location, header.master_key)
        offset += size


def _last_entry(header: BlockHeader, content: bytes) -> int:
    """The last entry that a block may hold; of a damaged one, more than it does hold."""
    last_entry = layout.decode_ids(header, content)[-1]
    if (
        header.kind == BlockKind.ENTRIES
        and not layout.is_content(header, content)
        and last_entry not in salvage_entries(header, content)
    ):
        # The entry there does not say itself that it is that one. The block may span more than its
        # damaged table says. A read of any such entry must be answered with an error: an answer
        # that it is not there would let recovery close the ledger before it.
        return header.first_entry + layout.BLOCK_SPAN_MAX - 1
    return last_entry


async def next_block(file: DiskFile, seed: int, offset: int) -> int | None:
    """Search for the first block behind ``offset``; None where there is none. Reads all of it."""
    found = layout.find_block_header(seed, await file.read(offset + 1, file.size))
    return None if found < 0 else offset + 1 + found
