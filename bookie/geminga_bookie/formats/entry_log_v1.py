"""The entry log's layout, version 1: blocks of one ledger's entries, each block checksummed.

A checkpoint writes the entries that a ledger got since the last one as blocks of neighbouring
entries. A block is found with one index record, read with one disk read, and checked as a whole; a
reader that goes on finds the next entries in the block it has. Blocks say everything the index
says, so that a lost index can be rebuilt from them. Files and positions are the business of
``entry_log``.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from struct import Struct

from crc32c import crc32c

from geminga_bookie.errors import UnknownFormat
from geminga_protocol.bookkeeper.digest import MASTER_KEY_BYTES

SUFFIX = ".entries"
VERSION = 1

# A file:
# +----------+---------+----------+-------------+------------+--------+-------+------
# | magic    | version | (unused) | file number | created ms | crc32c | block | block ...
# |  8 bytes |  u16    |  u16     |  u64        |  u64       |  u32   |       |
# +----------+---------+----------+-------------+------------+--------+-------+------
#  crc32c covers the 28 bytes before it and is the seed of the blocks' header checksums.
_FILE_HEADER = Struct(">8sHHQQI")
FILE_HEADER_BYTES = 32
FILE_MAGIC = b"GMNGENTR"
assert _FILE_HEADER.size == FILE_HEADER_BYTES

# A block:
# +-------+------+----------+-------+-----------+-------------+----------------+
# | magic | kind | (unused) | count | ledger_id | first entry | content bytes  |
# |  u32  |  u8  |  3 bytes |  u32  |  i64      |  i64        |  u32           |
# +-------+------+----------+-------+-----------+-------------+----------------+
# +------------+----------------+---------------+-------+---------+
# | master key | content crc32c | header crc32c | table | entries |
# |  20 bytes  |  u32           |  u32          |      content    |
# +------------+----------------+---------------+-------+---------+
#  ENTRIES: the table holds each id, rising, less the first one (u32 each), then each entry's size
#           (u32 each). The entries follow.
#  DENSE_ENTRIES: each id is the one before plus one, and the table holds the sizes only.
#  LEDGERS: the content is `count` ledger records; ledger_id, first entry and master key are zero.
_BLOCK_HEADER = Struct(">IB3xIqqI20sII")
BLOCK_HEADER_BYTES = 60
BLOCK_MAGIC = 0x4D475442
_BLOCK_MAGIC_BYTES = BLOCK_MAGIC.to_bytes(4, "big")
_HEADER_CRC_BYTES = 4
assert _BLOCK_HEADER.size == BLOCK_HEADER_BYTES

# A ledger record:
# +-----------+------------+-------+------------+------------------------+
# | ledger_id | master key | flags | last entry | explicit LAC           |
# |  i64      |  20 bytes  |  u8   |  i64       | size u16, body         |
# +-----------+------------+-------+------------+------------------------+
#  flags: 1 fenced, 2 the explicit last-add-confirmed is there (without the flag: no byte of it)
#  last entry is -1 where there is none; it is the last one in all entry logs, not in this one
_LEDGER_RECORD = Struct(">q20sBq")
LEDGER_RECORD_BYTES_MIN = 37
_FENCED = 1
_HAS_EXPLICIT_LAC = 2
_EXPLICIT_LAC_SIZE = Struct(">H")
assert _LEDGER_RECORD.size == LEDGER_RECORD_BYTES_MIN

TABLE_ROW_BYTES = 4
# Entries of this size on average are written where they lie; smaller ones are joined first, since
# each piece costs as much as copying some KiB.
_PIECE_BYTES_MIN = 8 * 1024

# A lookup that finds no entry looks at blocks that begin up to this many ids before it. The bound
# costs little: a ledger of which this bookie has every tenth entry still gets blocks of some 400.
BLOCK_SPAN_MAX = 4096


class BlockKind(IntEnum):
    """What a block holds, and how its table looks."""

    ENTRIES = 1
    DENSE_ENTRIES = 2
    LEDGERS = 3


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The fields of a block's header."""

    kind: BlockKind
    # Entries, or ledger records.
    count: int
    ledger_id: int
    first_entry: int
    # Of what follows the header: the table and the entries.
    content_bytes: int
    master_key: bytes
    content_crc: int


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """What must be known of a ledger besides its entries."""

    ledger_id: int
    master_key: bytes
    is_fenced: bool
    # The highest entry id in the entry logs; -1 for none.
    last_entry: int
    # As the writer sent it; empty for none.
    explicit_lac: bytes = b""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of entries that is ready to be written."""

    ledger_id: int
    # The ids that it spans, with holes where the ledger's entries are striped over other bookies.
    first_entry: int
    last_entry: int
    count: int
    # The table and the entries, in pieces of ``content_bytes`` together.
    pieces: Sequence[bytes]
    content_bytes: int
    # There are no holes.
    is_dense: bool
    # Set where the content was read from another log. Its checksum goes with it, and is not
    # computed anew: content that was damaged stays known to be.
    content_crc: int | None = None


def file_name(number: int) -> str:
    """The name of entry log ``number``; names sort like numbers."""
    return f"{number:012d}{SUFFIX}"


def file_number(name: str) -> int | None:
    """The number in an entry log's name; None for any other file."""
    digits = name.removesuffix(SUFFIX)
    return int(digits) if digits != name and digits.isdecimal() else None


