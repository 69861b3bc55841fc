"""Proves that our varints are protobuf's, and that negative numbers survive the unsigned wire."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import BrokerEntryMetadata
from geminga_protocol.pulsar.messages.integers import (
    UINT64_MAX,
    decode_varint,
    encode_varint,
    signed,
    unsigned,
)

EDGES = [0, 1, *(value for bits in range(7, 64, 7) for value in ((1 << bits) - 1, 1 << bits))]


@pytest.mark.parametrize("number", [*EDGES, UINT64_MAX - 1, UINT64_MAX])
def test_a_varint_is_what_protobuf_writes(number: int) -> None:
    encoded = encode_varint(number)
    assert b"\x08" + encoded == BrokerEntryMetadata(broker_timestamp=number).SerializeToString()
    assert decode_varint(b"?" + encoded + b"?", 1) == (number, 1 + len(encoded))


def test_a_negative_number_takes_ten_bytes() -> None:
    assert encode_varint(-1) == b"\xff" * 9 + b"\x01"
    assert encode_varint(-(2**63)) == b"\x80" * 9 + b"\x01"


def test_signed_and_unsigned_are_opposites() -> None:
    for number in (0, 1, -1, 2**63 - 1, -(2**63)):
        assert signed(unsigned(number)) == number
    assert unsigned(-1) == UINT64_MAX


@pytest.mark.parametrize(
    "encoded", [b"", b"\x80", b"\xff" * 9, b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01"]
)
def test_a_varint_without_end_or_too_large_is_a_wire_error(encoded: bytes) -> None:
    with pytest.raises(WireError):
        decode_varint(encoded, 0)


@given(st.binary(max_size=12))
@settings(max_examples=100)
def test_garbage_is_a_number_or_a_wire_error(encoded: bytes) -> None:
    try:
        number, position = decode_varint(encoded, 0)
    except WireError:
        return
    assert 0 <= number <= UINT64_MAX
    assert 1 <= position <= len(encoded)
