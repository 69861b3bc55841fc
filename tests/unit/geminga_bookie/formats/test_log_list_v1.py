"""The list of entry logs: text that comes back as it was, and nothing else does."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from geminga_bookie.errors import CorruptFile, UnknownFormat
from geminga_bookie.formats.log_list_v1 import decode, encode

SIZES = {8: 32, 7: 268435731}


def test_the_list_is_text_in_the_order_of_the_logs() -> None:
    assert encode(SIZES).decode().splitlines()[:3] == [
        "geminga entry logs 1",
        "7 268435731",
        "8 32",
    ]


@pytest.mark.parametrize("sizes", [{}, SIZES])
def test_what_was_listed_is_read(sizes: dict[int, int]) -> None:
    assert decode("list", encode(sizes)) == sizes


def test_a_list_that_is_not_whole_is_damaged() -> None:
    content = encode(SIZES)
    for size in range(len(content)):
        with pytest.raises(CorruptFile, match="list is damaged"):
            decode("list", content[:size])
    for offset in range(len(content)):
        damaged = bytearray(content)
        damaged[offset] ^= 0x10
        with pytest.raises(CorruptFile, match="list is damaged"):
            decode("list", bytes(damaged))


def test_a_list_of_another_version_is_said() -> None:
    checked = b"geminga entry logs 2\n"
    with pytest.raises(UnknownFormat, match="version 1"):
        decode("list", checked + b"crc32c %08x\n" % crc32c(checked))
