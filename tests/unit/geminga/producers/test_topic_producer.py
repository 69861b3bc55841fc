"""Proves when batches leave and what is in them, and what becomes of each of their messages."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from tests.unit.geminga.fake_broker import LEDGER, MAX_MESSAGE_BYTES, FakeBroker, until
from tests.unit.geminga.outcomes import Outcomes
from tests.unit.geminga.producers.stored import bodies, entries, metadata_of

from geminga import Batching, Client, Closed, MessageId, MessageTooLarge, NotAllowed, SendTimedOut
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.messages.payload import parse_metadata

# Batches leave only for the reason that a test is about.
PATIENT = Batching(delay_s=60, messages_max=10_000, bytes_max=1 << 30)


async def test_a_batch_leaves_when_its_time_is_over(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer("orders", batching=Batching(delay_s=5))
    producer.send_nowait(b"0")
    await asyncio.sleep(4)
    producer.send_nowait(b"1")
    assert broker.payloads == []
    await asyncio.sleep(1.01)
    assert bodies(broker) == [[b"0", b"1"]]


async def test_a_batch_leaves_when_it_has_messages_enough(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders", batching=Batching(delay_s=60, messages_max=3))
    for number in range(7):
        producer.send_nowait(b"%d" % number)
    await asyncio.sleep(1)
    assert bodies(broker) == [[b"0", b"1", b"2"], [b"3", b"4", b"5"]]
    await producer.flush()
    assert bodies(broker)[2:] == [[b"6"]]


async def test_a_message_that_fills_a_batch_by_itself_leaves_at_once(
    client: Client, broker: FakeBroker
) -> None:
    for limits in (Batching(messages_max=1), Batching(bytes_max=10)):
        broker.payloads.clear()
        producer = await client.producer("orders", batching=limits)
        for number in range(3):
            producer.send_nowait(b"%d and more" % number)
        await producer.flush()
        assert bodies(broker) == [[b"0 and more"], [b"1 and more"], [b"2 and more"]]


async def test_no_batch_is_larger_than_its_limit_or_the_brokers(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders", batching=Batching(delay_s=60, bytes_max=1000))
    for _ in range(10):
        producer.send_nowait(bytes(250))
    await producer.flush()
    assert [len(messages) for messages in bodies(broker)] == [3, 3, 3, 1]
    broker.payloads.clear()
    producer = await client.producer("orders", batching=PATIENT)
    for _ in range(50):
        producer.send_nowait(bytes(9_000), key="k" * 100)
    await producer.flush()
    assert sum(len(messages) for messages in bodies(broker)) == 50
    assert MAX_MESSAGE_BYTES * 0.9 < max(map(len, broker.payloads)) <= MAX_MESSAGE_BYTES


async def test_an_awaited_message_leaves_at_the_end_of_the_turn(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders", batching=PATIENT)
    producer.send_nowait(b"0")
    ids = await asyncio.gather(*(producer.send(b"%d" % number) for number in range(1, 4)))
    assert bodies(broker) == [[b"0", b"1", b"2", b"3"]]
    assert ids == [MessageId(LEDGER, 0, index) for index in (1, 2, 3)]
    assert {message_id.batch_size for message_id in ids} == {4}


async def test_a_message_that_stays_alone_makes_no_batch(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    assert await producer.send(b"0") == MessageId(LEDGER, 0)
    (metadata,) = metadata_of(broker)
    assert not metadata.HasField("num_messages_in_batch")
    assert broker.of_type(BaseCommand.SEND)[0].send.num_messages == 1


async def test_without_batching_each_message_leaves_alone(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders", batching=None)
    for number in range(3):
        producer.send_nowait(b"%d" % number)
    await producer.flush()
    assert bodies(broker) == [[b"0"], [b"1"], [b"2"]]


async def test_a_batch_says_what_is_in_it(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer("orders", initial_sequence_id=9)
    producer.send_nowait(b"0", key="a", properties={"p": "q"}, event_time=5, ordering_key=b"o")
    producer.send_nowait(None, key=b"\xff")
    producer.send_nowait(b"2")
    await producer.flush()
    (messages,) = entries(broker)
    first, second, third = messages
    said = first.said
    assert (said.partition_key, said.ordering_key, said.event_time) == ("a", b"o", 5)
    assert {pair.key: pair.value for pair in said.properties} == {"p": "q"}
    assert (second.body, second.said.null_value) == (b"", True)
    assert (second.said.partition_key, second.said.partition_key_b64_encoded) == ("/w==", True)
    assert not third.said.HasField("partition_key")
    assert not third.said.null_value
    assert [message.said.sequence_id for message in messages] == [10, 11, 12]
    (metadata,) = metadata_of(broker)
    assert (metadata.sequence_id, metadata.highest_sequence_id) == (10, 12)
    assert (metadata.partition_key, metadata.ordering_key) == ("a", b"o")
    send = broker.of_type(BaseCommand.SEND)[0].send
    assert (send.sequence_id, send.num_messages, send.highest_sequence_id) == (10, 3, 12)


async def test_messages_that_no_batch_can_describe_go_alone_and_in_their_order(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    producer.send_nowait(b"0")
    producer.send_nowait(b"1", deliver_at=77, key="k")
    producer.send_nowait(b"2")
    producer.send_nowait(b"3", replicate_to=["elsewhere"])
    producer.send_nowait(b"4", replicate_to=[])
    await producer.flush()
    assert bodies(broker) == [[b"0"], [b"1"], [b"2"], [b"3"], [b"4"]]
    metadata = metadata_of(broker)
    assert (metadata[1].deliver_at_time, metadata[1].partition_key) == (77, "k")
    assert [list(each.replicate_to) for each in metadata[2:]] == [[], ["elsewhere"], ["__local__"]]
    assert [each.sequence_id for each in metadata] == [0, 1, 2, 3, 4]


async def test_by_key_each_batch_has_one_key_and_consecutive_numbers(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders", batching=Batching(delay_s=60, by_key=True))
    for number in range(6):
        producer.send_nowait(b"%d" % number, key="ab"[number % 2])
    producer.send_nowait(b"6", key="a", ordering_key=b"b")
    producer.send_nowait(b"7")
    await producer.flush()
    assert bodies(broker) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"], [b"6"], [b"7"]]
    assert [sequence_id for sequence_id, _ in broker.stored] == list(range(8))
    assert [each.partition_key for each in metadata_of(broker)] == ["a", "b", "a", ""]


async def test_batches_and_messages_alone_are_compressed_where_that_helps(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders", compression="zlib")
    for _ in range(3):
        producer.send_nowait(bytes(1000))
    await producer.flush()
    await producer.send(bytes(1000))
    await producer.send(b"incompressible")
    await producer.send(bytes(MAX_MESSAGE_BYTES * 2))
    assert bodies(broker) == [
        [bytes(1000)] * 3,
        [bytes(1000)],
        [b"incompressible"],
        [bytes(MAX_MESSAGE_BYTES * 2)],
    ]
    metadata = metadata_of(broker)
    assert [each.compression for each in metadata] == [api.ZLIB, api.ZLIB, api.NONE, api.ZLIB]
    assert metadata[1].uncompressed_size == 1000
    assert all(len(payload) < 500 for payload in broker.payloads)


async def test_a_message_larger_than_the_broker_takes_leaves_in_chunks(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders", chunking=True)
    body = bytes(range(250)) * 1000
    producer.send_nowait(b"before")
    message_id = await producer.send(body, key="k", properties={"p": "q"})
    await producer.send(b"after")
    before, *parts, after = [one for (one,) in bodies(broker)]
    assert (before, b"".join(parts), after) == (b"before", body, b"after")
    assert max(map(len, broker.payloads)) <= MAX_MESSAGE_BYTES
    chunks = metadata_of(broker)[1:-1]
    assert [each.chunk_id for each in chunks] == [0, 1, 2]
    assert {each.num_chunks_from_msg for each in chunks} == {3}
    assert {each.total_chunk_msg_size for each in chunks} == {len(body)}
    assert {each.uuid for each in chunks} == {"made-up-1"}
    assert {each.partition_key for each in chunks} == {"k"}
    sends = [command.send for command in broker.of_type(BaseCommand.SEND)]
    assert [send.is_chunk for send in sends] == [False, True, True, True, False]
    assert [send.sequence_id for send in sends] == [0, 1, 1, 1, 2]
    assert message_id == MessageId(LEDGER, 3)
    assert message_id.first_chunk == MessageId(LEDGER, 1)
    assert MessageId.from_bytes(message_id.to_bytes()).first_chunk == message_id.first_chunk


async def test_chunks_are_of_what_compression_leaves(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer("orders", chunking=True, compression="zlib")
    body = Random(1).randbytes(150_000) + bytes(1_000_000)
    await producer.send(body)
    await producer.send(bytes(1_000_000))
    first, second, third = metadata_of(broker)
    assert (first.num_chunks_from_msg, first.uncompressed_size) == (2, len(body))
    assert first.total_chunk_msg_size < 160_000
    assert second.chunk_id == 1
    assert third.num_chunks_from_msg == 0


async def test_a_message_of_which_a_chunk_fails_has_failed_once(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.SEND,
        lambda session, command, payload: (
            session.write(answers.encode_send_error(0, 0, api.NotAllowedError, "no"))
            if parse_metadata(payload).chunk_id == 1
            else broker.store(session, command, payload)
        ),
    )
    producer = await client.producer("orders", chunking=True)
    outcomes = Outcomes()
    producer.send_nowait(bytes(MAX_MESSAGE_BYTES * 3), outcomes)
    await producer.flush()
    assert [type(error) for error in outcomes.errors] == [NotAllowed]
    assert outcomes.ids == []
    assert producer.pending_messages == 0


async def test_attributes_that_fill_a_chunk_are_refused(client: Client) -> None:
    producer = await client.producer("orders", chunking=True)
    with pytest.raises(MessageTooLarge):
        producer.send_nowait(bytes(MAX_MESSAGE_BYTES + 1), properties={"p": "x" * 99_000})


async def test_what_a_caller_changes_after_sending_changes_no_message(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    properties = {"n": "0"}
    data = bytearray(b"before")
    producer.send_nowait(data, properties=properties)  # type: ignore[arg-type]  # a view is taken
    properties["n"] = "1"
    data[:] = b"after!"
    await producer.flush()
    ((message,),) = entries(broker)
    assert message.body == b"before"
    assert [pair.value for pair in message.said.properties] == ["0"]


# ---- sequence ids of the user's choice


async def test_sequence_ids_can_be_chosen_and_leave_together(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer("orders")
    for sequence_id in (10, 20, None, 30, 5, 6):
        producer.send_nowait(b"", sequence_id=sequence_id)
    await producer.flush()
    assert [[each.said.sequence_id for each in messages] for messages in entries(broker)] == [
        [10, 20, 21, 30],
        [5, 6],
    ]
    await producer.send(b"")
    assert entries(broker)[-1][0].said.sequence_id == 31, "numbering goes on behind the highest"


async def test_a_chosen_sequence_id_goes_behind_what_is_not_numbered_yet(
    client: Client, broker: FakeBroker
) -> None:
    for by_key in (False, True):
        producer = await client.producer("orders", batching=Batching(by_key=by_key))
        broker.stored.clear()
        producer.send_nowait(b"")
        producer.send_nowait(b"", sequence_id=7)
        producer.send_nowait(b"")
        await producer.flush()
        assert [sequence_id for sequence_id, _ in broker.stored] == [0, 7, 8]


WRONG: list[dict[str, Any]] = [
    {"sequence_id": -1},
    {"sequence_id": 1 << 63},
    {"deliver_at": 1 << 70},
    {"deliver_at": 7.5},
    {"replicate_to": [7]},
    {"key": 7},
    {"key": "\ud800"},
    {"properties": {"p": 7}},
    {"event_time": -1},
    {"ordering_key": "text"},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
@pytest.mark.parametrize("batching", [PATIENT, None], ids=["batches", "alone"])
async def test_what_no_metadata_can_hold_is_refused_and_leaves_no_trace(
    client: Client, broker: FakeBroker, wrong: dict[str, Any], batching: Batching | None
) -> None:
    producer = await client.producer("orders", batching=batching)
    producer.send_nowait(b"before")
    with pytest.raises((ValueError, TypeError)):
        producer.send_nowait(b"wrong", **wrong)
    with pytest.raises((ValueError, TypeError)):
        await producer.send(b"wrong", **wrong)
    producer.send_nowait(b"after")
    async with asyncio.timeout(1):
        await producer.flush()
    assert [sent for messages in bodies(broker) for sent in messages] == [b"before", b"after"]
    assert producer.pending_messages == 0
    assert producer.last_sequence_id == 1


# ---- what becomes of them


async def test_a_failed_batch_fails_each_of_its_messages(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.SEND,
        lambda session, command, _: session.write(
            answers.encode_send_error(
                command.send.producer_id, command.send.sequence_id, api.NotAllowedError, "no"
            )
        ),
    )
    producer = await client.producer("orders")
    outcomes = Outcomes()
    producer.send_nowait(b"0", outcomes)
    producer.send_nowait(b"1", outcomes)
    with pytest.raises(NotAllowed):
        await producer.send(b"2")
    assert [type(error) for error in outcomes.errors] == [NotAllowed, NotAllowed]
    assert producer.pending_messages == 0
    await producer.flush()  # all of them have been told


async def test_the_first_error_of_messages_without_callbacks_is_raised_once(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.producer("orders", send_timeout_s=5)
    for _ in range(3):
        producer.send_nowait(b"")
    with pytest.raises(SendTimedOut) as caught:
        await producer.flush()
    assert caught.value.__notes__ == ["3 messages sent without callbacks were not stored"]
    await producer.flush()
    producer.send_nowait(b"")
    await asyncio.sleep(6)
    with pytest.raises(SendTimedOut):
        await producer.ready()
    await producer.ready()
    with pytest.raises(SendTimedOut):
        async with client.producer("orders", send_timeout_s=1) as producer:
            producer.send_nowait(b"")
    await producer.close()


async def test_an_error_of_the_block_is_not_replaced_by_one_of_a_message(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND)

    async def fail() -> None:
        async with client.producer("orders", send_timeout_s=1) as producer:
            producer.send_nowait(b"")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()


async def test_a_flush_waits_for_what_came_before_it_and_no_longer(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.producer("orders", batching=PATIENT)
    producer.send_nowait(b"0")
    flushing = asyncio.create_task(producer.flush())
    given_up = asyncio.create_task(producer.flush())
    await until(lambda: bool(broker.of_type(BaseCommand.SEND)))
    given_up.cancel()
    producer.send_nowait(b"1")
    broker.on(BaseCommand.SEND, broker.store)
    broker.drop_connections()
    await flushing
    assert broker.stored_bodies == [b"0"]
    assert producer.pending_messages == 1


async def test_closing_sends_open_batches_and_an_end_fails_them(
    client: Client, broker: FakeBroker
) -> None:
    async with client.producer("orders", batching=PATIENT) as producer:
        producer.send_nowait(b"0")
    assert broker.stored_bodies == [b"0"]
    producer = await client.producer("orders", batching=PATIENT)
    outcomes = Outcomes()
    producer.send_nowait(b"1", outcomes)
    producer._parts[0].channel.end(Closed("the topic"))
    assert [type(error) for error in outcomes.errors] == [Closed]
    assert producer.pending_messages == 0
    await asyncio.sleep(120)  # its batch has no timer any more
    assert broker.stored_bodies == [b"0"]
