"""Proves that facts are read from stored payloads, and that none that is damaged stops anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.log.payloads import batch_size, message_count, publish_time_ms
from magnetar_protocol.pulsar import api_pb2 as api
from magnetar_protocol.pulsar.payload import encode_payload


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


def test_a_batch_that_says_it_is_empty_counts_as_one() -> None:
    assert batch_size(payload(0)) == 1


def test_the_publish_time_is_the_producers() -> None:
    assert publish_time_ms(payload()) == 1234


@given(st.binary(max_size=64))
def test_what_nobody_can_read_is_one_message_of_no_time(garbage: bytes) -> None:
    assert message_count(b"\xff" + garbage) >= 1
    assert publish_time_ms(b"\xff" + garbage) >= 0


def test_a_payload_cut_anywhere_is_still_counted() -> None:
    whole = payload(3)
    assert all(message_count(whole[:end]) in (1, 3) for end in range(len(whole)))
