"""Decompresses records of managed ledgers and cursors, and bodies of messages.

Pulsar compresses these records where ``managedLedgerInfoCompressionType`` or
``managedCursorInfoCompressionType`` names one of four algorithms. All four are read and none is
written, because Pulsar reads plain records whatever its settings are. Facts: ``MetaStoreImpl`` of
Apache Pulsar, the formats of raw LZ4 blocks (lz4_Block_format.md) and of raw Snappy
(format_description.txt). LZ4 and Snappy are implemented here in Python: a record has some ten
kilobytes and is read once. Zstandard needs the package ``zstandard``.
"""

from __future__ import annotations

import struct
import zlib

from geminga_protocol.records.encodings.protobuf_records import parse_message
from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord
from geminga_protocol.records.managed_ledgers_pb2 import CompressionType, ManagedCursorInfoMetadata

# +--------+---------------+----------+------------+
# | magic  | metadata size | metadata | compressed |      no protobuf message begins with the magic
# | 0x4778 |      u32      |          |            |
# +--------+---------------+----------+------------+
#  The metadata names the algorithm and the size of the record without compression.
COMPRESSED_MAGIC = b"\x47\x78"
HEAD = struct.Struct(">2sI")
assert HEAD.size == 6

# More than any record has: a ZooKeeper node takes 1 MiB, to which ten times as much can shrink. A
# damaged or hostile record must not make a broker allocate without bound.
UNCOMPRESSED_BYTES_MAX = 64 * 1024 * 1024


class _DamageError(Exception):
    """The compressed bytes break the format of their algorithm."""


def uncompressed(value: bytes, record: str) -> bytes:
    """The plain record, whether ``value`` is compressed or not; ``record`` names it in errors.

    Raises ``MalformedRecord``, and ``UnsupportedRecord`` where a package is missing.
    """
    # The magic is no possible beginning: 0x47 would be a tag of field 8 with wire type 7, which
    # protobuf does not have.
    if not value.startswith(COMPRESSED_MAGIC):
        return value
    if len(value) < HEAD.size:
        raise MalformedRecord(record, "its compression's head is cut off")
    _, metadata_bytes = HEAD.unpack_from(value)
    # A size beyond the end cuts out less than it says; the metadata then does not parse, or what is
    # left to decompress has the wrong size.
    end = HEAD.size + metadata_bytes
    # The metadata of managed ledgers has the same fields under another name.
    metadata = parse_message(ManagedCursorInfoMetadata, value[HEAD.size : end], record)
    size_bytes = metadata.uncompressedSize
    if not 0 <= size_bytes <= UNCOMPRESSED_BYTES_MAX:
        raise MalformedRecord(record, f"uncompressed it would have {size_bytes} bytes")
    return inflate(metadata.compressionType, value[end:], size_bytes, record)


def inflate(kind: int, packed: bytes, size_bytes: int, record: str) -> bytes:
    """Decompress ``packed`` into ``size_bytes`` bytes; ``record`` names it in errors.

    ``kind`` is a ``CompressionType``; messages and records use the same numbers. At most
    one byte more than ``size_bytes`` is produced, so a small input cannot fill the memory.

    Raises ``MalformedRecord``, and ``UnsupportedRecord`` where a package is missing.
    """
    # Each algorithm stops at the announced size or one byte behind it; callers bound that size
    # before they call.
    try:
        match kind:
            case CompressionType.LZ4:
                body = _inflate_lz4(packed, size_bytes)
            case CompressionType.SNAPPY:
                body = _inflate_snappy(packed, size_bytes)
            case CompressionType.ZLIB:
                # One byte more than announced, so that a larger content is noticed below.
                body = zlib.decompressobj().decompress(packed, size_bytes + 1)
            case CompressionType.ZSTD:
                body = _inflate_zstd(packed, size_bytes, record)
            case _:
                body = packed
    except (_DamageError, IndexError, zlib.error) as error:
        raise MalformedRecord(record, f"its compression is damaged: {error}") from error
    # For all algorithms alike. A record of another size than it names is damaged, and half of a
    # topic's ledgers would be worse than none.
    if len(body) != size_bytes:
        raise MalformedRecord(record, f"uncompressed it has not the {size_bytes} bytes it names")
    return body


