"""Proves that sets are written as the Java library writes them, and that any bytes give a set or
``MalformedRecord``."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.records.encodings.roaring import decode_bits, encode_bits
from geminga_protocol.records.errors import MalformedRecord

Ranges = list[tuple[int, int, int]]
"""Of members: first, last, step."""


def bits(ranges: Ranges) -> int:
    return sum(1 << each for first, last, step in ranges for each in range(first, last + 1, step))


# What org.roaringbitmap 1.2.0 gave after runOptimize(): its size and its CRC-32.
JAVA = [
    ([(5, 5, 1)], "3a3000000100000000000000100000000500"),
    ([(0, 9, 1)], "3b3000000100000900010000000900"),
    ([(0, 20000, 1)], "3b300000010000204e01000000204e"),
]


@pytest.mark.parametrize(("ranges", "expected"), JAVA)
def test_a_set_is_written_as_java_writes_it(ranges: Ranges, expected: str) -> None:
    assert encode_bits(bits(ranges)).hex() == expected
    assert decode_bits(bytes.fromhex(expected)) == bits(ranges)


@pytest.mark.parametrize(
    ("ranges", "size_bytes", "crc"),
    [
        ([(0, 20000, 2)], 8208, 2795834579),
        ([(7, 7, 1), (70000, 70000, 1), (70002, 70090, 1)], 25, 1913373743),
        (
            [(1, 1, 1), (65536, 65536, 1), (131072, 131072, 1), (200000, 300000, 1)],
            63,
            3643594930,
        ),
        ([(0, 300000, 1)], 75, 1922215281),
    ],
)
def test_large_sets_are_written_as_java_writes_them(
    ranges: Ranges, size_bytes: int, crc: int
) -> None:
    encoded = encode_bits(bits(ranges))
    assert (len(encoded), zlib.crc32(encoded)) == (size_bytes, crc)
    assert decode_bits(encoded) == bits(ranges)


@given(st.sets(st.integers(0, 300_000), max_size=60))
def test_what_is_written_is_read_back(members: set[int]) -> None:
    wanted = sum(1 << each for each in members)
    assert decode_bits(encode_bits(wanted)) == wanted


@given(st.binary(max_size=200))
def test_any_bytes_are_a_set_or_malformed(value: bytes) -> None:
    try:
        decode_bits(value)
    except MalformedRecord:
        return


@given(st.sets(st.integers(0, 300_000), min_size=1, max_size=60), st.integers(0, 100))
def test_a_set_that_is_cut_is_malformed(members: set[int], cut: int) -> None:
    encoded = encode_bits(sum(1 << each for each in members))
    with pytest.raises(MalformedRecord):
        decode_bits(encoded[: min(cut, len(encoded) - 1)])


def test_more_containers_than_there_can_be_are_malformed() -> None:
    with pytest.raises(MalformedRecord, match="containers"):
        decode_bits(bytes.fromhex("3a300000ffffffff"))
