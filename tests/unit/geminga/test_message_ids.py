"""Proves that message ids sort as their topic does, survive being stored, and acknowledge a batch
when each of its messages is acknowledged."""

from __future__ import annotations

import pulsar
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga import EARLIEST, LATEST, ClientError, MessageId
from geminga.message_ids import BatchAcks, from_proto, to_proto
from geminga_protocol.pulsar.api_pb2 import MessageIdData


def test_ids_sort_in_the_order_of_the_topic() -> None:
    ids = [
        EARLIEST,
        MessageId(1, 5),
        MessageId(1, 6, 0),
        MessageId(1, 6, 1),
        MessageId(2, 0),
        LATEST,
    ]
    shuffled = ids[::2] + ids[1::2]
    assert sorted(shuffled) == ids


def test_the_state_of_a_batch_is_no_part_of_an_id() -> None:
    assert MessageId(1, 2, 3, -1, 4, batch_acks=BatchAcks(4)) == MessageId(1, 2, 3)
    assert len({MessageId(1, 2, 3, batch_size=4), MessageId(1, 2, 3)}) == 1


@pytest.mark.parametrize(
    "message_id", [MessageId(1, 2), MessageId(1, 2, 3, 4, 5), MessageId(7, -1), EARLIEST, LATEST]
)
def test_a_stored_id_is_the_same_id(message_id: MessageId) -> None:
    stored = MessageId.from_bytes(message_id.to_bytes())
    assert stored == message_id
    assert stored.batch_size == message_id.batch_size


def test_the_stored_form_is_that_of_every_pulsar_client() -> None:
    proto = MessageIdData(ledgerId=5, entryId=6, partition=1, batch_index=2, batch_size=10)
    assert MessageId.from_bytes(proto.SerializeToString()) == MessageId(5, 6, 2, 1)
    assert to_proto(MessageId(5, 6, 2, 1, 10)) == proto


def test_the_id_of_a_message_in_chunks_keeps_its_first_chunk() -> None:
    chunked = MessageId(5, 9, partition=1, first_chunk=MessageId(5, 6, partition=1))
    stored = MessageId.from_bytes(chunked.to_bytes(), topic="t")
    assert (stored, stored.first_chunk, stored.topic) == (chunked, MessageId(5, 6, -1, 1), "t")


@pytest.mark.parametrize(
    "message_id",
    [MessageId(1, 2), MessageId(1, 2, 3, 4, 5), MessageId(1 << 40, 1 << 33, partition=0)],
)
def test_the_official_client_reads_and_writes_the_same_form(message_id: MessageId) -> None:
    official = pulsar.MessageId.deserialize(message_id.to_bytes())
    assert official.ledger_id() == message_id.ledger_id
    assert official.entry_id() == message_id.entry_id
    assert official.batch_index() == message_id.batch_index
    assert official.partition() == message_id.partition
    assert MessageId.from_bytes(official.serialize()) == message_id


def test_an_id_reads_as_upstreams_do() -> None:
    assert str(MessageId(1, 2)) == "1:2:-1"
    assert str(MessageId(1, 2, 3, 4)) == "1:2:4:3"


def test_earliest_and_latest_are_what_the_protocol_says() -> None:
    assert to_proto(EARLIEST).ledgerId == 2**64 - 1
    assert to_proto(LATEST).entryId == 2**63 - 1


def test_a_partition_is_taken_where_the_command_names_none() -> None:
    assert from_proto(MessageIdData(ledgerId=5, entryId=6), 3).partition == 3
    assert from_proto(MessageIdData(ledgerId=5, entryId=6, partition=1), 3).partition == 1


@pytest.mark.parametrize("encoded", [b"", b"\x08\x01", b"\xff", b"garbage"])
def test_what_is_no_id_is_refused(encoded: bytes) -> None:
    with pytest.raises(ClientError, match="no message id"):
        MessageId.from_bytes(encoded)


# ---- batches


@given(
    size=st.integers(1, 100),
    acks=st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=150),
)
@settings(max_examples=100)
def test_a_batch_is_done_when_no_message_is_open(size: int, acks: list[tuple[int, bool]]) -> None:
    batch = BatchAcks(size)
    still_open = set(range(size))
    for index, is_cumulative in acks:
        if is_cumulative:
            still_open -= set(range(index + 1))
            is_done = batch.acknowledge_up_to(index)
        else:
            still_open.discard(index)
            is_done = batch.acknowledge(index)
        assert is_done is (not still_open)
