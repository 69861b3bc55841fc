"""Proves that message ids sort as their topic does, and survive being stored."""

from __future__ import annotations

import pytest

from geminga import EARLIEST, LATEST, MessageId
from geminga.batch_acks import BatchAcks
from geminga.errors import ClientError
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
    assert MessageId(1, 2, 3, -1, 4, BatchAcks(4)) == MessageId(1, 2, 3)
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
    assert MessageId(5, 6, 2, 1, 10).to_proto() == proto


def test_earliest_and_latest_are_what_the_protocol_says() -> None:
    assert EARLIEST.to_proto().ledgerId == 2**64 - 1
    assert LATEST.to_proto().entryId == 2**63 - 1


def test_a_partition_is_taken_where_the_command_names_none() -> None:
    assert MessageId.from_proto(MessageIdData(ledgerId=5, entryId=6), 3).partition == 3
    assert MessageId.from_proto(MessageIdData(ledgerId=5, entryId=6, partition=1), 3).partition == 1


@pytest.mark.parametrize("encoded", [b"", b"\x08\x01", b"\xff", b"garbage"])
def test_what_is_no_id_is_refused(encoded: bytes) -> None:
    with pytest.raises(ClientError, match="no message id"):
        MessageId.from_bytes(encoded)
