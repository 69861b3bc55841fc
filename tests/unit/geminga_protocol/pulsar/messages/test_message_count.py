"""Proves that an entry's messages are counted as its own metadata says, and lies refused."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.errors import ChecksumMismatch, WireError
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.message_count import count_messages, count_usual, take_payload
from geminga_protocol.pulsar.messages.payload import (
    COPY_BYTES_MAX,
    encode_batch,
    encode_broker_entry,
    encode_payload,
    metadata_bounds,
    parse_metadata,
)

STAMP = encode_broker_entry(api.BrokerEntryMetadata(broker_timestamp=1, index=2))
NOW_MS = 1_795_277_267_746


def metadata_of(**fields: Any) -> api.MessageMetadata:
    usual: dict[str, Any] = {"producer_name": "p-1", "sequence_id": 0, "publish_time": NOW_MS}
    return api.MessageMetadata(**(usual | fields))


def batch_of(count: int, body: bytes = b"x") -> bytes:
    return encode_batch([(api.SingleMessageMetadata(), body)] * count)


def taken(payload: bytes) -> int:
    """What a client that sends it is told, in the midst of other bytes."""
    found, count = take_payload(b"before" + payload + b"behind", 6, 6 + len(payload))
    assert found == payload
    return count


SINGLES: list[dict[str, Any]] = [
    {},
    {"publish_time": 1},
    {"publish_time": 0},
    {"producer_name": ""},
    {"producer_name": "n" * 127},
    {"producer_name": "n" * 128},
    {"partition_key": "key"},
    {"partition_key": ""},
    {"partition_key": "k" * 200},
    {"partition_key": "key", "uncompressed_size": 10},
    {"uncompressed_size": 1 << 31, "compression": api.ZSTD},
    {"event_time": NOW_MS},
    {"properties": [api.KeyValue(key="X", value="X")]},
    {"ordering_key": b"X", "null_value": True, "schema_version": bytes(8)},
    {"replicated_from": "X", "highest_sequence_id": 5},
]


UNUSUAL = {"properties", "ordering_key", "replicated_from"}


@pytest.mark.parametrize("fields", SINGLES)
@pytest.mark.parametrize(
    "sequence_id", [0, 127, 128, 16383, 16384, 1 << 21, 1 << 40, (1 << 64) - 1]
)
def test_what_is_no_batch_is_one_message(fields: dict[str, Any], sequence_id: int) -> None:
    for body in (b"", b"text", bytes(COPY_BYTES_MAX)):
        payload = encode_payload(metadata_of(sequence_id=sequence_id, **fields), body)
        assert taken(payload) == 1
        assert count_messages(payload) == count_messages(STAMP + payload) == 1
        is_usual = not UNUSUAL & fields.keys() and not any(
            len(str(fields.get(name))) > 127 for name in ("producer_name", "partition_key")
        )
        assert (count_usual(payload), count_usual(STAMP + payload)) == (is_usual, 0)


@pytest.mark.parametrize("fields", SINGLES)
@pytest.mark.parametrize("count", [1, 2, 127, 128, 1000])
def test_a_batch_is_as_many_as_its_metadata_says(fields: dict[str, Any], count: int) -> None:
    if "uncompressed_size" in fields:
        fields = fields | {"uncompressed_size": 7 * count}
    payload = encode_payload(metadata_of(num_messages_in_batch=count, **fields), batch_of(count))
    assert taken(payload) == count
    assert count_messages(payload) == count_messages(STAMP + payload) == count
    assert count_usual(payload) in (0, count)


def test_an_empty_message_may_be_batched_and_compressed() -> None:
    body = batch_of(1000, b"")
    metadata = metadata_of(
        num_messages_in_batch=1000, compression=api.ZLIB, uncompressed_size=len(body)
    )
    assert taken(encode_payload(metadata, b"smaller")) == 1000


@pytest.mark.parametrize("told", [0, -1, -(2**31), 4, 100, 2**31 - 1])
@pytest.mark.parametrize("fields", [{}, {"compression": api.LZ4, "uncompressed_size": 20}])
def test_a_batch_that_cannot_be_is_refused(told: int, fields: dict[str, Any]) -> None:
    payload = encode_payload(metadata_of(num_messages_in_batch=told, **fields), bytes(20))
    with pytest.raises(WireError, match=f"a batch of 20 bytes cannot have {told} messages"):
        taken(payload)
    assert count_messages(payload) == max(1, told)


@pytest.mark.parametrize("marker_type", [0, 1, 10, 22, 99])
def test_a_marker_has_no_messages(marker_type: int) -> None:
    payload = encode_payload(metadata_of(marker_type=marker_type), b"for brokers")
    assert taken(payload) == count_messages(payload) == count_usual(payload) == 0


def test_a_chunk_is_one_message_that_has_to_be_looked_at_on_its_way() -> None:
    payload = encode_payload(
        metadata_of(uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=9), b"text"
    )
    assert taken(payload) == count_usual(payload) == 0
    assert count_messages(payload) == 1


def test_what_only_brokers_write_is_refused_from_a_client() -> None:
    with pytest.raises(WireError, match="for brokers to write"):
        taken(STAMP + encode_payload(metadata_of(), b"text"))


def test_a_payload_without_a_checksum_is_counted() -> None:
    payload = encode_payload(metadata_of(num_messages_in_batch=3), batch_of(3))[6:]
    assert taken(payload) == count_messages(payload) == 3


@pytest.mark.parametrize("body_bytes", [0, 100, 3 * COPY_BYTES_MAX])
def test_a_changed_payload_is_told_by_its_checksum(body_bytes: int) -> None:
    payload = bytearray(encode_payload(metadata_of(), bytes(body_bytes)))
    payload[-1] ^= 1
    with pytest.raises(ChecksumMismatch):
        taken(bytes(payload))


@pytest.mark.parametrize("missing", ["producer_name", "sequence_id", "publish_time"])
def test_metadata_that_lacks_a_field_is_refused(missing: str) -> None:
    metadata = metadata_of()
    metadata.ClearField(missing)  # type: ignore[arg-type]  # the names of its fields
    covered = metadata.SerializePartialToString()
    payload = len(covered).to_bytes(4, "big") + covered + b"text" * 10
    for each in (taken, count_messages):
        with pytest.raises(WireError, match=missing):
            each(payload)


def test_a_key_that_reaches_beyond_the_metadata_is_refused() -> None:
    """A pattern that begins behind its end matches as an empty one."""
    metadata = metadata_of(partition_key="key").SerializeToString()
    for longer in (4, 5, 100):
        cut = metadata[:-4] + bytes([longer]) + metadata[-3:]
        payload = len(cut).to_bytes(4, "big") + cut + bytes(200)
        for each in (taken, count_messages):
            with pytest.raises(WireError):
                each(payload)


@given(st.binary(max_size=80))
def test_garbage_gives_a_wire_error_or_what_protobuf_finds_in_it(garbage: bytes) -> None:
    covered = b"\x0a\x01p\x10" + garbage
    sized = bytes(3) + bytes([len(covered)]) + covered
    for payload in (garbage, sized, sized[:-1], b"\x0e\x01crc!" + sized):
        usual = count_usual(payload)
        assert not usual or usual == count_messages(payload)
        try:
            found = parse_metadata(payload)
        except WireError:
            continue
        told = found.num_messages_in_batch if found.HasField("num_messages_in_batch") else 1
        assert count_messages(payload) == (0 if found.HasField("marker_type") else max(1, told))


# What has one of these is not simply one message.
MORE_THAN_PLAIN = ("marker_type", "num_messages_in_batch", "chunk_id")
CHANGES = st.lists(st.tuples(st.integers(10, 60), st.integers(0, 255)), max_size=4)


@given(changes=CHANGES, fields=st.sampled_from(SINGLES), sequence_id=st.integers(0, 1 << 24))
def test_any_change_is_seen_as_protobuf_sees_it(
    changes: list[tuple[int, int]], fields: dict[str, Any], sequence_id: int
) -> None:
    """The short cuts never take for one message what is none."""
    metadata = metadata_of(sequence_id=sequence_id, **fields).SerializeToString()
    changed = bytearray(len(metadata).to_bytes(4, "big") + metadata)
    for position, byte in changes:
        changed[position % len(changed)] = byte
    with_checksum = b"\x0e\x01" + crc32c(bytes(changed)).to_bytes(4, "big") + bytes(changed)
    try:
        found = api.MessageMetadata.FromString(with_checksum[slice(*_bounds(with_checksum))])
        expected = found.IsInitialized() and not any(
            field.name in MORE_THAN_PLAIN for field, _ in found.ListFields()
        )
    except (WireError, DecodeError):
        expected = False
    assert count_usual(with_checksum) != 1 or expected
    try:
        assert (taken(with_checksum) == 1) == expected
    except WireError:
        assert not expected


def _bounds(payload: bytes) -> tuple[int, int]:
    return metadata_bounds(payload, 0, len(payload))