def encode_file_header(number: int, created_ms: int) -> bytes:
    """The bytes a new file begins with."""
    checked: bytes = _FILE_HEADER.pack(FILE_MAGIC, VERSION, 0, number, created_ms, 0)[:-4]
    return checked + int(crc32c(checked)).to_bytes(4, "big")


def decode_file_header(path: str, content: bytes) -> int | None:
    """The seed of the file's block headers; None where the header is torn or damaged.

    Raises ``UnknownFormat`` for a whole header of another kind or version.
    """
    if len(content) < FILE_HEADER_BYTES:
        return None
    magic, version, _, _, _, seed = _FILE_HEADER.unpack_from(content)
    if crc32c(content[: FILE_HEADER_BYTES - 4]) != seed:
        return None
    if magic != FILE_MAGIC or version != VERSION:
        raise UnknownFormat(path, f"it is no entry log of version {VERSION}")
    return int(seed)


def possible_seeds(content: bytes) -> tuple[int, int]:
    """The two seeds that a damaged file header may mean: as it stands, and as computed anew."""
    checked = content[: FILE_HEADER_BYTES - _HEADER_CRC_BYTES]
    return int(_FILE_HEADER.unpack_from(content)[-1]), int(crc32c(checked))


def cut_blocks(ledger_id: int, entries: Mapping[int, bytes], block_bytes: int) -> Iterator[Block]:
    """Lay out a ledger's entries as blocks with about ``block_bytes`` of entries, ids rising.

    A block holds at least one entry, and spans at most ``BLOCK_SPAN_MAX`` ids.
    """
    # Where a block ends is found by bisection in the running sums of the sizes: HOT, a checkpoint
    # does this for every entry.
    ids = sorted(entries)
    parts = list(map(entries.__getitem__, ids))
    ends = list(accumulate(map(len, parts)))
    low = 0
    base = 0
    while low < len(ids):
        first = ids[low]
        # The entry with which the block reaches its size is the last one in it.
        high = bisect_left(ends, base + block_bytes, low) + 1
        # One entry stays at least: ``first`` itself is below that bound.
        high = min(high, bisect_left(ids, first + BLOCK_SPAN_MAX, low))
        last = ids[high - 1]
        count = high - low
        # The ids are rising and all different, so that the ends and the count say whether there are
        # holes.
        is_dense = last - first == count - 1
        table = [] if is_dense else [entry_id - first for entry_id in ids[low:high]]
        table += map(len, parts[low:high])
        size = len(table) * TABLE_ROW_BYTES + ends[high - 1] - base
        pieces = [struct.pack(f">{len(table)}I", *table), *parts[low:high]]
        if size < count * _PIECE_BYTES_MIN:
            pieces = [b"".join(pieces)]
        yield Block(ledger_id, first, last, count, pieces, size, is_dense)
        base = ends[high - 1]
        low = high


def encode_block_header(seed: int, block: Block, master_key: bytes) -> bytes:
    """The 60 bytes before a block of entries."""
    kind = BlockKind.DENSE_ENTRIES if block.is_dense else BlockKind.ENTRIES
    content_crc = block.content_crc
    if content_crc is None:
        content_crc = 0
        for piece in block.pieces:
            content_crc = crc32c(piece, content_crc)
    return _encode_header(
        seed,
        BlockHeader(
            kind,
            block.count,
            block.ledger_id,
            block.first_entry,
            block.content_bytes,
            master_key,
            content_crc,
        ),
    )


def encode_ledgers(seed: int, records: Sequence[LedgerRecord]) -> bytes:
    """A whole block of ledger records."""
    content = b"".join(map(encode_ledger_record, records))
    key = bytes(MASTER_KEY_BYTES)
    header = BlockHeader(BlockKind.LEDGERS, len(records), 0, 0, len(content), key, crc32c(content))
    return _encode_header(seed, header) + content


def _encode_header(seed: int, header: BlockHeader) -> bytes:
    checked: bytes = _BLOCK_HEADER.pack(
        BLOCK_MAGIC,
        header.kind,
        header.count,
        header.ledger_id,
        header.first_entry,
        header.content_bytes,
        header.master_key,
        header.content_crc,
        0,
    )[:-_HEADER_CRC_BYTES]
    return checked + int(crc32c(checked, seed)).to_bytes(_HEADER_CRC_BYTES, "big")


def decode_block_header(path: str, seed: int, buffer: bytes, offset: int) -> BlockHeader | None:
    """The block header at ``offset``; None where there is no whole and right one.

    Raises ``UnknownFormat`` for a block of another kind than those above: a newer program wrote it.
    """
    if not _is_block_header(seed, buffer, offset):
        return None
    # The kind is believed only now, after the checksum.
    _, number, count, ledger_id, first, content_bytes, key, content_crc, _ = (
        _BLOCK_HEADER.unpack_from(buffer, offset)
    )
    try:
        kind = BlockKind(number)
    except ValueError as error:
        raise UnknownFormat(path, f"a block of kind {number} is not known") from error
    return BlockHeader(kind, count, ledger_id, first, content_bytes, key, content_crc)


