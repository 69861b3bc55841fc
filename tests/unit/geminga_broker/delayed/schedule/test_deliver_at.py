"""Proves that delayed entries are told from others without parsing the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.delayed.schedule.deliver_at import deliver_at_ms, is_delayed_longer, is_plain
from geminga_protocol.pulsar.api_pb2 import BrokerEntryMetadata, MessageMetadata
from geminga_protocol.pulsar.messages.payload import encode_broker_entry, encode_payload


def payload(body: bytes = b"x", **fields: object) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1000)
    for name, value in fields.items():
        setattr(metadata, name, value)
    return encode_payload(metadata, body)


@pytest.mark.parametrize("front", [b"", encode_broker_entry(BrokerEntryMetadata(index=5))])
@given(body=st.binary(max_size=20), at=st.integers(0, 2**62))
def test_a_delayed_entry_is_never_plain(front: bytes, body: bytes, at: int) -> None:
    delayed = front + payload(body, deliver_at_time=at)
    assert deliver_at_ms(delayed) == at
    if at:
        assert not is_plain(delayed)
        assert is_delayed_longer(delayed, at - 1001)
        assert not is_delayed_longer(delayed, at - 1000)
    assert deliver_at_ms(front + payload(body, event_time=at)) == 0


def test_the_tags_bytes_elsewhere_delay_nothing() -> None:
    by_chance = payload(b"\x98\x01" * 9, partition_key="k\u0600\x01")
    assert is_plain(by_chance)
    inside = payload(partition_key_b64_encoded=True, producer_name="p", uncompressed_size=152)
    assert deliver_at_ms(inside) == 0
    assert not is_delayed_longer(inside, 0)


@pytest.mark.parametrize("garbage", [b"", b"\x0e\x01", b"\x0e\x01" + b"\xff" * 20 + b"\x98\x01"])
def test_an_entry_that_cannot_be_parsed_is_not_delayed(garbage: bytes) -> None:
    assert deliver_at_ms(garbage) == 0
    assert not is_delayed_longer(garbage, 0)


def test_an_entry_without_a_checksum_is_looked_at_as_well() -> None:
    assert deliver_at_ms(payload(deliver_at_time=77)[6:]) == 77
    assert not is_plain(payload(deliver_at_time=77)[6:])
