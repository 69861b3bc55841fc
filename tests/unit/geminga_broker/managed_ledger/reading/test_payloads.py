"""Proves that facts are read from stored payloads, and that none that is damaged stops anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.reading.payloads import (
    batch_size,
    counted,
    message_count,
    publish_time_ms,
    without_broker_entry,
)
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_broker_entry, encode_payload


def payload(batch: int | None = None) -> bytes:
    metadata = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1234)
    if batch is not None:
        metadata.num_messages_in_batch = batch
    return encode_payload(metadata, b"text")


@pytest.mark.parametrize(("batch", "size", "count"), [(None, None, 1), (1, 1, 1), (7, 7, 7)])
def test_a_batch_counts_its_messages_and_a_single_message_is_no_batch(
    batch: int | None, size: int | None, count: int
) -> None:
    assert batch_size(payload(batch)) == size
    assert message_count(payload(batch)) == count


def test_what_comes_from_bookies_is_counted_where_nothing_else_is_to_be_seen() -> None:
    stamped = encode_broker_entry(api.BrokerEntryMetadata(index=1)) + payload()
    found = counted([(4, payload(), 0), (5, payload(7), 0), (6, stamped, 0), (7, b"garbage", 0)])
    assert [(entry_id, count) for entry_id, _, count in found] == [(4, 1), (5, 0), (6, 0), (7, 0)]


def test_a_batch_that_says_it_is_empty_counts_as_one() -> None:
    assert batch_size(payload(0)) == 1


def test_the_publish_time_is_the_producers() -> None:
    assert publish_time_ms(payload()) == 1234


@given(st.binary(max_size=64))
def test_a_payload_that_cannot_be_parsed_has_no_messages(garbage: bytes) -> None:
    assert message_count(b"\xff" + garbage) == 0
    assert publish_time_ms(b"\xff" + garbage) >= 0


def test_a_payload_cut_anywhere_is_counted_or_has_no_messages() -> None:
    whole = payload(3)
    assert all(message_count(whole[:end]) in (0, 3) for end in range(len(whole)))


STAMP = encode_broker_entry(api.BrokerEntryMetadata(broker_timestamp=99, index=4))


def test_what_brokers_wrote_in_front_can_be_left_out_where_it_is() -> None:
    for each in (payload(), payload(3), b"", b"\x0e", b"\x0e\x02\x00\x00\x00\x07short"):
        assert without_broker_entry(each) == each
    assert without_broker_entry(STAMP + payload(3)) == payload(3)
    assert message_count(STAMP + payload(3)) == 3
