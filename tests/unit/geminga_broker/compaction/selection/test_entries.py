"""Proves what compaction sees in a stored entry, and what it leaves of it."""

from __future__ import annotations

import zlib

import pytest

from geminga_broker.compaction.selection.entries import (
    GONE,
    Chunk,
    Message,
    keep_only,
    last_index,
    messages_of,
)
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import (
    encode_batch,
    encode_payload,
    metadata_bounds,
    parse_metadata,
    split_batch,
)

COMPRESSED = [api.NONE, api.ZLIB]


def entry(body: bytes, **fields: object) -> bytes:
    metadata = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.MergeFrom(api.MessageMetadata(**fields))  # type: ignore[arg-type]  # as a test says
    return encode_payload(metadata, body)


def batch(*values: tuple[str | None, bytes], compression: int = api.NONE) -> bytes:
    body = encode_batch(
        (api.SingleMessageMetadata(partition_key=key, payload_size=0), value)
        for key, value in values
    )
    stored = zlib.compress(body) if compression == api.ZLIB else body
    return entry(
        stored,
        num_messages_in_batch=len(values),
        uncompressed_size=len(body),
        compression=compression,
    )


def contents(payload: bytes) -> list[tuple[bool, bytes]]:
    """Of each place in a batch whether it is empty, and its value."""
    metadata = parse_metadata(payload)
    body = payload[metadata_bounds(payload, 0, len(payload))[1] :]
    if metadata.compression == api.ZLIB:
        body = zlib.decompress(body)
    assert len(body) == metadata.uncompressed_size
    singles = split_batch(body, metadata.num_messages_in_batch)
    return [(each.compacted_out, value) for each, value in singles]


def test_a_message_has_its_key_and_is_empty_by_what_it_was_before_compression() -> None:
    assert messages_of(entry(b"x", partition_key="a")) == [Message("a", has_value=True)]
    assert messages_of(entry(b"")) == [Message(None, has_value=False)]
    squeezed = entry(b"squeezed nothing", partition_key="a", uncompressed_size=0)
    assert messages_of(squeezed) == [Message("a", has_value=False)]


def test_a_chunk_says_of_which_message_it_is() -> None:
    first = entry(b"x", partition_key="a", uuid="u", num_chunks_from_msg=2, chunk_id=0)
    seen = Message("a", has_value=True, chunk=Chunk("u", is_first=True, is_last=False))
    assert messages_of(first) == [seen]
    alone = entry(b"x", partition_key="a", uuid="u", num_chunks_from_msg=1, chunk_id=0)
    assert messages_of(alone) == [Message("a", has_value=True)]


@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_batch_is_looked_into_and_keeps_the_places_of_what_stays(compression: int) -> None:
    payload = batch(("a", b"1"), ("b", b""), (None, b"3"), compression=compression)
    seen = [Message("a", has_value=True), Message("b", has_value=False)]
    assert messages_of(payload) == [*seen, Message(None, has_value=True)]
    left = keep_only(payload, [False, False, True])
    assert left is not None
    assert contents(left) == [(True, b""), (True, b""), (False, b"3")]
    assert messages_of(left) == [GONE, GONE, Message(None, has_value=True)]
    assert last_index(left) == 2
    assert keep_only(left, [False, False, True]) is left, "nothing more goes"


def test_an_entry_of_which_all_stays_is_not_touched_and_one_of_which_nothing_does_goes() -> None:
    payload = batch(("a", b"1"), ("b", b"2"))
    assert keep_only(payload, [True, True]) is payload
    assert keep_only(payload, [False, False]) is None


def test_the_last_message_of_a_batch_is_the_last_that_is_there() -> None:
    left = keep_only(batch(("a", b"1"), ("b", b"2")), [True, False])
    assert left is not None
    assert last_index(left) == 0
    assert last_index(entry(b"x")) == -1


def test_a_marker_has_no_messages() -> None:
    assert messages_of(entry(b"x", marker_type=1)) == []


@pytest.mark.parametrize(
    "payload",
    [
        b"no metadata at all",
        entry(b"\0\0\0\1", num_messages_in_batch=5),
        entry(b"no zlib", num_messages_in_batch=1, compression=api.ZLIB, uncompressed_size=9),
        entry(b"", num_messages_in_batch=1, compression=api.ZLIB, uncompressed_size=2**31),
        entry(
            b"secret",
            num_messages_in_batch=1,
            encryption_keys=[api.EncryptionKeys(key="k", value=b"v")],
        ),
    ],
    ids=["metadata", "cut off", "compression", "size", "encrypted"],
)
def test_what_cannot_be_looked_into_stays_as_it_is(payload: bytes) -> None:
    assert messages_of(payload) is None
