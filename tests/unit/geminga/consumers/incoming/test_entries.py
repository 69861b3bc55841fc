"""Proves that entries are opened as producers of all kinds made them, and bad ones refused."""

from __future__ import annotations

import zlib
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga.fake_broker import batch_payload, metadata

from geminga import Message, MessageId, UnreadableMessage
from geminga.consumers.incoming.chunks import PendingChunks
from geminga.consumers.incoming.entries import BodyOpener, Entry, EntryOpener, is_acknowledged
from geminga.consumers.incoming.values import ValueReader
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import (
    encode_batch,
    encode_broker_entry,
    encode_numbered_batch,
    encode_payload,
)
from geminga_simulation.event_loop.clock import SimulatedClock


def command(ack_set: tuple[int, ...] = (), redelivery_count: int = 0) -> api.CommandMessage:
    return api.CommandMessage(
        consumer_id=1,
        message_id=api.MessageIdData(ledgerId=5, entryId=6, partition=2),
        redelivery_count=redelivery_count,
        ack_set=ack_set,
    )


def opener(values: ValueReader | None = None) -> EntryOpener:
    return EntryOpener("t", values, BodyOpener(PendingChunks(1, 1.0, SimulatedClock())))


def opened(payload: bytes, ack_set: tuple[int, ...] = ()) -> Entry:
    buffer = b"??" + payload + b"??"
    entry = opener().open(command(ack_set), buffer, 2, 2 + len(payload))
    if entry.error is not None:
        raise entry.error
    return entry


def alone(payload: bytes) -> Message[bytes]:
    entry = opened(payload)
    assert entry.sent_messages == 1
    (message,) = entry.messages
    return message


def test_a_message_sent_alone_has_what_its_producer_said() -> None:
    said = metadata(7)
    said.partition_key = "k"
    said.ordering_key = b"o"
    said.event_time = 9
    said.properties.add(key="a", value="b")
    message = alone(encode_payload(said, b"body"))
    assert (message.data, message.value, message.is_null) == (b"body", b"body", False)
    assert (message.id, message.topic) == (MessageId(5, 6, partition=2), "t")
    assert (message.id.topic, message.batch_index) == ("t", -1)
    assert (message.producer_name, message.sequence_id) == ("p", 7)
    assert message.publish_time_ms == 1_700_000_000_000
    assert message.publish_time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert message.event_time_ms == 9
    assert message.event_time == datetime(1970, 1, 1, 0, 0, 0, 9000, UTC)
    assert (message.key, message.key_bytes, message.ordering_key) == ("k", b"k", b"o")
    assert message.properties == {"a": "b"}
    assert (message.redelivery_count, message.schema_version) == (0, None)


def test_what_was_not_said_is_absent() -> None:
    message = alone(encode_payload(metadata(), b""))
    assert (message.key, message.ordering_key, message.event_time_ms) == (None, None, None)
    assert (message.key_bytes, message.event_time, message.replicated_from) == (None, None, None)


def test_a_key_may_be_bytes() -> None:
    said = metadata()
    said.partition_key, said.partition_key_b64_encoded = "/wA=", True
    message = alone(encode_payload(said, b""))
    assert (message.key, message.key_bytes) == ("/wA=", b"\xff\0")


def test_a_schema_makes_the_value_and_is_not_asked_for_null() -> None:
    class Upper:
        schema_info = None

        def encode(self, value: str, /) -> bytes:
            raise NotImplementedError

        def decode(self, payload: bytes, /) -> str:
            return payload.decode().upper()

    said = metadata()
    payload = encode_payload(said, b"body")
    (message,) = opener(ValueReader(Upper())).open(command(), payload, 0, len(payload)).messages
    assert (message.value, message.data) == ("BODY", b"body")
    said.null_value = True
    payload = encode_payload(said, b"")
    (message,) = opener(ValueReader(Upper())).open(command(), payload, 0, len(payload)).messages
    assert message.value is None


def test_a_null_value_is_not_an_empty_one() -> None:
    said = metadata()
    said.null_value = True
    assert alone(encode_payload(said, b"")).is_null
    assert alone(encode_payload(said, b"")).value is None


def test_broker_entry_metadata_is_skipped() -> None:
    entry = encode_broker_entry(api.BrokerEntryMetadata(index=3))
    assert alone(entry + encode_payload(metadata(), b"body")).data == b"body"


def test_the_redelivery_count_is_the_brokers() -> None:
    payload = encode_payload(metadata(), b"")
    entry = opener().open(command(redelivery_count=4), payload, 0, len(payload))
    assert entry.messages[0].redelivery_count == 4


def test_a_batch_gives_its_messages_with_one_tracker() -> None:
    entry = opened(batch_payload(b"a", b"b", b"c"))
    assert entry.sent_messages == 3
    assert [message.data for message in entry.messages] == [b"a", b"b", b"c"]
    ids = [message.id for message in entry.messages]
    assert [message_id.batch_index for message_id in ids] == [0, 1, 2]
    assert all(message_id.batch_size == 3 for message_id in ids)
    assert ids[0].batch_acks is ids[1].batch_acks is ids[2].batch_acks is not None


