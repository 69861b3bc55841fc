"""Frames become V3 messages or wire errors; answers repeat what was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.v3 import (
    encode_frame,
    has_body,
    ledger_of,
    make_bare_response,
    make_response,
    parse_request,
    parse_response,
    set_status,
    status_of,
)
from geminga_protocol.errors import WireError


def make_request() -> pb.Request:
    return pb.Request(
        header=pb.BKPacketHeader(
            version=pb.VERSION_THREE, operation=pb.READ_ENTRY, txnId=77, priority=5
        ),
        readRequest=pb.ReadRequest(ledgerId=5, entryId=9, masterKey=b"key"),
    )


def test_messages_travel_in_frames() -> None:
    request = make_request()
    frame = encode_frame(request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4] == 0x0A
    assert parse_request(frame[4:]) == request
    response = make_response(request)
    assert parse_response(encode_frame(response)[4:]) == response


@given(st.binary(max_size=80))
def test_garbage_gives_wire_error_and_nothing_else(garbage: bytes) -> None:
    for parse in (parse_request, parse_response):
        try:
            parse(b"\x0a" + garbage)
        except WireError:
            continue


@pytest.mark.parametrize("frame", [b"", b"\x0a\x02\x08\x03", b"\x0a\x06\x08\x03\x10\x63\x18\x05"])
def test_a_request_without_a_whole_header_is_a_wire_error(frame: bytes) -> None:
    with pytest.raises(WireError):
        parse_request(frame)


def test_an_answer_without_a_status_is_a_wire_error() -> None:
    answer = make_response(make_request())
    answer.ClearField("status")
    with pytest.raises(WireError, match="must have"):
        parse_response(answer.SerializePartialToString())


def test_an_answer_says_twice_how_it_ended_and_once_what_was_asked() -> None:
    response = make_response(make_request(), pb.ENOENTRY)
    header = response.header
    assert (header.version, header.operation, header.txnId) == (pb.VERSION_THREE, pb.READ_ENTRY, 77)
    assert not header.HasField("priority")
    assert response.status == response.readResponse.status == pb.ENOENTRY
    assert (response.readResponse.ledgerId, response.readResponse.entryId) == (5, 9)
    set_status(response, pb.EIO)
    assert response.status == response.readResponse.status == pb.EIO


def test_the_answer_to_what_is_not_served_repeats_the_header() -> None:
    request = make_request()
    assert make_bare_response(request, pb.EBADREQ) == pb.Response(
        header=request.header, status=pb.EBADREQ
    )


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (pb.ADD_ENTRY, "addRequest"),
        (pb.WRITE_LAC, "writeLacRequest"),
        (pb.READ_LAC, "readLacRequest"),
        (pb.FORCE_LEDGER, "forceLedgerRequest"),
        (pb.GET_LIST_OF_ENTRIES_OF_LEDGER, "getListOfEntriesOfLedgerRequest"),
    ],
)
def test_every_request_about_a_ledger_tells_which(
    operation: pb.OperationType.ValueType, body: str
) -> None:
    request = pb.Request(
        header=pb.BKPacketHeader(version=pb.VERSION_THREE, operation=operation, txnId=1)
    )
    assert not has_body(request)
    getattr(request, body).ledgerId = 5
    assert has_body(request)
    assert ledger_of(request) == 5
    response = make_response(request)
    assert getattr(response, body.replace("Request", "Response")).ledgerId == 5


def test_a_request_about_the_bookie_has_no_ledger() -> None:
    request = pb.Request(
        header=pb.BKPacketHeader(version=pb.VERSION_THREE, operation=pb.GET_BOOKIE_INFO, txnId=1),
        getBookieInfoRequest=pb.GetBookieInfoRequest(),
    )
    assert ledger_of(request) is None
    assert make_response(request).getBookieInfoResponse.status == pb.EOK


def test_every_return_code_has_its_status() -> None:
    for code in ReturnCode:
        assert pb.StatusCode.Name(status_of(code)) == code.name
