"""Proves that messages in chunks are put together, once they are whole, and held within bounds."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, until

from geminga import Client, UnreadableMessage
from geminga.consumers.incoming.chunks import CHUNKED_BYTES_MAX, PendingChunks, WholeMessage
from geminga_protocol.pulsar.api_pb2 import BaseCommand, MessageMetadata
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_simulation.event_loop.clock import SimulatedClock


def chunk(uuid: str, index: int, of: int, *, age_s: float = 0) -> MessageMetadata:
    return MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=SimulatedClock().wall_ms() - int(age_s * 1000),
        uuid=uuid,
        chunk_id=index,
        num_chunks_from_msg=of,
        total_chunk_msg_size=10,
    )


class Pending:
    """Pending chunks of two messages at most, and what was told of them."""

    def __init__(self) -> None:
        self.chunks = PendingChunks(2, 60, SimulatedClock())
        self.expired: list[tuple[int, int]] = []
        self.dropped: list[tuple[int, int]] = []
        self.chunks.on_expired = self.expired.append
        self.chunks.on_dropped = self.dropped.append

    def add(self, said: MessageMetadata, entry_id: int) -> WholeMessage | None:
        return self.chunks.add(said, b"%d" % said.chunk_id, (1, entry_id))


async def test_the_last_chunk_makes_the_message_whole() -> None:
    pending = Pending()
    assert pending.add(chunk("a", 0, 3), 0) is None
    assert pending.add(chunk("b", 0, 2), 1) is None
    assert pending.add(chunk("a", 1, 3), 2) is None
    assert pending.add(chunk("b", 1, 2), 3) == WholeMessage(b"01", ((1, 1),))
    assert pending.add(chunk("a", 2, 3), 4) == WholeMessage(b"012", ((1, 0), (1, 2)))
    assert pending.expired == pending.dropped == []


async def test_a_chunk_that_comes_again_is_one() -> None:
    pending = Pending()
    pending.add(chunk("a", 0, 2), 0)
    pending.add(chunk("a", 0, 2), 0)
    assert pending.add(chunk("a", 1, 2), 1) == WholeMessage(b"01", ((1, 0),))
    assert pending.dropped == []


async def test_chunks_that_are_stored_twice_are_acknowledged_and_left_out() -> None:
    """A producer that lost its connection sends chunks without a receipt again, and a broker that
    drops repetitions does so for whole messages only."""
    pending = Pending()
    for entry_id, index in enumerate((0, 1, 2, 1, 2)):
        assert pending.add(chunk("a", index, 4), entry_id) is None
    earlier = ((1, 0), (1, 1), (1, 2))
    assert pending.add(chunk("a", 3, 4), 5) == WholeMessage(b"0123", earlier)
    assert (pending.expired, pending.dropped) == ([(1, 3), (1, 4)], [])


async def test_a_chunk_stored_twice_that_is_delivered_again_is_acknowledged_again() -> None:
    pending = Pending()
    pending.add(chunk("a", 0, 3), 0)
    pending.add(chunk("a", 1, 3), 1)
    pending.add(chunk("a", 1, 3), 2)
    # All of it comes again, the message from its first chunk on.
    pending.add(chunk("a", 0, 3), 0)
    pending.add(chunk("a", 1, 3), 1)
    pending.add(chunk("a", 1, 3), 2)
    assert pending.add(chunk("a", 2, 3), 3) == WholeMessage(b"012", ((1, 0), (1, 1)))
    assert (pending.expired, pending.dropped) == ([(1, 2), (1, 2)], [])


async def test_what_was_stored_before_a_message_began_anew_is_acknowledged() -> None:
    pending = Pending()
    pending.add(chunk("a", 0, 3), 0)
    pending.add(chunk("a", 1, 3), 1)
    pending.add(chunk("a", 0, 3), 2)
    pending.add(chunk("a", 1, 3), 3)
    assert pending.add(chunk("a", 2, 3), 4) == WholeMessage(b"012", ((1, 2), (1, 3)))
    assert (pending.expired, pending.dropped) == ([(1, 0), (1, 1)], [])


async def test_where_a_chunk_is_missing_all_are_to_come_again() -> None:
    pending = Pending()
    pending.add(chunk("a", 0, 3), 0)
    assert pending.add(chunk("a", 2, 3), 2) is None
    assert pending.add(chunk("b", 1, 2), 7) is None
    assert pending.dropped == [(1, 0), (1, 2), (1, 7)]
    assert pending.expired == []


async def test_a_rest_whose_beginning_is_long_gone_is_given_up() -> None:
    pending = Pending()
    pending.add(chunk("a", 1, 2, age_s=61), 7)
    assert (pending.expired, pending.dropped) == ([(1, 7)], [])


async def test_beyond_the_bound_the_oldest_incomplete_message_comes_again() -> None:
    pending = Pending()
    for entry_id, uuid in enumerate("abc"):
        pending.add(chunk(uuid, 0, 2), entry_id)
    assert pending.dropped == [(1, 0)]
    assert pending.add(chunk("c", 1, 2), 3) is not None


async def test_what_does_not_become_whole_in_time_is_given_up() -> None:
    pending = Pending()
    pending.add(chunk("a", 0, 2), 0)
    await asyncio.sleep(61)
    pending.add(chunk("b", 0, 2), 1)
    assert (pending.expired, pending.dropped) == ([(1, 0)], [])


async def test_a_message_that_says_it_is_huge_is_refused() -> None:
    said = chunk("a", 0, 2)
    said.total_chunk_msg_size = CHUNKED_BYTES_MAX + 1
    with pytest.raises(UnreadableMessage, match="bytes"):
        Pending().add(said, 0)


async def test_a_message_in_chunks_is_received_and_acknowledged_as_one(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", receiver_queue_size=3)
    for index in range(3):
        payload = encode_payload(chunk("a", index, 3), b"part%d" % index)
        broker.deliver(10 + index, payload=payload)
    message = await consumer.receive()
    assert message.data == b"part0part1part2"
    assert (message.id.entry_id, message.id.batch_index) == (12, -1)
    assert message.id.first_chunk is not None
    assert message.id.first_chunk.entry_id == 10
    consumer.ack(message)
    await until(lambda: sorted(broker.acked) == [10, 11, 12])
    assert broker.permits >= 3 + 2
    await consumer.seek(message.id)
    assert broker.of_type(BaseCommand.SEEK)[0].seek.message_id.entryId == 10


async def test_a_message_in_chunks_that_is_refused_comes_again_whole(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", type="shared", nack_delay_s=1)
    for index in range(2):
        broker.deliver(10 + index, payload=encode_payload(chunk("a", index, 2), b"x"))
    consumer.nack(await consumer.receive())
    kind = BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
    await until(lambda: bool(broker.of_type(kind)))
    ids = broker.of_type(kind)[0].redeliverUnacknowledgedMessages.message_ids
    assert [each.entryId for each in ids] == [10, 11]