def _inflate_zstd(packed: bytes, size_bytes: int, record: str) -> bytes:
    try:
        import zstandard  # noqa: PLC0415 -- the client library does without
    except ImportError as error:
        raise UnsupportedRecord(
            record, "it is compressed with ZSTD: install the package zstandard"
        ) from error
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            return reader.read(size_bytes + 1)
    except zstandard.ZstdError as error:
        raise _DamageError(error) from error


def _copy_back(out: bytearray, offset: int, length: int, size_bytes: int) -> None:
    """Append ``length`` bytes that begin ``offset`` bytes before the end of ``out``.

    With a ``length`` larger than ``offset`` the copy overlaps itself: it repeats.
    """
    if not 0 < offset <= len(out) or len(out) + length > size_bytes:
        raise _DamageError("a copy reaches beyond the record")
    start = len(out) - offset
    # Where it does not overlap, the chunk has ``length`` bytes and ``length // offset`` is 0 or 1.
    # Repeating the chunk as a whole is done in C, where byte by byte would be a loop in Python.
    chunk = out[start : start + length]
    out += (chunk * (length // offset + 1))[:length]


def _copy_literals(out: bytearray, packed: bytes, at: int, length: int, size_bytes: int) -> int:
    """Append ``length`` bytes of ``packed`` from ``at`` on; return where they end."""
    if at + length > len(packed) or len(out) + length > size_bytes:
        raise _DamageError("literal bytes reach beyond the record")
    out += packed[at : at + length]
    return at + length


def _inflate_lz4(packed: bytes, size_bytes: int) -> bytes:
    """Decompress a raw LZ4 block, a series of sequences."""
    # +-------------------------+------------+----------+---------+------------+
    # | token: u4 literals,     | more of    | literals | offset  | more of    |
    # |        u4 copy - 4      | literals   |          | u16, LE | copy       |
    # +-------------------------+------------+----------+---------+------------+
    # A length of 15 in the token is continued: bytes are added until one is not 255.
    out = bytearray()
    # ``at`` grows in every round, so the loop ends with the input however damaged it is.
    at = 0
    while at < len(packed):
        token = packed[at]
        length, at = _lz4_length(packed, at + 1, token >> 4)
        at = _copy_literals(out, packed, at, length, size_bytes)
        # The last sequence ends with its literals.
        if at == len(packed):
            break
        # An index beyond the end raises IndexError, which ``inflate`` reports as damage.
        offset = packed[at] | packed[at + 1] << 8
        length, at = _lz4_length(packed, at + 2, token & 15)
        _copy_back(out, offset, length + 4, size_bytes)
    return bytes(out)


def _lz4_length(packed: bytes, at: int, length: int) -> tuple[int, int]:
    """The length that begins with ``length`` of the token, and the position behind it."""
    if length == 15:
        while (more := packed[at]) == 255:
            length += 255
            at += 1
        length += more
        at += 1
    return length, at


def _inflate_snappy(packed: bytes, size_bytes: int) -> bytes:
    """Decompress raw Snappy: the size as a varint, then elements that begin with a tag byte."""
    # By the lowest two bits of the tag:
    #   0  literals; the upper six bits are their number - 1, or 59 + bytes of that number
    #   1  copy of 4 to 11 bytes; bits 2..4 are the length - 4, bits 5..7 and a byte the offset
    #   2  copy of 1 to 64 bytes; the upper six bits are the length - 1, two bytes the offset
    #   3  the same with four bytes of offset
    # The size is skipped: the metadata has it too, and ``inflate`` compares it with the result.
    at = 0
    while packed[at] & 0x80:
        at += 1
    at += 1
    out = bytearray()
    while at < len(packed):
        tag = packed[at]
        kind, length = tag & 3, tag >> 2
        at += 1
        if kind == 0:
            if length >= 60:
                end = at + length - 59
                length, at = int.from_bytes(packed[at:end], "little"), end
            at = _copy_literals(out, packed, at, length + 1, size_bytes)
        elif kind == 1:
            offset = (tag >> 5) << 8 | packed[at]
            at += 1
            _copy_back(out, offset, (length & 7) + 4, size_bytes)
        else:
            end = at + (2 if kind == 2 else 4)
            # A slice that is cut off gives a smaller offset; the size of the result then shows the
            # damage.
            offset, at = int.from_bytes(packed[at:end], "little"), end
            _copy_back(out, offset, length + 1, size_bytes)
    return bytes(out)
