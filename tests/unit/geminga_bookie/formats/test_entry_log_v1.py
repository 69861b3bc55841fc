"""The entry log's layout: blocks come back as they were, anything else is seen to be damaged."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_bookie.fakes import KEY

from geminga_bookie.errors import UnknownFormat
from geminga_bookie.formats import entry_log_v1 as layout
from geminga_bookie.formats.entry_log_v1 import BlockKind, LedgerRecord, cut_blocks

SEED = 99

entries_of_a_ledger = st.dictionaries(st.integers(0, 20_000), st.binary(max_size=40), min_size=1)


def a_block(entries: dict[int, bytes]) -> bytes:
    (block,) = cut_blocks(5, entries, 1 << 30)
    return layout.encode_block_header(SEED, block, KEY) + b"".join(block.pieces)


def decoded(content: bytes) -> dict[int, bytes] | None:
    header = layout.decode_block_header("f", SEED, content, 0)
    if header is None:
        return None
    return layout.decode_entries(header, content, layout.BLOCK_HEADER_BYTES)


def test_a_dense_block_has_this_layout() -> None:
    content = a_block({7: b"seven", 8: b"eight!"})
    assert content[:40].hex() == (
        "4d47544202000000000000020000000000000005000000000000000700000013" + KEY.hex()[:16]
    )
    assert content[60:].hex() == "0000000500000006" + b"seveneight!".hex()


def test_a_block_with_holes_has_this_layout() -> None:
    content = a_block({7: b"seven", 9: b""})
    assert content[4] == BlockKind.ENTRIES
    assert content[60:].hex() == "00000000000000020000000500000000" + b"seven".hex()


@given(entries_of_a_ledger, st.integers(1, 200))
@settings(max_examples=100)
def test_all_entries_come_back_from_blocks_of_any_size(
    entries: dict[int, bytes], block_bytes: int
) -> None:
    found: dict[int, bytes] = {}
    last = -1
    for block in cut_blocks(5, entries, block_bytes):
        table_and_entries = b"".join(block.pieces)
        assert len(table_and_entries) == block.content_bytes
        content = layout.encode_block_header(SEED, block, KEY) + table_and_entries
        header = layout.decode_block_header("f", SEED, content, 0)
        assert header is not None
        assert (header.ledger_id, header.first_entry, header.master_key) == (
            5,
            block.first_entry,
            KEY,
        )
        assert header.count == block.count
        assert last < block.first_entry <= block.last_entry
        assert block.last_entry - block.first_entry < layout.BLOCK_SPAN_MAX
        last = block.last_entry
        assert layout.decode_ids(header, table_and_entries)[-1] == block.last_entry
        part = layout.decode_entries(header, table_and_entries, 0)
        assert part is not None
        found |= part
        sizes = list(map(len, part.values()))
        assert sum(sizes) - sizes[-1] < block_bytes
    assert found == entries


def test_large_entries_are_not_copied() -> None:
    entries = {number: bytes([number]) * 20_000 for number in range(4)}
    (block,) = cut_blocks(5, entries, 1 << 30)
    assert all(
        mine is theirs for mine, theirs in zip(block.pieces[1:], entries.values(), strict=True)
    )
    assert decoded(a_block(entries)) == entries


def test_a_ledger_without_entries_has_no_blocks() -> None:
    assert list(cut_blocks(5, {}, 100)) == []


@given(entries_of_a_ledger, st.data())
@settings(max_examples=100)
def test_a_block_with_a_flipped_bit_gives_nothing(
    entries: dict[int, bytes], data: st.DataObject
) -> None:
    content = bytearray(a_block({min(entries): entries[min(entries)]}))
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    assert decoded(bytes(content)) is None


@given(entries_of_a_ledger, st.data())
@settings(max_examples=50)
def test_a_block_cut_short_gives_nothing(entries: dict[int, bytes], data: st.DataObject) -> None:
    content = a_block({min(entries): entries[min(entries)]})
    assert decoded(content[: data.draw(st.integers(0, len(content) - 1))]) is None


def test_a_block_of_another_file_gives_nothing() -> None:
    content = a_block({1: b"x"})
    assert layout.decode_block_header("f", SEED + 1, content, 0) is None
    assert layout.find_block_header(SEED + 1, content) == -1
    assert layout.find_block_header(SEED, b"MGTB" + content) == 4


def test_a_block_of_a_kind_that_is_not_known_is_refused_with_its_file() -> None:
    content = bytearray(a_block({1: b"x"}))
    content[4] = 9
    content[56:60] = crc32c(content[:56], SEED).to_bytes(4, "big")
    with pytest.raises(UnknownFormat, match="some-file cannot be read: a block of kind 9"):
        layout.decode_block_header("some-file", SEED, bytes(content), 0)
    assert layout.find_block_header(SEED, b"MGTB" + content) == 4


def test_ledger_records_come_back() -> None:
    records = [
        LedgerRecord(1, KEY, is_fenced=True, last_entry=5),
        LedgerRecord(2, KEY, is_fenced=True, last_entry=5, explicit_lac=b"confirmed: 7"),
        LedgerRecord(3, KEY, is_fenced=False, last_entry=5, explicit_lac=b"c"),
        LedgerRecord(2**62, b"k" * 20, is_fenced=False, last_entry=-1),
    ]
    content = layout.encode_ledgers(SEED, records)
    header = layout.decode_block_header("f", SEED, content, 0)
    assert header is not None
    assert header.kind == BlockKind.LEDGERS
    body = content[layout.BLOCK_HEADER_BYTES :]
    assert layout.table_bytes(header) == len(body)
    assert layout.decode_ledgers(header, body) == records
    assert layout.decode_ledgers(header, body[:-1] + b"\0") is None


def test_a_file_header_comes_back_as_its_seed() -> None:
    content = layout.encode_file_header(3, 4)
    assert layout.decode_file_header("f", content) == crc32c(content[:28])
    assert layout.decode_file_header("f", content[:-1]) is None
    assert layout.decode_file_header("f", b"x" + content[1:]) is None


def test_a_file_of_another_kind_is_refused_by_name() -> None:
    checked = b"GMNGJRNL" + layout.encode_file_header(3, 4)[8:28]
    with pytest.raises(UnknownFormat, match="some-file"):
        layout.decode_file_header("some-file", checked + crc32c(checked).to_bytes(4, "big"))


def test_file_names_carry_their_numbers() -> None:
    assert layout.file_number(layout.file_name(12)) == 12
    assert layout.file_number("000000000012.journal") is None
