"""The journal's layout: groups come back as they were, anything else is seen to be damaged."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_bookie.fakes import KEY, OTHER_KEY, make_add, make_entry

from geminga_bookie.errors import UnknownFormat
from geminga_bookie.formats import journal_v1 as layout

SEED = 4711


def a_group(number: int, body: bytes) -> bytes:
    return layout.encode_group_header(SEED, number, len(body), crc32c(body)) + body


def test_a_file_header_comes_back_with_its_seed() -> None:
    content = layout.encode_file_header(7, 1234)
    header = layout.decode_file_header("f", content)
    assert len(content) == layout.FILE_HEADER_BYTES
    assert header is not None
    assert (header.number, header.created_ms) == (7, 1234)
    other = layout.decode_file_header("f", layout.encode_file_header(8, 1234))
    assert other is not None
    assert other.seed != header.seed


@pytest.mark.parametrize("size", range(layout.FILE_HEADER_BYTES))
def test_a_torn_file_header_is_none(size: int) -> None:
    assert layout.decode_file_header("f", layout.encode_file_header(7, 1234)[:size]) is None


@pytest.mark.parametrize("bit", range(layout.FILE_HEADER_BYTES * 8))
def test_a_file_header_with_a_flipped_bit_is_none(bit: int) -> None:
    content = bytearray(layout.encode_file_header(7, 1234))
    content[bit // 8] ^= 1 << bit % 8
    assert layout.decode_file_header("f", bytes(content)) is None


def test_a_file_of_another_version_is_refused_by_name() -> None:
    checked = layout.encode_file_header(7, 1234)[:28]
    newer = checked[:8] + b"\0\2" + checked[10:]
    content = newer + crc32c(newer).to_bytes(4, "big")
    with pytest.raises(UnknownFormat, match="some-file"):
        layout.decode_file_header("some-file", content)


def test_a_group_header_has_this_layout() -> None:
    content = layout.encode_group_header(SEED, 5, 6, 7)
    assert content[:20].hex() == "4d47544700000000000000050000000600000007"
    assert int.from_bytes(content[20:], "big") == crc32c(content[:20], SEED)
    assert layout.decode_group_header(SEED, b"xx" + content, 2) == layout.GroupHeader(5, 6, 7)


@pytest.mark.parametrize("bit", range(layout.GROUP_HEADER_BYTES * 8))
def test_a_group_header_with_a_flipped_bit_is_none(bit: int) -> None:
    content = bytearray(layout.encode_group_header(SEED, 5, 6, 7))
    content[bit // 8] ^= 1 << bit % 8
    assert layout.decode_group_header(SEED, bytes(content), 0) is None


def test_a_group_header_of_another_file_is_none() -> None:
    content = layout.encode_group_header(SEED + 1, 5, 6, 7)
    assert layout.decode_group_header(SEED, content, 0) is None
    assert layout.find_group_header(SEED, content) == -1


@given(st.binary(max_size=200), st.binary(max_size=50))
@settings(max_examples=100)
def test_a_group_header_is_found_behind_any_bytes(before: bytes, after: bytes) -> None:
    content = before + a_group(3, b"body") + after
    assert layout.find_group_header(SEED, content) == len(before)
    assert layout.find_group_header(SEED, before) == -1


def test_a_body_gives_its_adds_and_fences_in_order() -> None:
    adds = make_add(3, 0) + make_add(4, 9, b"", key=OTHER_KEY, flags=2)
    body = (
        layout.encode_adds_header(len(adds))
        + adds
        + layout.encode_mark(layout.Fence(3, KEY))
        + layout.encode_adds_header(len(make_add(5, 1)))
        + make_add(5, 1)
        + layout.encode_mark(layout.ExplicitLac(3, KEY, b"confirmed: 7"))
    )
    assert list(layout.decode_body("f", body)) == [
        ([(3, 0, KEY, make_entry(3, 0)), (4, 9, OTHER_KEY, make_entry(4, 9, b""))], None),
        ([], layout.Fence(3, KEY)),
        ([(5, 1, KEY, make_entry(5, 1))], None),
        ([], layout.ExplicitLac(3, KEY, b"confirmed: 7")),
    ]


def test_an_empty_body_gives_nothing() -> None:
    assert list(layout.decode_body("f", b"")) == []


@pytest.mark.parametrize(
    "body",
    [
        b"\x01\0\0",
        b"\x01\0\0\0\x05abc",
        b"\x09\0\0\0\0",
        layout.encode_mark(layout.Fence(3, KEY))[:-1],
        b"\x02\0\0\0\x01x",
        b"\x03\0\0\0\x1b" + b"x" * 27,
        layout.encode_adds_header(10) + b"x" * 10,
        layout.encode_adds_header(60) + b"\0\0\0\x01" + b"x" * 56,
        layout.encode_adds_header(60) + b"\0\0\xff\xff" + b"x" * 56,
    ],
)
def test_a_body_laid_out_otherwise_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(UnknownFormat, match="some-file"):
        list(layout.decode_body("some-file", body))


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_garbage_gives_unknown_format_and_nothing_else(body: bytes) -> None:
    try:
        list(layout.decode_body("f", body))
    except UnknownFormat:
        return


def test_file_names_carry_their_numbers() -> None:
    assert layout.file_name(12) == "000000000012.journal"
    assert layout.file_number("000000000012.journal") == 12
    assert layout.file_number("VERSION") is None
    assert layout.file_number("x.journal") is None
    assert layout.file_number(".journal") is None
    assert sorted(map(layout.file_name, [10, 9, 100])) == list(map(layout.file_name, [9, 10, 100]))
