"""V2 frames are read and written byte for byte as a real broker and real bookies do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.project_files import GOLDEN

from geminga_protocol.bookkeeper import v2
from geminga_protocol.bookkeeper.codes import Flag, Operation, ReturnCode
from geminga_protocol.bookkeeper.digest import (
    EMPTY_PASSWORD_MASTER_KEY,
    decode_entry,
    encode_entry_header,
)
from geminga_protocol.bookkeeper.errors import UnsupportedOperation, UnsupportedVersion
from geminga_protocol.bookkeeper.requests_pb2 import (
    ADD_ENTRY,
    VERSION_THREE,
    BKPacketHeader,
    Request,
)
from geminga_protocol.errors import WireError
from geminga_protocol.framing import FrameReader

RECORDED = GOLDEN / "bookkeeper" / "frames.jsonl"
SIZE_BYTES = 4
KEY = bytes(range(20))


def recorded(side: str) -> list[bytes]:
    lines = map(json.loads, RECORDED.read_text().splitlines())
    return [bytes.fromhex(line["frame"]) for line in lines if line["from"] == side]


def request(frame: bytes) -> v2.Request:
    return v2.parse_request(frame, SIZE_BYTES, len(frame))


def response(frame: bytes) -> v2.Response:
    return v2.parse_response(frame, SIZE_BYTES, len(frame))


def encode_again(frame: bytes) -> bytes:
    operation, flags, ledger_id, entry_id, key, body_start = request(frame)
    if operation == Operation.READ:
        assert body_start == len(frame)
        return v2.encode_read(ledger_id, entry_id, flags, key)
    assert key is not None
    entry = frame[body_start:]
    found = decode_entry(frame, body_start, len(frame), ledger_id, entry_id)
    _, last_confirmed, length, payload = found
    header = encode_entry_header(ledger_id, entry_id, last_confirmed, length, payload)
    assert header + payload == entry
    stored = v2.encode_add_header(key, len(entry), flags) + entry
    fresh = v2.encode_add(ledger_id, entry_id, last_confirmed, length, payload, key, flags)
    assert fresh + payload == stored
    return stored


def test_recorded_requests_encode_to_the_same_bytes() -> None:
    frames = recorded("client")
    for frame in frames:
        assert encode_again(frame) == frame
    kinds = {request(frame)[:2] for frame in frames}
    assert (Operation.ADD, Flag.NONE) in kinds
    assert (Operation.ADD, Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY) in kinds
    assert (Operation.READ, Flag.FENCING | Flag.HIGH_PRIORITY) in kinds


def test_recorded_responses_encode_to_the_same_bytes() -> None:
    codes = set()
    for frame in recorded("server"):
        operation, code, ledger_id, entry_id, body_start = response(frame)
        codes.add((operation, code))
        if operation == Operation.ADD:
            again = v2.encode_add_response(code, ledger_id, entry_id)
        else:
            body = frame[body_start:]
            again = v2.encode_read_response_header(code, ledger_id, entry_id, len(body)) + body
        assert again == frame
    assert codes == {
        (Operation.ADD, ReturnCode.EOK),
        (Operation.READ, ReturnCode.EOK),
        (Operation.READ, ReturnCode.ENOENTRY),
    }


def test_entries_in_recorded_read_responses_have_the_right_digest() -> None:
    entries = 0
    for frame in recorded("server"):
        operation, code, ledger_id, entry_id, body_start = response(frame)
        if operation == Operation.READ and code == ReturnCode.EOK:
            found, *_ = decode_entry(frame, body_start, len(frame), ledger_id, entry_id)
            assert entry_id in (found, v2.LAST_ENTRY)
            entries += 1
    assert entries > 0


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_recorded_stream_cut_anywhere_gives_the_same_frames(side: str) -> None:
    frames = recorded(side)[:12]
    stream = b"".join(frames)
    for cut in range(len(stream) + 1):
        reader = FrameReader(v2.FRAME_BYTES_MAX_DEFAULT)
        found = []
        for piece in (stream[:cut], stream[cut:]):
            buffer, bounds = reader.feed(piece)
            found += [buffer[start - SIZE_BYTES : end] for start, end in bounds]
        assert found == frames


def test_requests_are_read_where_they_lie_between_other_frames() -> None:
    read = v2.encode_read(5, 6)
    fencing = v2.encode_read(5, v2.LAST_ENTRY, Flag.FENCING, KEY)
    add = v2.encode_add(5, 6, 5, 100, b"payload", KEY) + b"payload"
    buffer, bounds = FrameReader(1000).feed(read + fencing + add + read)
    parsed = [v2.parse_request(buffer, start, end) for start, end in bounds]
    assert [each[:5] for each in parsed] == [
        (2, 0, 5, 6, None),
        (2, Flag.FENCING, 5, -1, KEY),
        (1, 0, 5, 6, KEY),
        (2, 0, 5, 6, None),
    ]
    _, end = bounds[2]
    assert decode_entry(buffer, parsed[2][5], end, 5, 6) == (6, 5, 100, b"payload")


def test_a_fencing_read_without_its_key_cannot_be_made() -> None:
    with pytest.raises(AssertionError):
        v2.encode_read(5, 6, Flag.FENCING)
    with pytest.raises(AssertionError):
        v2.encode_read(5, 6, Flag.NONE, KEY)


def test_a_refusal_names_the_operation_it_refuses() -> None:
    frame = v2.encode_response(Operation.WRITE_LAC, ReturnCode.EBADREQ, 5, -1)
    assert response(frame) == (Operation.WRITE_LAC, ReturnCode.EBADREQ, 5, -1, len(frame))


@pytest.mark.parametrize("operation", [0, *range(3, 256)])
def test_an_operation_that_is_not_served_is_told_by_its_number(operation: int) -> None:
    frame = bytearray(v2.encode_read(5, 6))
    frame[SIZE_BYTES + 1] = operation
    with pytest.raises(UnsupportedOperation) as caught:
        request(bytes(frame))
    assert caught.value.operation == operation


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_another_version_is_told_by_its_number(version: int) -> None:
    frame = bytearray(v2.encode_read(5, 6))
    frame[SIZE_BYTES] = version
    with pytest.raises(UnsupportedVersion) as caught:
        request(bytes(frame))
    assert caught.value.version == version
    frame = bytearray(v2.encode_add_response(0, 5, 6))
    frame[SIZE_BYTES] = version
    with pytest.raises(UnsupportedVersion):
        response(bytes(frame))


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(-1, 0), (0, -1), (-(2**63), 5)])
def test_an_entry_without_a_place_is_refused(ledger_id: int, entry_id: int) -> None:
    add = v2.encode_add(ledger_id, entry_id, -1, 1, b"x", KEY) + b"x"
    with pytest.raises(WireError, match="negative"):
        request(add)


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(-1, 0), (0, -2)])
def test_a_read_of_what_cannot_be_is_refused(ledger_id: int, entry_id: int) -> None:
    with pytest.raises(WireError, match="negative"):
        request(v2.encode_read(ledger_id, entry_id))
    with pytest.raises(WireError, match="negative"):
        request(v2.encode_read(ledger_id, entry_id, Flag.FENCING, KEY))


@pytest.mark.parametrize(
    "frame",
    [
        v2.encode_read(5, 6),
        v2.encode_read(5, 6, Flag.FENCING, KEY),
        v2.encode_add_header(KEY, 16) + bytes(16),
    ],
)
def test_a_request_shorter_than_its_fields_is_refused(frame: bytes) -> None:
    request(frame)
    for end in range(SIZE_BYTES, len(frame)):
        with pytest.raises(WireError):
            v2.parse_request(frame, SIZE_BYTES, end)
        with pytest.raises(WireError):
            v2.parse_request(frame[:end], SIZE_BYTES, end)


def test_a_response_shorter_than_its_fields_is_refused() -> None:
    frame = v2.encode_add_response(0, 5, 6)
    for end in range(SIZE_BYTES, len(frame)):
        with pytest.raises(WireError):
            v2.parse_response(frame, SIZE_BYTES, end)


frame_bodies = st.binary(max_size=80) | st.binary(max_size=80).map(lambda rest: b"\x02\x01" + rest)


@given(frame_bodies | frame_bodies.map(lambda body: b"\x02\x02" + body))
def test_garbage_gives_a_wire_error_and_nothing_else(body: bytes) -> None:
    for parse in (v2.parse_request, v2.parse_response):
        try:
            parsed = parse(body, 0, len(body))
        except WireError:
            continue
        assert 0 < parsed[-1] <= len(body)


def test_v3_frames_are_told_from_v2_by_their_first_byte() -> None:
    header = BKPacketHeader(version=VERSION_THREE, operation=ADD_ENTRY, txnId=1)
    message = Request(header=header).SerializeToString()
    assert v2.is_v3(message, 0, len(message))
    assert not v2.is_v3(b"", 0, 0)
    for frame in recorded("client"):
        assert not v2.is_v3(frame, SIZE_BYTES, len(frame))


def test_the_recorded_ledgers_have_the_empty_password() -> None:
    keys = {request(frame)[4] for frame in recorded("client")}
    assert keys == {EMPTY_PASSWORD_MASTER_KEY, None}
