"""Requests for several entries and their answers have the bytes of the original."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.bookkeeper.digest import MASTER_KEY_BYTES
from geminga_protocol.bookkeeper.v2_rare import (
    BatchRead,
    encode_auth_answer,
    encode_batch_answer,
    parse_batch_read,
)
from geminga_protocol.bookkeeper.v3 import AUTHENTICATION_DISABLED
from geminga_protocol.errors import WireError

# Ledger 9, from entry 1, request 78, at most 3 entries in 1 MiB; then the same with a master key.
REQUEST = bytes.fromhex(
    "0207000000000000000000090000000000000001000000000000004e000000030000000000100000"
)
KEY = bytes(range(MASTER_KEY_BYTES))
FENCING = b"\x02\x07\0\1" + REQUEST[4:] + KEY


def test_a_request_is_read_where_it_lies() -> None:
    wanted = BatchRead(9, 1, 78, 3, 1 << 20, None)
    assert parse_batch_read(b"xx" + REQUEST + b"x", 2, 2 + len(REQUEST)) == wanted
    assert parse_batch_read(FENCING, 0, len(FENCING)).master_key == KEY


def test_no_limit_may_be_said_in_two_ways() -> None:
    for count in (b"\0\0\0\0", b"\xff\xff\xff\xff"):
        request = REQUEST[:28] + count + REQUEST[32:]
        assert parse_batch_read(request, 0, len(request)).count_max == 0


@given(st.binary(max_size=70))
def test_garbage_gives_wire_error_and_nothing_else(garbage: bytes) -> None:
    try:
        parse_batch_read(garbage, 0, len(garbage))
    except WireError:
        return


@pytest.mark.parametrize("request_bytes", [REQUEST, FENCING])
def test_a_request_that_is_cut_off_is_a_wire_error(request_bytes: bytes) -> None:
    for end in range(len(request_bytes)):
        with pytest.raises(WireError):
            parse_batch_read(request_bytes, 0, end)


def test_an_answer_has_each_entry_behind_its_size() -> None:
    request = BatchRead(9, 1, 78, 3, 1 << 20, None)
    answer = b"".join(encode_batch_answer(request, 0, [b"one", b"three"]))
    head = "020700000000000000000000000000090000000000000001000000000000004e"
    assert answer.hex() == "00000030" + head + b"\0\0\0\3one\0\0\0\5three".hex()
    refusal = b"".join(encode_batch_answer(request, 2))
    assert refusal.hex() == "00000020" + head.replace("0207000000000000", "0207000000000002", 1)


def test_the_answer_to_authentication_is_that_of_the_original() -> None:
    recorded = "0000001a020300000a12" + b"AuthDisabledPlugin".hex() + "1200"
    assert encode_auth_answer(AUTHENTICATION_DISABLED).hex() == recorded
