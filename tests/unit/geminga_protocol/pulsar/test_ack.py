"""Proves that the hand-written ACK decoder reads what protobuf reads, or leaves it to protobuf."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol.pulsar.ack import AckCommand, parse_ack
from geminga_protocol.pulsar.api_pb2 import BaseCommand, CommandAck, KeyLongValue, MessageIdData
from geminga_protocol.pulsar.messages.integers import UINT64_MAX

INDIVIDUAL = CommandAck.Individual
MINUS_ONE = range(UINT64_MAX, UINT64_MAX + 1)


def ids(ledger_id: int, entry_ids: range) -> list[MessageIdData]:
    return [MessageIdData(ledgerId=ledger_id, entryId=entry_id) for entry_id in entry_ids]


def frame(ack: CommandAck) -> bytes:
    command = BaseCommand(type=BaseCommand.ACK, ack=ack).SerializePartialToString()
    return struct.pack(">I", len(command)) + command


def as_protobuf_reads_it(wire: bytes) -> AckCommand:
    ack = BaseCommand.FromString(wire[4:]).ack
    is_cumulative = ack.ack_type == CommandAck.Cumulative
    return ack.consumer_id, is_cumulative, [(id_.ledgerId, id_.entryId) for id_ in ack.message_id]


def test_acks_of_official_clients_are_parsed_or_left_to_protobuf(
    golden_frames: list[bytes],
) -> None:
    acks = [wire[4:] for wire in golden_frames if wire[9] == BaseCommand.ACK]
    parsed = [(parse_ack(wire, 0, len(wire)), as_protobuf_reads_it(wire)) for wire in acks]
    assert all(ours is None or ours == theirs for ours, theirs in parsed)
    assert sum(ours is not None for ours, _ in parsed) >= 2


@given(
    consumer_id=st.integers(0, UINT64_MAX),
    is_cumulative=st.booleans(),
    ledger_id=st.integers(0, 1 << 40),
    entry_id=st.integers(0, 1 << 40),
)
@settings(max_examples=100)
def test_an_ack_of_one_message_is_parsed(
    consumer_id: int,
    is_cumulative: bool,  # noqa: FBT001  # hypothesis names its arguments
    ledger_id: int,
    entry_id: int,
) -> None:
    wire = frame(
        CommandAck(
            consumer_id=consumer_id,
            ack_type=CommandAck.Cumulative if is_cumulative else CommandAck.Individual,
            message_id=ids(ledger_id, range(entry_id, entry_id + 1)),
        )
    )
    buffer = b"before" + wire + b"after"
    expected = (consumer_id, is_cumulative, [(ledger_id, entry_id)])
    assert parse_ack(buffer, 6, 6 + len(wire)) == expected


@pytest.mark.parametrize("entry_ids", [range(100), range(200, 1200), range(20_000, 1_000_000, 999)])
def test_an_ack_of_many_messages_of_one_ledger_is_parsed(entry_ids: range) -> None:
    wire = frame(CommandAck(consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(700, entry_ids)))
    assert parse_ack(wire, 0, len(wire)) == as_protobuf_reads_it(wire)


@pytest.mark.parametrize(
    "ack",
    [
        CommandAck(consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(5, range(3))),
        CommandAck(consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(5, range(100, 200))),
        CommandAck(
            consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(5, range(50)) + ids(6, range(50))
        ),
        CommandAck(
            consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(5, range(1 << 30, (1 << 30) + 50))
        ),
        CommandAck(consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(5, range(1)), request_id=7),
        CommandAck(consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(5, range(50)), request_id=7),
        CommandAck(
            consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(5, range(1)), txnid_least_bits=7
        ),
        CommandAck(
            consumer_id=1,
            ack_type=INDIVIDUAL,
            message_id=[MessageIdData(ledgerId=1, entryId=2, ack_set=[3])],
        ),
        CommandAck(
            consumer_id=1,
            ack_type=INDIVIDUAL,
            message_id=[MessageIdData(ledgerId=1, entryId=2, partition=3)],
        ),
        CommandAck(
            consumer_id=1,
            ack_type=INDIVIDUAL,
            message_id=ids(5, range(1)),
            properties=[KeyLongValue(key="k", value=1)],
        ),
        CommandAck(consumer_id=1, ack_type=INDIVIDUAL),
        # What lies before the first entry of a ledger, before the first ledger: -1 as a uint64.
        CommandAck(consumer_id=1, ack_type=CommandAck.Cumulative, message_id=ids(5, MINUS_ONE)),
        CommandAck(consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(UINT64_MAX, range(1))),
        CommandAck(consumer_id=1, message_id=ids(5, range(1))),
    ],
)
def test_what_is_not_plain_is_left_to_protobuf(ack: CommandAck) -> None:
    wire = frame(ack)
    assert parse_ack(wire, 0, len(wire)) is None


def test_an_id_without_its_entry_is_left_to_protobuf() -> None:
    wire = frame(CommandAck(consumer_id=1, ack_type=INDIVIDUAL, message_id=[MessageIdData()]))
    assert parse_ack(wire, 0, len(wire)) is None
    ledger_only = MessageIdData(ledgerId=5)
    wire = frame(
        CommandAck(consumer_id=1, ack_type=INDIVIDUAL, message_id=[ledger_only, ledger_only])
    )
    assert parse_ack(wire, 0, len(wire)) is None


def test_an_ack_cut_anywhere_is_left_to_protobuf() -> None:
    wire = frame(
        CommandAck(consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(700, range(200, 300)))
    )
    for end in range(len(wire)):
        assert parse_ack(wire[:end], 0, end) is None
        assert parse_ack(wire, 0, end) is None


@given(st.binary(max_size=60))
@settings(max_examples=200)
def test_garbage_is_no_ack_or_one_that_protobuf_reads_alike(garbage: bytes) -> None:
    command = b"\x08\x0a\x52" + bytes([len(garbage)]) + garbage
    wire = struct.pack(">I", len(command)) + command
    parsed = parse_ack(wire, 0, len(wire))
    assert parsed is None or parsed == as_protobuf_reads_it(wire)


@given(st.data())
@settings(max_examples=200)
def test_one_changed_byte_is_noticed_or_read_alike(data: st.DataObject) -> None:
    wire = bytearray(
        frame(CommandAck(consumer_id=1, ack_type=INDIVIDUAL, message_id=ids(9, range(30))))
    )
    wire[data.draw(st.integers(4, len(wire) - 1))] = data.draw(st.integers(0, 255))
    parsed = parse_ack(bytes(wire), 0, len(wire))
    assert parsed is None or parsed == as_protobuf_reads_it(bytes(wire))
