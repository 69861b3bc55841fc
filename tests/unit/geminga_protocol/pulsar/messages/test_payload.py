"""Proves that payloads are opened and made as clients do, and that damaged ones are noticed."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol.errors import ChecksumMismatch, TruncatedFrame, WireError
from geminga_protocol.pulsar.api_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    MessageMetadata,
    SingleMessageMetadata,
)
from geminga_protocol.pulsar.messages.integers import UINT64_MAX
from geminga_protocol.pulsar.messages.payload import (
    COPY_BYTES_MAX,
    encode_batch,
    encode_broker_entry,
    encode_front,
    encode_numbered_batch,
    encode_payload,
    is_usual_metadata,
    metadata_bounds,
    open_payload,
    parse_broker_entry,
    parse_metadata,
    skip_broker_entry,
    split_batch,
    split_batch_lazily,
    verify_checksum,
)
from geminga_protocol.pulsar.messages.protobuf import parse_message

METADATA = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1_700_000_000_000)
PAYLOAD = encode_payload(METADATA, b"hello")
BROKER_ENTRY = encode_broker_entry(BrokerEntryMetadata(broker_timestamp=1, index=2))


def golden_payloads(golden_frames: list[bytes]) -> list[bytes]:
    with_payload = (BaseCommand.SEND, BaseCommand.MESSAGE)
    return [
        wire[8 + int.from_bytes(wire[4:8], "big") :]
        for wire in golden_frames
        if wire[9] in with_payload
    ]


def test_payloads_of_official_clients_are_opened_and_made_again(
    golden_frames: list[bytes],
) -> None:
    payloads = golden_payloads(golden_frames)
    assert len(payloads) >= 8
    for payload in payloads:
        assert verify_checksum(payload, 0, len(payload))
        metadata, body_start = open_payload(payload, 0, len(payload))
        assert metadata == parse_metadata(payload)
        body = payload[body_start:]
        assert encode_payload(metadata, body) == payload
        assert encode_front(metadata, memoryview(body)) + body == payload


def test_a_changed_byte_is_noticed_wherever_it_is() -> None:
    for index in range(2, len(PAYLOAD)):
        changed = bytearray(PAYLOAD)
        changed[index] ^= 1
        assert not verify_checksum(bytes(changed), 0, len(changed))
        with pytest.raises(ChecksumMismatch):
            open_payload(bytes(changed), 0, len(changed))


def test_the_checksum_covers_large_payloads_too() -> None:
    payload = encode_payload(METADATA, bytes(COPY_BYTES_MAX * 2))
    assert verify_checksum(b"?" + payload + b"?", 1, 1 + len(payload))
    assert not verify_checksum(payload[:-1] + b"\x01", 0, len(payload))


def test_a_payload_without_checksum_is_legal() -> None:
    bare = PAYLOAD[6:]
    assert verify_checksum(bare, 0, len(bare))
    assert open_payload(bare, 0, len(bare)) == (METADATA, len(bare) - len(b"hello"))


def test_a_checksum_that_is_cut_is_wrong() -> None:
    for end in range(2, len(PAYLOAD)):
        assert not verify_checksum(PAYLOAD, 0, end)
        assert not verify_checksum(PAYLOAD[:end], 0, end)


def test_broker_entry_metadata_stands_in_front_and_outside_the_checksum() -> None:
    entry = BROKER_ENTRY + PAYLOAD
    end = len(entry)
    assert skip_broker_entry(entry, 0, end) == len(BROKER_ENTRY)
    assert parse_broker_entry(entry, 0, end) == BrokerEntryMetadata(broker_timestamp=1, index=2)
    assert open_payload(entry, 0, end) == (METADATA, end - len(b"hello"))
    assert parse_metadata(entry) == METADATA


def test_most_payloads_have_no_broker_entry_metadata() -> None:
    assert skip_broker_entry(PAYLOAD, 0, len(PAYLOAD)) == 0
    assert parse_broker_entry(PAYLOAD, 0, len(PAYLOAD)) is None


def test_the_metadata_is_found_without_parsing_it() -> None:
    buffer = b"before" + PAYLOAD
    start, end = metadata_bounds(buffer, 6, len(buffer))
    assert buffer[start:end] == METADATA.SerializeToString()
    assert buffer[end:] == b"hello"


@pytest.mark.parametrize("end", [0, 1, 5, 6, 9, len(BROKER_ENTRY) - 1])
def test_a_cut_broker_entry_is_a_wire_error(end: int) -> None:
    with pytest.raises(WireError):
        parse_metadata(BROKER_ENTRY[:end])


def test_metadata_larger_than_the_payload_is_a_wire_error() -> None:
    lying = struct.pack(">I", 1000) + METADATA.SerializeToString()
    with pytest.raises(TruncatedFrame) as caught:
        parse_metadata(lying)
    assert (caught.value.wanted_bytes, caught.value.left_bytes) == (1000, len(lying) - 4)


def test_metadata_without_required_fields_is_a_wire_error() -> None:
    encoded = MessageMetadata(producer_name="p").SerializePartialToString()
    with pytest.raises(WireError, match="sequence_id, publish_time"):
        parse_metadata(struct.pack(">I", len(encoded)) + encoded)


@given(st.binary(max_size=60))
@settings(max_examples=200)
def test_garbage_is_a_wire_error_and_nothing_else(garbage: bytes) -> None:
    for head in (b"", b"\x0e\x01", b"\x0e\x02", b"\x0e\x02\0\0\0\x04"):
        payload = head + garbage
        verify_checksum(payload, 0, len(payload))
        with suppress(WireError):
            parse_metadata(payload)
        with suppress(WireError):
            open_payload(payload, 0, len(payload))


def single(key: str) -> SingleMessageMetadata:
    return SingleMessageMetadata(partition_key=key, payload_size=0)


def test_a_batch_is_split_into_what_it_was_made_of() -> None:
    body = encode_batch([(single("a"), b"one"), (single("b"), b""), (single("c"), b"three")])
    split = split_batch(body, 3)
    assert [(metadata.partition_key, payload) for metadata, payload in split] == [
        ("a", b"one"),
        ("b", b""),
        ("c", b"three"),
    ]


@pytest.mark.parametrize("num_messages", [0, 1, 3, 4])
def test_a_batch_with_another_number_of_messages_than_told_is_a_wire_error(
    num_messages: int,
) -> None:
    body = encode_batch([(single("a"), b"one"), (single("b"), b"two")])
    with pytest.raises(WireError):
        split_batch(body, num_messages)


@pytest.mark.parametrize("payload_size", [-1, 4, 2**31 - 1])
def test_a_message_that_lies_about_its_size_is_a_wire_error(payload_size: int) -> None:
    encoded = SingleMessageMetadata(payload_size=payload_size).SerializeToString()
    body = struct.pack(">I", len(encoded)) + encoded + b"one"
    with pytest.raises(WireError):
        split_batch(body, 1)


@given(st.binary(max_size=60), st.integers(0, 5))
@settings(max_examples=100)
def test_a_garbage_batch_is_a_wire_error(body: bytes, num_messages: int) -> None:
    with suppress(WireError):
        assert len(split_batch(body, num_messages)) == num_messages


def test_a_batch_written_by_hand_is_the_one_that_protobuf_writes() -> None:
    payloads = [b"", b"a", b"b" * 127, b"c" * 128, b"d" * 20_000, b"e"]
    ids = [0, 127, 128, 16_384, 1 << 40, UINT64_MAX]
    keys = ["", "", "k", "", "key" * 50, ""]
    body = encode_numbered_batch(
        payloads,
        [
            SingleMessageMetadata(partition_key=key or None).SerializePartialToString()
            for key in keys
        ],
        ids,
    )
    assert split_batch(body, len(payloads)) == [
        (
            SingleMessageMetadata(
                payload_size=len(payload), sequence_id=sequence_id, partition_key=key or None
            ),
            payload,
        )
        for payload, sequence_id, key in zip(payloads, ids, keys, strict=True)
    ]


def parsed_and_lazy(
    body: bytes, num_messages: int
) -> list[list[tuple[SingleMessageMetadata, bytes]] | None]:
    """What both ways to split a batch give; ``None`` for a ``WireError``."""
    answers: list[list[tuple[SingleMessageMetadata, bytes]] | None] = [None, None]
    with suppress(WireError):
        answers[0] = split_batch(body, num_messages)
    with suppress(WireError):
        answers[1] = [
            (parse_message(SingleMessageMetadata, each) if isinstance(each, bytes) else each, data)
            for each, data in split_batch_lazily(body, num_messages)
        ]
    return answers


SIZES = st.sampled_from([0, 1, 3, 127, 128, 200, 16_383, 16_384, 20_000])
SEQUENCE_IDS = st.integers(0, UINT64_MAX) | st.sampled_from([0, 127, 128, (1 << 49) - 1, 1 << 49])


@given(st.lists(st.tuples(SIZES, SEQUENCE_IDS, st.sampled_from(["", "k"])), max_size=5))
@settings(max_examples=200)
def test_a_batch_is_split_lazily_into_the_same_messages(
    messages: list[tuple[int, int, str]],
) -> None:
    sizes, ids, keys = zip(*messages, strict=True) if messages else ((), (), ())
    attributes = [
        SingleMessageMetadata(partition_key=key or None).SerializePartialToString() for key in keys
    ]
    body = encode_numbered_batch([b"x" * size for size in sizes], attributes, ids)
    parsed, lazy = parsed_and_lazy(body, len(messages))
    assert parsed is not None
    assert parsed == lazy


def test_only_metadata_that_says_more_than_size_and_sequence_id_is_parsed_at_once() -> None:
    ids = [0, 127, 128, (1 << 49) - 1, 1 << 49, 7]
    key = SingleMessageMetadata(partition_key="k").SerializePartialToString()
    payloads = [b"", b"a" * 127, b"b" * 128, b"c" * 20_000, b"", b""]
    body = encode_numbered_batch(payloads, [b"", b"", b"", b"", b"", key], ids)
    split = split_batch_lazily(body, len(ids))
    assert [isinstance(metadata, bytes) for metadata, _ in split] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    "encoded",
    [
        SingleMessageMetadata(payload_size=3, sequence_id=5, null_value=True).SerializeToString(),
        SingleMessageMetadata(payload_size=3, sequence_id=500, null_value=True).SerializeToString(),
        b"\x20\x03\x40\x05",  # compacted_out, and no payload_size
        b"\x18\x03\x40\x85",  # a varint that does not end
        b"\x18\x83\x80\x80\x00\x40\x05",  # a size of four bytes
    ],
)
def test_metadata_that_only_begins_like_the_usual_is_left_to_protobuf(encoded: bytes) -> None:
    body = struct.pack(">I", len(encoded)) + encoded + b"one"
    with suppress(WireError):
        ((metadata, _),) = split_batch_lazily(body, 1)
        assert not isinstance(metadata, bytes)
    parsed, lazy = parsed_and_lazy(body, 1)
    assert parsed == lazy


@given(
    st.integers(0, 40),
    st.sampled_from([0, 1, 0x10, 0x18, 0x38, 0x40, 0x50, 0x7F, 0x80, 0x81, 0xFF]),
    st.integers(0, 5),
)
@settings(max_examples=500)
def test_a_damaged_batch_is_judged_alike_when_it_is_split_lazily(
    index: int, byte: int, num_messages: int
) -> None:
    for size in (2, 130, 17_000):
        body = bytearray(
            encode_numbered_batch([b"y" * size] * 3, [b""] * 3, [5, 1 << 20, (1 << 49) - 1])
        )
        body[index % len(body)] = byte
        parsed, lazy = parsed_and_lazy(bytes(body), num_messages)
        assert parsed == lazy


@given(st.binary(max_size=20), st.integers(1, 3))
@settings(max_examples=500)
def test_garbage_metadata_is_judged_alike_when_it_is_split_lazily(
    garbage: bytes, num_messages: int
) -> None:
    for head in (b"", b"\x18\x00", b"\x18\x03\x40", b"\x18\x80\x80", b"\x18\x80\x80\x00\x40"):
        encoded = head + garbage
        one = struct.pack(">I", len(encoded)) + encoded
        parsed, lazy = parsed_and_lazy(one * num_messages + b"one", num_messages)
        assert parsed == lazy


@pytest.mark.parametrize(
    ("said", "is_usual"),
    [
        ({}, True),
        ({"num_messages_in_batch": 1000, "compression": 1, "uncompressed_size": 2**31}, True),
        ({"event_time": 1_700_000_000_000}, True),
        ({"partition_key": "k"}, False),
        ({"producer_name": "\xe4"}, False),
        ({"producer_name": "p" * 128}, False),
        ({"num_chunks_from_msg": 2}, False),
    ],
)
def test_metadata_of_a_name_and_numbers_is_known_at_sight(
    said: dict[str, Any], *, is_usual: bool
) -> None:
    usual: dict[str, Any] = {"producer_name": "p-1", "sequence_id": 300, "publish_time": 2**40}
    metadata = MessageMetadata(**{**usual, **said})
    assert is_usual_metadata(metadata.SerializeToString()) == is_usual
    payload = encode_payload(metadata, b"body")
    assert open_payload(payload, 0, len(payload)) == (metadata, len(payload) - 4)


# Metadata as most have it, with what is not quite that among it.
NAMES = [b"\x0a\x01p", b"\x0a\x01\xff", b"\x0a\x05p", b"\x0a\x00", b""]
NUMBERS = [b"\x01", b"\xff\x01", b"\x80" * 8 + b"\x01", b"\xff" * 9 + b"\x7f", b"\x80"]
OTHERS = [b"\x40\x01", b"\x58\x80\x01", b"\x22\x01k", b"\x18\x05", b"\x0a\x01\xff"]
ABOUT_USUAL = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from([b"\x10", b"\x20"]),
    st.sampled_from(NUMBERS),
    st.sampled_from([b"\x18", b""]),
    st.sampled_from(NUMBERS),
    st.lists(st.sampled_from(OTHERS), max_size=3).map(b"".join),
)


@given(ABOUT_USUAL.map(b"".join))
@settings(max_examples=300)
def test_metadata_that_is_known_at_sight_would_be_parsed_too(encoded: bytes) -> None:
    if is_usual_metadata(encoded):
        assert parse_message(MessageMetadata, encoded) == MessageMetadata.FromString(encoded)
