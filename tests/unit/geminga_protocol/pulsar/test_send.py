"""Proves that the hand-written SEND and SEND_RECEIPT are protobuf's, byte for byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol.pulsar.api_pb2 import (
    BaseCommand,
    CommandFlow,
    CommandSend,
    CommandSendReceipt,
    MessageIdData,
)
from geminga_protocol.pulsar.messages.integers import UINT64_MAX, unsigned
from geminga_protocol.pulsar.send import (
    ReceiptEncoder,
    SendCommand,
    encode_receipt,
    encode_send,
    parse_send,
)

IDS = st.one_of(
    st.integers(0, 300), st.integers(0, 1 << 22), st.integers(0, UINT64_MAX), st.just(UINT64_MAX)
)
PAYLOAD = b"payload"


def frame(command: BaseCommand, payload: bytes = PAYLOAD) -> bytes:
    """A frame from the command size on, as the parsers take it."""
    encoded = command.SerializePartialToString()
    return struct.pack(">I", len(encoded)) + encoded + payload


def send(send: CommandSend) -> bytes:
    return frame(BaseCommand(type=BaseCommand.SEND, send=send))


def as_protobuf_reads_it(wire: bytes) -> SendCommand:
    payload_start = 4 + int.from_bytes(wire[:4], "big")
    send = BaseCommand.FromString(wire[4:payload_start]).send
    return (
        send.producer_id,
        send.sequence_id,
        send.num_messages,
        send.highest_sequence_id,
        send.is_chunk,
        payload_start,
    )


def test_sends_of_official_clients_are_parsed(golden_frames: list[bytes]) -> None:
    sends = [wire[4:] for wire in golden_frames if wire[9] == BaseCommand.SEND]
    assert len(sends) >= 5
    for wire in sends:
        assert parse_send(wire, 0, len(wire)) == as_protobuf_reads_it(wire)


def test_a_send_is_parsed_where_it_lies() -> None:
    wire = send(CommandSend(producer_id=1, sequence_id=20000))
    start = 11
    buffer = bytes(start) + wire + b"the next frame"
    assert parse_send(buffer, start, start + len(wire)) == (
        1,
        20000,
        1,
        0,
        False,
        start + len(wire) - len(PAYLOAD),
    )


@given(
    producer_id=IDS,
    sequence_id=IDS,
    num_messages=st.none() | st.integers(0, 2**31 - 1),
    highest_sequence_id=st.none() | IDS,
    is_chunk=st.none() | st.booleans(),
)
@settings(max_examples=100)
def test_any_plain_send_is_parsed_as_protobuf_does(
    producer_id: int,
    sequence_id: int,
    num_messages: int | None,
    highest_sequence_id: int | None,
    is_chunk: bool | None,  # noqa: FBT001  # hypothesis names its arguments
) -> None:
    wire = send(
        CommandSend(
            producer_id=producer_id,
            sequence_id=sequence_id,
            num_messages=num_messages,
            highest_sequence_id=highest_sequence_id,
            is_chunk=is_chunk,
        )
    )
    assert parse_send(wire, 0, len(wire)) == as_protobuf_reads_it(wire)


@pytest.mark.parametrize(
    "rare",
    [
        CommandSend(producer_id=1, sequence_id=2, txnid_least_bits=1),
        CommandSend(producer_id=1, sequence_id=2, txnid_most_bits=1),
        CommandSend(producer_id=1, sequence_id=2, marker=True),
        CommandSend(producer_id=1, sequence_id=2, message_id=MessageIdData(ledgerId=1, entryId=2)),
        CommandSend(producer_id=1, sequence_id=2, num_messages=-1),
        CommandSend(producer_id=1),
        CommandSend(sequence_id=1),
    ],
)
def test_rare_fields_are_left_to_protobuf(rare: CommandSend) -> None:
    wire = send(rare)
    assert parse_send(wire, 0, len(wire)) is None


@pytest.mark.parametrize(
    "fields",
    [
        "08 01 10 02 30 05 18 03",  # out of order
        "08 01 10 02 18 03 18 04",  # twice
        "10 02 08 01",
        "08 01 10 02 18",  # reaches into the payload
        "08 01 10 02 18 80",
    ],
)
def test_unusual_encodings_are_left_to_protobuf(fields: str) -> None:
    encoded = bytes.fromhex(fields)
    command = b"\x08\x06\x32" + bytes([len(encoded)]) + encoded
    wire = struct.pack(">I", len(command)) + command + PAYLOAD
    assert parse_send(wire, 0, len(wire)) is None


def test_other_commands_are_no_send(golden_frames: list[bytes]) -> None:
    flow = frame(
        BaseCommand(type=BaseCommand.FLOW, flow=CommandFlow(consumer_id=1, messagePermits=2))
    )
    others = [flow, *(wire[4:] for wire in golden_frames if wire[9] != BaseCommand.SEND)]
    assert all(parse_send(wire, 0, len(wire)) is None for wire in others)


def test_a_send_cut_anywhere_in_its_command_is_no_send() -> None:
    wire = send(CommandSend(producer_id=300, sequence_id=1 << 30, num_messages=10))
    payload_start = len(wire) - len(PAYLOAD)
    for end in range(payload_start):
        assert parse_send(wire[:end], 0, end) is None
        # Its rest may lie behind the frame, as bytes of the next one.
        assert parse_send(wire, 0, end) is None


@given(st.binary(max_size=40), st.binary(max_size=8))
@settings(max_examples=200)
def test_garbage_is_no_send_or_one_that_protobuf_reads_alike(head: bytes, tail: bytes) -> None:
    command = b"\x08\x06\x32" + bytes([len(head)]) + head
    wire = struct.pack(">I", len(command)) + command + tail
    parsed = parse_send(wire, 0, len(wire))
    assert parsed is None or parsed == as_protobuf_reads_it(wire)


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=100)
def test_any_bounds_in_garbage_are_harmless(garbage: bytes, start: int, end: int) -> None:
    parsed = parse_send(garbage, start, end)
    assert parsed is None or parsed[-1] <= end


@given(
    producer_id=IDS,
    sequence_id=IDS,
    num_messages=st.integers(1, 2000),
    highest_sequence_id=IDS,
    is_chunk=st.booleans(),
)
@settings(max_examples=100)
def test_encode_send_writes_what_parse_send_reads(
    producer_id: int,
    sequence_id: int,
    num_messages: int,
    highest_sequence_id: int,
    is_chunk: bool,  # noqa: FBT001  # hypothesis names its arguments
) -> None:
    wire = encode_send(
        producer_id,
        sequence_id,
        len(PAYLOAD),
        num_messages=num_messages,
        highest_sequence_id=highest_sequence_id,
        is_chunk=is_chunk,
    )
    assert int.from_bytes(wire[:4], "big") == len(wire) + len(PAYLOAD) - 4
    assert parse_send(wire + PAYLOAD, 4, len(wire) + len(PAYLOAD)) == (
        producer_id,
        sequence_id,
        num_messages,
        highest_sequence_id,
        is_chunk,
        len(wire),
    )


def test_receipts_are_those_of_a_pulsar_broker(golden_frames: list[bytes]) -> None:
    receipts = [wire for wire in golden_frames if wire[9] == BaseCommand.SEND_RECEIPT]
    assert len(receipts) >= 3
    for wire in receipts:
        receipt = BaseCommand.FromString(wire[8:]).send_receipt
        assert wire == encode_receipt(
            receipt.producer_id,
            receipt.sequence_id,
            receipt.highest_sequence_id,
            receipt.message_id.ledgerId,
            receipt.message_id.entryId,
        )


@given(
    producer_id=IDS,
    messages=st.lists(st.tuples(IDS, IDS, IDS, IDS | st.just(-1)), min_size=1, max_size=5),
)
@settings(max_examples=100)
def test_receipts_are_what_protobuf_writes(
    producer_id: int, messages: list[tuple[int, int, int, int]]
) -> None:
    encoder = ReceiptEncoder(producer_id)
    for sequence_id, highest_sequence_id, ledger_id, entry_id in messages:
        receipt = CommandSendReceipt(
            producer_id=producer_id,
            sequence_id=sequence_id,
            message_id=MessageIdData(ledgerId=ledger_id, entryId=unsigned(entry_id)),
            highest_sequence_id=highest_sequence_id,
        )
        command = frame(BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=receipt), b"")
        wire = encoder.receipt(sequence_id, highest_sequence_id, ledger_id, entry_id)
        assert wire == struct.pack(">I", len(command)) + command