def test_messages_of_a_batch_have_their_own_properties() -> None:
    batched = metadata(40)
    batched.num_messages_in_batch = 2
    own = api.SingleMessageMetadata(
        payload_size=0, partition_key="k", event_time=8, sequence_id=41, null_value=True
    )
    own.properties.add(key="a", value="b")
    bare = api.SingleMessageMetadata(payload_size=0)
    first, second = opened(
        encode_payload(batched, encode_batch([(own, b""), (bare, b"x")]))
    ).messages
    assert (first.key, first.event_time_ms, first.sequence_id) == ("k", 8, 41)
    assert first.is_null
    assert first.properties == {"a": "b"}
    assert (second.key, second.event_time_ms, second.sequence_id) == (None, None, 40)


def test_messages_of_a_batch_with_the_usual_metadata_alone_are_read() -> None:
    batched = metadata(7)
    batched.num_messages_in_batch = 2
    body = encode_numbered_batch([b"a", b""], [b"", b""], [40, 1 << 40])
    first, second = opened(encode_payload(batched, body)).messages
    assert [first.data, second.data] == [b"a", b""]
    assert [first.sequence_id, second.sequence_id] == [40, 1 << 40]
    assert (first.key, first.is_null, first.properties) == (None, False, {})
    assert [first.id, second.id] == [MessageId(5, 6, index, 2) for index in range(2)]


def test_of_a_batch_that_cannot_be_opened_the_open_messages_are_counted() -> None:
    batched = metadata()
    batched.num_messages_in_batch = 3
    payload = encode_payload(batched, b"no batch")
    entry = opener().open(command(ack_set=(0b110,)), payload, 0, len(payload))
    assert entry.error is not None
    assert entry.sent_messages == 2


def test_acknowledged_and_compacted_messages_of_a_batch_are_left_out() -> None:
    batched = metadata()
    batched.num_messages_in_batch = 3
    singles = [(api.SingleMessageMetadata(payload_size=0), b"%d" % number) for number in range(3)]
    singles[2][0].compacted_out = True
    entry = opened(encode_payload(batched, encode_batch(singles)), ack_set=(0b110,))
    assert [message.data for message in entry.messages] == [b"1"]
    # Without the first, which no permit was taken for.
    assert entry.sent_messages == 2
    acks = entry.messages[0].id.batch_acks
    assert acks is not None
    assert acks.acknowledge(1)


@pytest.mark.parametrize(
    ("ack_set", "batch_index", "is_acked"),
    [
        ((), 0, False),
        ((0b01,), 0, False),
        ((0b01,), 1, True),
        ((-1,), 63, False),
        ((-1,), 64, True),
        ((0, 1), 64, False),
        ((1 << 62,), 62, False),
        ((-(1 << 63),), 63, False),
    ],
)
def test_an_ack_set_has_a_bit_for_what_is_still_open(
    ack_set: tuple[int, ...],
    batch_index: int,
    is_acked: bool,  # noqa: FBT001  # pytest names its arguments
) -> None:
    assert is_acknowledged(ack_set, batch_index) is is_acked


def test_zlib_is_understood() -> None:
    said = metadata()
    said.compression = api.ZLIB
    said.uncompressed_size = 1000
    assert alone(encode_payload(said, zlib.compress(bytes(1000)))).data == bytes(1000)


@pytest.mark.parametrize("uncompressed_size", [0, 1, 999, 1001, 2**32 - 1])
def test_a_wrong_uncompressed_size_is_noticed(uncompressed_size: int) -> None:
    said = metadata()
    said.compression = api.ZLIB
    said.uncompressed_size = uncompressed_size
    with pytest.raises(UnreadableMessage):
        opened(encode_payload(said, zlib.compress(bytes(1000))))


def unreadable() -> dict[str, bytes]:
    encrypted = metadata()
    encrypted.encryption_keys.add(key="k", value=b"v")
    snappy = metadata()
    snappy.compression = api.SNAPPY
    broken_zlib = metadata()
    broken_zlib.compression = api.ZLIB
    broken_zlib.uncompressed_size = 5
    chunk = metadata()
    chunk.num_chunks_from_msg, chunk.total_chunk_msg_size = 3, 2**31 - 1
    huge_batch = metadata()
    huge_batch.num_messages_in_batch = 2**31 - 1
    no_batch = metadata()
    no_batch.num_messages_in_batch = 0
    lying_batch = metadata()
    lying_batch.num_messages_in_batch = 3
    return {
        "is encrypted": encode_payload(encrypted, b"x"),
        "compression is damaged: snappy": encode_payload(snappy, b"x"),
        "compression is damaged": encode_payload(broken_zlib, b"xxxxx"),
        "its chunks have": encode_payload(chunk, b"x"),
        "batch of 2147483647": encode_payload(huge_batch, b"x"),
        "batch of 0": encode_payload(no_batch, b"x"),
        "single message metadata": encode_payload(lying_batch, b"x"),
        "checksum": b"\x0e\x01\0\0\0\0" + encode_payload(metadata(), b"")[6:],
        "message metadata": b"",
    }


@pytest.mark.parametrize(("reason", "payload"), unreadable().items(), ids=list(unreadable()))
def test_what_cannot_be_opened_says_why(reason: str, payload: bytes) -> None:
    with pytest.raises(UnreadableMessage, match=reason):
        opened(payload)


@given(st.binary(max_size=60), st.booleans())
@settings(max_examples=100)
def test_garbage_is_unreadable_and_nothing_else(garbage: bytes, is_batch: bool) -> None:  # noqa: FBT001
    said = metadata()
    if is_batch:
        said.num_messages_in_batch = 2
    for payload in (garbage, encode_payload(said, garbage)):
        with suppress(UnreadableMessage):
            opened(payload)
