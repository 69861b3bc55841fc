"""Compressed records of managed ledgers and cursors, as Pulsar writes them where it is told to.

``managedLedgerInfoCompressionType`` and ``managedCursorInfoCompressionType`` choose among four;
all are read, none is written: Pulsar reads plain records whatever it is set to. Facts:
``MetaStoreImpl`` of Apache Pulsar, the formats of raw LZ4 blocks (lz4_Block_format.md) and of raw
Snappy (format_description.txt). LZ4 and Snappy are taken apart here, since a record has some ten
kilobytes and is read once; Zstandard needs the package ``zstandard``.
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
COMPRESSED_MAGIC = b"\x47\x78"
HEAD = struct.Struct(">2sI")
assert HEAD.size == 6

# More no record has: ZooKeeper gives a node 1 MiB, and what is in it shrinks to a tenth at best.
UNCOMPRESSED_BYTES_MAX = 64 * 1024 * 1024


class _DamageError(Exception):
    """The compressed bytes make no sense."""


def uncompressed(value: bytes, record: str) -> bytes:
    """The record itself, whether ``value`` is compressed or not; ``record`` names it in errors.

    Raises ``MalformedRecord``, and ``UnsupportedRecord`` where a package is missing.
    """
    if not value.startswith(COMPRESSED_MAGIC):
        return value
    if len(value) < HEAD.size:
        raise MalformedRecord(record, "its compression's head is cut off")
    _, metadata_bytes = HEAD.unpack_from(value)
    end = HEAD.size + metadata_bytes
    # The metadata of both kinds of records have the same fields.
    metadata = parse_message(ManagedCursorInfoMetadata, value[HEAD.size : end], record)
    size_bytes = metadata.uncompressedSize
    if not 0 <= size_bytes <= UNCOMPRESSED_BYTES_MAX:
        raise MalformedRecord(record, f"uncompressed it would have {size_bytes} bytes")
    return inflate(metadata.compressionType, value[end:], size_bytes, record)


def inflate(kind: int, packed: bytes, size_bytes: int, record: str) -> bytes:
    """``packed`` as it was before ``kind`` (``CompressionType``; messages have the same numbers)
    made it smaller: ``size_bytes`` bytes; ``record`` names it in errors.

    Raises ``MalformedRecord``, and ``UnsupportedRecord`` where a package is missing.
    """
    try:
        body = _inflate(kind, packed, size_bytes, record)
    except (_DamageError, IndexError, zlib.error) as error:
        raise MalformedRecord(record, f"its compression is damaged: {error}") from error
    if len(body) != size_bytes:
        raise MalformedRecord(record, f"uncompressed it has not the {size_bytes} bytes it names")
    return body


def _inflate(kind: int, packed: bytes, size_bytes: int, record: str) -> bytes:
    match kind:
        case CompressionType.LZ4:
            return _inflate_lz4(packed, size_bytes)
        case CompressionType.SNAPPY:
            return _inflate_snappy(packed, size_bytes)
        case CompressionType.ZLIB:
            return zlib.decompressobj().decompress(packed, size_bytes + 1)
        case CompressionType.ZSTD:
            return _inflate_zstd(packed, size_bytes, record)
        case _:
            return packed


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
    """Repeat ``length`` bytes from ``offset`` bytes ago, which may reach into themselves."""
    if not 0 < offset <= len(out) or len(out) + length > size_bytes:
        raise _DamageError("a copy reaches beyond the record")
    start = len(out) - offset
    chunk = out[start : start + length]
    out += (chunk * (length // offset + 1))[:length]


def _copy_literals(out: bytearray, packed: bytes, at: int, length: int, size_bytes: int) -> int:
    """Copy ``length`` bytes of ``packed`` from ``at`` on; returns where they end."""
    if at + length > len(packed) or len(out) + length > size_bytes:
        raise _DamageError("literal bytes reach beyond the record")
    out += packed[at : at + length]
    return at + length


def _inflate_lz4(packed: bytes, size_bytes: int) -> bytes:
    """A raw block: tokens of two four-bit lengths (15: more bytes follow), literals, an offset."""
    out = bytearray()
    at = 0
    while at < len(packed):
        token = packed[at]
        length, at = _lz4_length(packed, at + 1, token >> 4)
        at = _copy_literals(out, packed, at, length, size_bytes)
        if at == len(packed):
            break  # the last sequence has literals only
        offset = packed[at] | packed[at + 1] << 8
        length, at = _lz4_length(packed, at + 2, token & 15)
        _copy_back(out, offset, length + 4, size_bytes)
    return bytes(out)


def _lz4_length(packed: bytes, at: int, length: int) -> tuple[int, int]:
    """A length that begins with ``length``, and where it ends."""
    if length == 15:
        while (more := packed[at]) == 255:
            length += 255
            at += 1
        length += more
        at += 1
    return length, at


def _inflate_snappy(packed: bytes, size_bytes: int) -> bytes:
    """The size as a varint, then elements whose lowest two bits tell literals from copies."""
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
            if length >= 60:  # the length itself is in the next one to four bytes
                end = at + length - 59
                length, at = int.from_bytes(packed[at:end], "little"), end
            at = _copy_literals(out, packed, at, length + 1, size_bytes)
        elif kind == 1:
            offset = (tag >> 5) << 8 | packed[at]
            at += 1
            _copy_back(out, offset, (length & 7) + 4, size_bytes)
        else:
            end = at + (2 if kind == 2 else 4)
            offset, at = int.from_bytes(packed[at:end], "little"), end
            _copy_back(out, offset, length + 1, size_bytes)
    return bytes(out)