def _is_block_header(seed: int, buffer: bytes, offset: int) -> bool:
    """Whether a whole and right block header of any kind is at ``offset``."""
    end = offset + BLOCK_HEADER_BYTES
    if len(buffer) < end or not buffer.startswith(_BLOCK_MAGIC_BYTES, offset):
        return False
    checked_end = end - _HEADER_CRC_BYTES
    header_crc = int.from_bytes(buffer[checked_end:end], "big")
    return bool(crc32c(buffer[offset:checked_end], seed) == header_crc)


def raw_content_crc(block: bytes) -> int:
    """The checksum of a block's content as its header has it, which may be damaged."""
    return int(_BLOCK_HEADER.unpack_from(block)[-2])


def find_block_header(seed: int, buffer: bytes) -> int:
    """The offset of the first block header anywhere in ``buffer``; -1 where there is none."""
    offset = buffer.find(_BLOCK_MAGIC_BYTES)
    while offset >= 0 and not _is_block_header(seed, buffer, offset):
        offset = buffer.find(_BLOCK_MAGIC_BYTES, offset + 1)
    return offset


def decode_entries(header: BlockHeader, block: bytes, offset: int) -> dict[int, bytes] | None:
    """The entries, by id, of the content that ``block`` has from ``offset`` to its end.

    None where the content is not what was written.
    """
    # A view, so that the checksum is computed without a copy of the block.
    content = memoryview(block)[offset:]
    if len(content) != header.content_bytes or crc32c(content) != header.content_crc:
        return None
    count = header.count
    # The sums need no check: with the right checksum the content is what ``cut_blocks`` made.
    table = struct.unpack_from(f">{_table_rows(header)}I", content)
    start = offset + len(table) * TABLE_ROW_BYTES
    first = header.first_entry
    deltas = range(count) if header.kind == BlockKind.DENSE_ENTRIES else table[:count]
    entries: dict[int, bytes] = {}
    for delta, size in zip(deltas, table[-count:], strict=True):
        end = start + size
        entries[first + delta] = block[start:end]
        start = end
    return entries


def is_content(header: BlockHeader, content: bytes) -> bool:
    """Whether ``content`` is what was written behind ``header``."""
    return len(content) == header.content_bytes and bool(crc32c(content) == header.content_crc)


def table_bytes(header: BlockHeader) -> int:
    """How much of a block's content is its table, or its records."""
    if header.kind == BlockKind.LEDGERS:
        return header.content_bytes
    return _table_rows(header) * TABLE_ROW_BYTES


def decode_ids(header: BlockHeader, table: bytes) -> Sequence[int]:
    """The entry ids of a block, rising, from the beginning of its content (its table)."""
    first, count = header.first_entry, header.count
    if header.kind == BlockKind.DENSE_ENTRIES:
        return range(first, first + count)
    return [first + delta for delta in struct.unpack_from(f">{count}I", table)]


def _table_rows(header: BlockHeader) -> int:
    return header.count * (1 if header.kind == BlockKind.DENSE_ENTRIES else 2)


def encode_ledger_record(record: LedgerRecord) -> bytes:
    """A ledger record's bytes; the index keeps the same."""
    said = record.explicit_lac
    flags = (_FENCED if record.is_fenced else 0) | (_HAS_EXPLICIT_LAC if said else 0)
    fixed: bytes = _LEDGER_RECORD.pack(
        record.ledger_id, record.master_key, flags, record.last_entry
    )
    return fixed + _EXPLICIT_LAC_SIZE.pack(len(said)) + said if said else fixed


def decode_ledger_record(buffer: bytes, offset: int = 0) -> LedgerRecord:
    """The ledger record at ``offset`` of bytes that were checked."""
    ledger_id, master_key, flags, last_entry = _LEDGER_RECORD.unpack_from(buffer, offset)
    said = b""
    if flags & _HAS_EXPLICIT_LAC:
        start = offset + LEDGER_RECORD_BYTES_MIN + _EXPLICIT_LAC_SIZE.size
        (size,) = _EXPLICIT_LAC_SIZE.unpack_from(buffer, start - _EXPLICIT_LAC_SIZE.size)
        said = buffer[start : start + size]
    return LedgerRecord(ledger_id, master_key, bool(flags & _FENCED), last_entry, said)


def decode_ledgers(header: BlockHeader, content: bytes) -> list[LedgerRecord] | None:
    """The records of a block of ledgers; None where the content is not what was written."""
    if not is_content(header, content):
        return None
    records: list[LedgerRecord] = []
    offset = 0
    for _ in range(header.count):
        record = decode_ledger_record(content, offset)
        offset += LEDGER_RECORD_BYTES_MIN
        if record.explicit_lac:
            offset += _EXPLICIT_LAC_SIZE.size + len(record.explicit_lac)
        records.append(record)
    return records
