"""Proves that the key that keeps messages together is the one Pulsar takes, however it is found."""

from __future__ import annotations

from base64 import b64encode

from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.pulsar.api_pb2 import BrokerEntryMetadata, MessageMetadata
from geminga_protocol.pulsar.messages.payload import encode_broker_entry, encode_payload
from geminga_protocol.pulsar.messages.sticky_key import NONE_KEY, sticky_key


def metadata_of(**fields: object) -> MessageMetadata:
    metadata = MessageMetadata(producer_name="p", sequence_id=3, publish_time=1_763_735_000_000)
    for name, value in fields.items():
        setattr(metadata, name, value)
    return metadata


def key_of(metadata: MessageMetadata, body: bytes = b"\x92\x01body") -> bytes:
    return sticky_key(encode_payload(metadata, body))


def dumb_key(metadata: MessageMetadata) -> bytes:
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        return metadata.partition_key.encode()
    return f"{metadata.producer_name}-{metadata.sequence_id}".encode()


def test_the_ordering_key_comes_before_the_partition_key() -> None:
    assert key_of(metadata_of(partition_key="k")) == b"k"
    assert key_of(metadata_of(partition_key="k", ordering_key=b"o")) == b"o"
    assert key_of(metadata_of(ordering_key=b"")) == b""


def test_without_a_key_each_message_of_a_producer_stands_alone() -> None:
    assert key_of(metadata_of()) == b"p-3"
    assert key_of(metadata_of(sequence_id=(1 << 64) - 3)) == b"p--3"


def test_a_key_that_was_encoded_is_decoded() -> None:
    encoded = b64encode(b"\x00\xff").decode()
    assert key_of(metadata_of(partition_key=encoded, partition_key_b64_encoded=True)) == b"\x00\xff"
    assert key_of(metadata_of(partition_key=encoded)) == encoded.encode()
    assert key_of(metadata_of(partition_key="Y*", partition_key_b64_encoded=True)) == b"Y*"


def test_what_the_broker_put_in_front_does_not_matter() -> None:
    front = encode_broker_entry(BrokerEntryMetadata(broker_timestamp=1, index=2))
    assert sticky_key(front + encode_payload(metadata_of(partition_key="k"), b"m")) == b"k"


def test_properties_and_long_keys_do_not_hide_the_key() -> None:
    metadata = metadata_of(partition_key="k" * 300)
    assert key_of(metadata) == b"k" * 300
    metadata.properties.add(key="a", value="b")
    assert key_of(metadata) == b"k" * 300


@given(st.binary(max_size=80))
def test_garbage_has_the_key_of_what_has_none(garbage: bytes) -> None:
    for payload in (garbage, b"\x0e\x01" + garbage, b"\x0e\x01cccc\x00\x00\x00\x10\x0a" + garbage):
        assert isinstance(sticky_key(payload), bytes)
    assert sticky_key(b"") == NONE_KEY


names = st.text(max_size=140)
numbers = st.integers(0, (1 << 63) - 1)


OTHERS: list[dict[str, object]] = [
    {},
    {"uncompressed_size": 17 << 7 | 0x12},
    {"num_messages_in_batch": 300, "highest_sequence_id": 1 << 63},
    {"compression": 3, "event_time": 1, "null_value": True},
]


@given(
    names,
    numbers,
    numbers,
    st.none() | st.text(max_size=200),
    st.none() | st.binary(),
    st.sampled_from(OTHERS),
)
def test_the_short_way_finds_what_the_long_way_finds(
    name: str,
    sequence_id: int,
    publish_time: int,
    key: str | None,
    ordering_key: bytes | None,
    others: dict[str, object],
) -> None:
    metadata = MessageMetadata(
        producer_name=name,
        sequence_id=sequence_id,
        publish_time=publish_time,
        partition_key=key,
        ordering_key=ordering_key,
        **others,  # type: ignore[arg-type]  # of any type
    )
    assert key_of(metadata) == dumb_key(metadata)


@given(st.binary(min_size=1, max_size=60), st.integers(0, 60))
def test_a_payload_cut_anywhere_has_some_key(body: bytes, cut: int) -> None:
    payload = encode_payload(metadata_of(partition_key="key"), body)
    assert isinstance(sticky_key(payload[: len(payload) - cut]), bytes)


def test_what_is_in_front_twice_or_cut_off_hides_every_key() -> None:
    stamp = encode_broker_entry(BrokerEntryMetadata(index=1))
    payload = encode_payload(
        MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key="k"),
        b"",
    )
    assert sticky_key(stamp + payload) == b"k"
    assert sticky_key(stamp * 100_000 + payload) == NONE_KEY
    assert sticky_key(stamp[:4]) == NONE_KEY
