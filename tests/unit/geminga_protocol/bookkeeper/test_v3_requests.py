"""What only V3 can ask is asked as BookKeeper's client asks it, and fits what the bookie reads."""

from __future__ import annotations

import pytest

from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.codes import ReturnCode
from geminga_protocol.bookkeeper.digest import MASTER_KEY_BYTES
from geminga_protocol.bookkeeper.v3 import encode_frame, has_body, parse_request, status_of
from geminga_protocol.bookkeeper.v3_requests import (
    encode_explicit_lac,
    long_poll_request,
    read_lac_request,
    return_code_of,
    write_lac_request,
)

KEY = bytes(MASTER_KEY_BYTES)


@pytest.mark.parametrize(
    ("request_", "operation"),
    [
        (long_poll_request(5, 3, 1000), pb.READ_ENTRY),
        (read_lac_request(5), pb.READ_LAC),
        (write_lac_request(5, 3, KEY), pb.WRITE_LAC),
    ],
)
def test_a_request_is_whole(request_: pb.Request, operation: pb.OperationType.ValueType) -> None:
    request_.header.txnId = 9
    parsed = parse_request(encode_frame(request_)[4:])
    assert parsed == request_
    assert parsed.IsInitialized()
    assert parsed.header.operation == operation
    assert has_body(parsed)


def test_a_long_poll_asks_for_the_next_entry_with_the_news() -> None:
    asked = long_poll_request(5, -1, 1500).readRequest
    assert (asked.ledgerId, asked.entryId, asked.previousLAC, asked.timeOut) == (5, -1, -1, 1500)
    assert asked.flag == pb.ReadRequest.ENTRY_PIGGYBACK


def test_what_a_writer_confirms_has_the_bytes_that_java_writes() -> None:
    # ``computeDigestAndPackageForSendingLac(41)`` of ledger 7 with CRC32C: the ids, their digest.
    body = encode_explicit_lac(7, 41)
    assert body.hex() == "0000000000000007" + "0000000000000029" + "dd1f01e2"
    asked = write_lac_request(7, 41, KEY).writeLacRequest
    assert (asked.ledgerId, asked.lac, asked.masterKey, asked.body) == (7, 41, KEY, body)


def test_every_status_has_its_return_code() -> None:
    for code in ReturnCode:
        assert return_code_of(status_of(code)) == code
