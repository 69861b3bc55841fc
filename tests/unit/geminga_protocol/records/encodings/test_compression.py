"""What Pulsar compressed is read as if it had not been; what is damaged is refused, and small."""

from __future__ import annotations

import json
import sys
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.project_files import GOLDEN

from geminga_protocol.records.encodings.bit_sets import bits_of_words
from geminga_protocol.records.encodings.compression import (
    COMPRESSED_MAGIC,
    HEAD,
    UNCOMPRESSED_BYTES_MAX,
    uncompressed,
)
from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord
from geminga_protocol.records.managed_ledgers_pb2 import CompressionType, ManagedCursorInfoMetadata
from geminga_protocol.records.topics.cursor import CursorRecord, PositionRecord
from geminga_protocol.records.topics.managed_ledger import ManagedLedgerRecord

WRITTEN = GOLDEN / "records" / "compressed.jsonl"
RECORDED: dict[tuple[str, str], str] = {}
for line in WRITTEN.read_text().splitlines():
    recorded = json.loads(line)
    RECORDED[recorded["kind"], recorded["type"]] = recorded["hex"]

KINDS = ("LZ4", "ZLIB", "ZSTD", "SNAPPY")


def golden(kind: str, compression: str) -> bytes:
    return bytes.fromhex(RECORDED[kind, compression])


def packed(kind: CompressionType.ValueType, body: bytes, size_bytes: int) -> bytes:
    """A record whose compressed body is ``body``."""
    metadata = ManagedCursorInfoMetadata(compressionType=kind, uncompressedSize=size_bytes)
    head = metadata.SerializeToString()
    return HEAD.pack(COMPRESSED_MAGIC, len(head)) + head + body


@pytest.mark.parametrize("compression", KINDS)
def test_what_pulsar_compressed_is_read(compression: str) -> None:
    plain = golden("cursor", "plain")
    assert uncompressed(golden("cursor", compression), "cursor") == plain
    assert CursorRecord.decode(golden("cursor", compression)) == CursorRecord.decode(plain)
    plain = golden("managed-ledger", "plain")
    assert ManagedLedgerRecord.decode(golden("managed-ledger", compression)).encode() == plain


def test_the_long_arrays_that_pulsar_writes_are_read() -> None:
    """``managedLedgerPersistIndividualAckAsLongArray``."""
    record = PositionRecord.decode(golden("position", "long-arrays"))
    members = {
        ledger: [bit for bit in range(256) if bits_of_words(words) >> bit & 1]
        for ledger, words in record.acknowledged_bits.items()
    }
    assert members == {5: [5, 6, 9, 15, 63, 64, 65, 127, 200], 7: [0, 1, 2, 3]}


def test_a_record_that_is_not_compressed_is_itself() -> None:
    assert uncompressed(b"", "cursor") == b""
    assert uncompressed(packed(CompressionType.NONE, b"plain", 5), "cursor") == b"plain"


# Sequences that small records do not have


def test_long_lengths_of_lz4_are_read() -> None:
    literals = bytes(range(256)) * 2
    body = b"\xff" + b"\xff" + bytes([512 - 15 - 255]) + literals + b"\x02\x00" + b"\xff\x05"
    # 512 literals, then 15 + 255 + 5 + 4 bytes that repeat the last two; then three literals.
    expected = literals + (b"\xfe\xff" * 140)[: 15 + 255 + 5 + 4] + b"end"
    value = packed(CompressionType.LZ4, body + b"\x30end", len(expected))
    assert uncompressed(value, "cursor") == expected


@pytest.mark.parametrize("length_bytes", [1, 2, 3, 4])
def test_long_literals_and_all_copies_of_snappy_are_read(length_bytes: int) -> None:
    literals = b"0123456789" * 20
    body = (
        b"\x80\x02"  # the size, which the head says too
        + bytes([(59 + length_bytes) << 2])
        + (len(literals) - 1).to_bytes(length_bytes, "little")
        + literals
        + bytes([0b000_001_01, 10])  # 5 bytes from 10 ago
        + bytes([7 << 2 | 2])
        + (3).to_bytes(2, "little")  # 8 bytes from 3 ago
        + bytes([1 << 2 | 3])
        + (200).to_bytes(4, "little")  # 2 bytes from 200 ago
    )
    expected = literals + b"01234"
    expected += (expected[-3:] * 3)[:8]
    expected += expected[-200:-198]
    assert uncompressed(packed(CompressionType.SNAPPY, body, len(expected)), "cursor") == expected


# Damage


@given(st.sampled_from(KINDS), st.data())
def test_a_damaged_record_is_refused_or_read_and_nothing_else(
    compression: str, data: st.DataObject
) -> None:
    value = bytearray(golden("cursor", compression))
    cut = data.draw(st.integers(0, len(value)))
    for _ in range(data.draw(st.integers(0, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedRecord):
        CursorRecord.decode(bytes(value[:cut]))


@pytest.mark.parametrize("size_bytes", [-1, UNCOMPRESSED_BYTES_MAX + 1])
def test_a_record_too_large_for_any_node_is_refused_before_it_is_unpacked(size_bytes: int) -> None:
    with pytest.raises(MalformedRecord, match="uncompressed it would have"):
        uncompressed(packed(CompressionType.ZLIB, b"", size_bytes), "cursor")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CompressionType.ZLIB, zlib.compress(bytes(1 << 20))),
        (CompressionType.LZ4, b"\x1f\x00\x01\x00" + b"\xff" * 4000 + b"\x00"),
        (CompressionType.SNAPPY, b"\x05\x00\x00" + b"\xfe\x01\x00" * 1000),
        (CompressionType.ZSTD, bytes.fromhex(RECORDED["cursor", "ZSTD"])[10:]),
    ],
)
def test_a_body_larger_than_it_says_is_refused(
    kind: CompressionType.ValueType, body: bytes
) -> None:
    with pytest.raises(MalformedRecord):
        uncompressed(packed(kind, body, 5), "cursor")


def test_without_its_package_zstd_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UnsupportedRecord, match="install the package zstandard"):
        uncompressed(golden("cursor", "ZSTD"), "cursor")
