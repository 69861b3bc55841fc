"""Proves that the headers of messages are what a Pulsar broker and protobuf write."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol.pulsar.api_pb2 import BaseCommand, CommandMessage, MessageIdData
from geminga_protocol.pulsar.message import NO_CONSUMER_EPOCH, MessageEncoder
from geminga_protocol.pulsar.messages.integers import UINT64_MAX, signed

IDS = st.one_of(st.integers(0, 300), st.integers(0, 1 << 22), st.integers(0, UINT64_MAX))


def test_headers_are_those_of_a_pulsar_broker(golden_frames: list[bytes]) -> None:
    messages = [wire for wire in golden_frames if wire[9] == BaseCommand.MESSAGE]
    assert len(messages) >= 3
    for wire in messages:
        payload_start = 8 + int.from_bytes(wire[4:8], "big")
        message = BaseCommand.FromString(wire[8:payload_start]).message
        has_epoch = message.HasField("consumer_epoch")
        encoder = MessageEncoder(
            message.consumer_id,
            message.message_id.partition,
            message.consumer_epoch if has_epoch else NO_CONSUMER_EPOCH,
        )
        header = encoder.header(
            message.message_id.ledgerId,
            message.message_id.entryId,
            len(wire) - payload_start,
            message.redelivery_count,
            message.ack_set,
        )
        assert header == wire[:payload_start]


@given(
    consumer_id=IDS,
    partition=st.integers(-1, 2**31 - 1),
    epoch=st.integers(-1, 2**63 - 1),
    messages=st.lists(
        st.tuples(
            IDS,
            IDS,
            st.integers(0, 6_000_000),
            st.integers(0, 2**32 - 1),
            st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30),
        ),
        min_size=1,
        max_size=4,
    ),
)
@settings(max_examples=100)
def test_headers_are_what_protobuf_writes(
    consumer_id: int,
    partition: int,
    epoch: int,
    messages: list[tuple[int, int, int, int, list[int]]],
) -> None:
    encoder = MessageEncoder(consumer_id, partition, epoch)
    for ledger_id, entry_id, payload_bytes, redelivery_count, ack_set in messages:
        message = CommandMessage(
            consumer_id=consumer_id,
            message_id=MessageIdData(ledgerId=ledger_id, entryId=entry_id, partition=partition),
            redelivery_count=redelivery_count or None,
            ack_set=ack_set,
            consumer_epoch=None if epoch == NO_CONSUMER_EPOCH else epoch,
        )
        command = BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
        sizes = struct.pack(">II", 4 + len(command) + payload_bytes, len(command))
        header = encoder.header(
            signed(ledger_id), signed(entry_id), payload_bytes, redelivery_count, ack_set
        )
        assert header == sizes + command
