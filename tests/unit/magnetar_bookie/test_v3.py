"""A V3 request gets a V3 answer that says: this version is not spoken."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar_bookie.v3 import refuse_v3
from magnetar_protocol.bookkeeper import requests_pb2 as pb
from magnetar_protocol.errors import WireError


def make_request() -> pb.Request:
    return pb.Request(
        header=pb.BKPacketHeader(version=pb.VERSION_THREE, operation=pb.READ_LAC, txnId=77),
        readLacRequest=pb.ReadLacRequest(ledgerId=5),
    )


def test_the_answer_repeats_the_header_and_says_why() -> None:
    answer = refuse_v3(make_request().SerializeToString())
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    response = pb.Response.FromString(answer[4:])
    assert response.header == make_request().header
    assert response.status == pb.EBADVERSION


@given(st.binary(max_size=60))
@settings(max_examples=100)
def test_garbage_gives_wire_error_and_nothing_else(garbage: bytes) -> None:
    try:
        refuse_v3(b"\x0a" + garbage)
    except WireError:
        return


def test_a_request_without_its_header_is_garbage() -> None:
    with pytest.raises(WireError):
        refuse_v3(b"")
