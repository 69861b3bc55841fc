"""Proves that commands are read as clients wrote them, and that a bad one is a WireError."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol.errors import TruncatedFrame, WireError
from geminga_protocol.pulsar.api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandFlow,
    CommandMessage,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    KeyValue,
    MessageIdData,
    Schema,
)
from geminga_protocol.pulsar.commands import (
    MESSAGE_START,
    PING,
    PONG,
    encode_command,
    key_values,
    parse_command,
)
from geminga_protocol.pulsar.errors import IncompleteCommand, UnknownCommand

FLOW = BaseCommand(type=BaseCommand.FLOW, flow=CommandFlow(consumer_id=1, messagePermits=300))


def frame(encoded: bytes) -> bytes:
    """A frame from the command size on, as the parser takes it."""
    return struct.pack(">I", len(encoded)) + encoded


def parse(wire: bytes) -> BaseCommand:
    return parse_command(wire, 0, len(wire))[0]


def test_commands_of_a_real_cluster_are_parsed_and_written_again(
    golden_frames: list[bytes],
) -> None:
    types = set[int]()
    for wire in golden_frames:
        command, payload_start = parse_command(wire, 4, len(wire))
        types.add(command.type)
        if payload_start == len(wire):
            assert encode_command(command) == wire
        else:
            assert command.type in (BaseCommand.SEND, BaseCommand.MESSAGE)
    assert len(types) >= 20


def test_a_command_is_parsed_where_it_lies() -> None:
    wire = encode_command(FLOW)[4:]
    command, payload_start = parse_command(b"???" + wire + b"payload", 3, 3 + len(wire) + 7)
    assert command == FLOW
    assert payload_start == 3 + len(wire)


def test_ping_and_pong_are_ready_frames() -> None:
    assert bytes.fromhex("00000009 00000005 08 12 920100") == PING
    assert bytes.fromhex("00000009 00000005 08 13 9a0100") == PONG


@pytest.mark.parametrize(
    ("encoded", "number"),
    [
        (b"", None),
        (b"\x12\x00", None),
        (b"\x0d\x01\x00\x00\x00", None),  # a type that is no varint
        (b"\x08\x00", 0),
        (b"\x08\x7f", 127),
        (b"\x08\xff\xff\x03", 65535),
        (b"\x08\x7f\x12\x00", 127),
    ],
)
def test_a_command_of_no_known_type_says_so(encoded: bytes, number: int | None) -> None:
    with pytest.raises(UnknownCommand) as caught:
        parse(frame(encoded))
    assert caught.value.number == number


def test_a_command_without_its_part_says_which() -> None:
    with pytest.raises(IncompleteCommand) as caught:
        parse(frame(BaseCommand(type=BaseCommand.LOOKUP, flow=FLOW.flow).SerializeToString()))
    assert caught.value.command_type == "LOOKUP"
    assert caught.value.fields == ("lookupTopic",)


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        (
            BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1)),
            ("send.sequence_id",),
        ),
        (
            BaseCommand(type=BaseCommand.PRODUCER, producer=CommandProducer(topic="t")),
            ("producer.producer_id", "producer.request_id"),
        ),
        (
            BaseCommand(type=BaseCommand.ACK, ack=CommandAck(consumer_id=1)),
            ("ack.ack_type",),
        ),
    ],
)
def test_missing_fields_are_named(command: BaseCommand, fields: tuple[str, ...]) -> None:
    with pytest.raises(IncompleteCommand) as caught:
        parse(frame(command.SerializePartialToString()))
    assert caught.value.fields == fields


def test_a_part_without_type_is_unknown() -> None:
    with pytest.raises(UnknownCommand):
        parse(frame(BaseCommand(flow=FLOW.flow).SerializePartialToString()))
    connect = bytes.fromhex("1203 0a0141")
    with pytest.raises(UnknownCommand):
        parse(frame(connect))


def not_utf8(command: BaseCommand) -> bytes:
    encoded = command.SerializeToString()
    assert b"TEXT" in encoded
    return frame(encoded.replace(b"TEXT", b"\xff\xfe\xfd\xfc"))


@pytest.mark.parametrize(
    "command",
    [
        BaseCommand(
            type=BaseCommand.PRODUCER,
            producer=CommandProducer(topic="TEXT", producer_id=1, request_id=2),
        ),
        BaseCommand(
            type=BaseCommand.PRODUCER,
            producer=CommandProducer(
                topic="t",
                producer_id=1,
                request_id=2,
                metadata=[KeyValue(key="a", value="b"), KeyValue(key="c", value="TEXT")],
            ),
        ),
        BaseCommand(
            type=BaseCommand.SUBSCRIBE,
            subscribe=CommandSubscribe(
                topic="t",
                subscription="s",
                subType=CommandSubscribe.Shared,
                consumer_id=1,
                request_id=2,
                schema=Schema(
                    name="n",
                    schema_data=b"",
                    type=Schema.Json,
                    properties=[KeyValue(key="TEXT", value="")],
                ),
            ),
        ),
    ],
)
def test_text_that_is_not_utf8_is_a_wire_error(command: BaseCommand) -> None:
    with pytest.raises(WireError, match="is not UTF-8"):
        parse(not_utf8(command))


def test_text_beyond_ascii_is_text() -> None:
    producer = CommandProducer(topic="persistent://a/b/žluť", producer_id=1, request_id=2)
    wire = encode_command(BaseCommand(type=BaseCommand.PRODUCER, producer=producer))
    assert parse(wire[4:]).producer.topic == "persistent://a/b/žluť"


def test_bytes_need_not_be_text() -> None:
    schema = Schema(name="n", schema_data=b"\xff\xfe", type=Schema.Json)
    producer = CommandProducer(topic="t", producer_id=1, request_id=2, schema=schema)
    wire = encode_command(BaseCommand(type=BaseCommand.PRODUCER, producer=producer))
    assert parse(wire[4:]).producer.schema.schema_data == b"\xff\xfe"


def test_a_command_cut_anywhere_is_a_wire_error() -> None:
    wire = encode_command(FLOW)[4:]
    for end in range(len(wire)):
        with pytest.raises(TruncatedFrame):
            parse_command(wire[:end], 0, end)
        with pytest.raises(TruncatedFrame):
            parse_command(wire, 0, end)


@given(st.binary(max_size=80))
@settings(max_examples=200)
def test_garbage_is_a_wire_error_and_nothing_else(garbage: bytes) -> None:
    for wire in (garbage, frame(garbage)):
        with suppress(WireError):
            parse(wire)


@given(st.data())
@settings(max_examples=200)
def test_one_changed_byte_gives_a_command_or_a_wire_error(data: st.DataObject) -> None:
    ack = CommandAck(
        consumer_id=1,
        ack_type=CommandAck.Individual,
        message_id=[MessageIdData(ledgerId=700, entryId=800)],
    )
    producer = CommandProducer(topic="persistent://a/b/č", producer_id=1, request_id=2)
    commands = [
        FLOW,
        BaseCommand(type=BaseCommand.ACK, ack=ack),
        BaseCommand(type=BaseCommand.PRODUCER, producer=producer),
    ]
    wire = bytearray(encode_command(data.draw(st.sampled_from(commands)))[4:])
    wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    with suppress(WireError):
        parse(bytes(wire))


def test_properties_are_carried_as_pairs() -> None:
    pairs = key_values({"a": "1", "b": ""})
    assert pairs == [KeyValue(key="a", value="1"), KeyValue(key="b", value="")]
    assert key_values(None) == key_values({}) == []


def test_a_message_that_turns_into_another_command_is_judged_as_that() -> None:
    message = CommandMessage(consumer_id=1, message_id=MessageIdData(ledgerId=1, entryId=2))
    encoded = BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
    assert encoded.startswith(MESSAGE_START)
    with pytest.raises(IncompleteCommand) as caught:
        parse(frame(encoded + b"\x08\x12"))  # of two types the last one counts
    assert (caught.value.command_type, caught.value.fields) == ("PING", ("ping",))


def test_a_message_without_its_id_is_incomplete() -> None:
    with pytest.raises(IncompleteCommand) as caught:
        parse(frame(MESSAGE_START + b"\x02\x08\x01"))
    assert caught.value.fields == ("message.message_id",)
