"""Proves that entries are stored as their owner cut and numbered them, and none behind one that
failed; and that columns of attributes are encoded as those of single messages are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.geminga.fake_broker import MAX_MESSAGE_BYTES, FakeBroker, Session, until
from tests.unit.geminga.producers.stored import bodies, entries, metadata_of

from geminga import (
    Client,
    Closed,
    EntryProducer,
    MessageTooLarge,
    NotAllowed,
    ProducerBusy,
    SchemaInfo,
    SendTimedOut,
    TopicTerminated,
    encode_attributes,
)
from geminga.producers.outgoing.attributes import MessageAttributes, decode_attributes
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand, SingleMessageMetadata
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.messages.integers import UINT64_MAX
from geminga_protocol.pulsar.send import encode_receipt

FIRST = 7 << 32


async def send(producer: EntryProducer, first_sequence_id: int, *payloads: bytes) -> None:
    await producer.send(payloads, [b""] * len(payloads), first_sequence_id)


async def test_entries_are_stored_as_they_were_cut_and_numbered(
    client: Client, broker: FakeBroker
) -> None:
    async with client.entry_producer("orders", name="import") as producer:
        await send(producer, FIRST, b"0", b"1", b"2")
        await send(producer, FIRST + 3, b"3")
        await send(producer, FIRST + 10, b"10", b"11")
        await producer.flush()
        assert producer.name == "import"
        assert producer.topic == "persistent://public/default/orders"
    assert bodies(broker) == [[b"0", b"1", b"2"], [b"3"], [b"10", b"11"]]
    assert [number for number, _ in broker.stored] == [
        FIRST + each for each in (0, 1, 2, 3, 10, 11)
    ]
    assert [
        (each.sequence_id, each.highest_sequence_id, each.producer_name)
        for each in metadata_of(broker)
    ] == [
        (FIRST, FIRST + 2, "import"),
        (FIRST + 3, 0, "import"),
        (FIRST + 10, FIRST + 11, "import"),
    ]
    sends = [each.send for each in broker.of_type(BaseCommand.SEND)]
    assert [each.num_messages for each in sends] == [3, 1, 2]
    assert sends[2].highest_sequence_id == FIRST + 11


async def test_entries_say_what_their_messages_have(client: Client, broker: FakeBroker) -> None:
    producer = await client.entry_producer(
        "orders", schema=SchemaInfo(SchemaType.STRING), compression="zlib"
    )
    attributes = encode_attributes(
        2, keys=["a", b"\xff"], event_times_ms=[5, None], properties=[{"p": "q"}, None]
    )
    await producer.send([b"0" * 100, b"1"], attributes, 0)
    alone = encode_attributes(1, keys=[b"\xff"], event_times_ms=[9], properties=[{"x": "y"}])
    await producer.send([b"2"], alone, 2)
    await producer.send([b""], encode_attributes(1, are_null=[True]), 3)
    await producer.flush()
    batch, single, null = entries(broker)
    assert (batch[0].said.partition_key, batch[0].said.event_time) == ("a", 5)
    assert [(pair.key, pair.value) for pair in batch[0].said.properties] == [("p", "q")]
    assert batch[1].said.partition_key_b64_encoded
    said = single[0].said
    assert (said.partition_key, said.partition_key_b64_encoded) == ("/w==", True)
    assert (said.event_time, [pair.key for pair in said.properties]) == (9, ["x"])
    assert null[0].said.null_value
    of_batch, *_ = metadata_of(broker)
    assert (of_batch.partition_key, of_batch.num_messages_in_batch) == ("a", 2)
    assert of_batch.compression == api.ZLIB
    assert broker.of_type(BaseCommand.PRODUCER)[0].producer.schema.type == api.Schema.String


async def test_the_last_known_sequence_id_is_what_the_broker_told(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_producer_success(
                command.producer.request_id, "import", last_sequence_id=FIRST + 4
            )
        ),
    )
    producer = await client.entry_producer("orders", name="import")
    assert producer.known_sequence_id == FIRST + 4
    assert producer.message_bytes_max == MAX_MESSAGE_BYTES


async def test_what_the_topic_had_already_is_counted(client: Client, broker: FakeBroker) -> None:
    def repeat(session: Session, command: BaseCommand, _: bytes) -> None:
        told = command.send
        session.write(
            encode_receipt(
                told.producer_id,
                told.sequence_id,
                told.highest_sequence_id,
                UINT64_MAX,
                UINT64_MAX,
            )
        )

    broker.on(BaseCommand.SEND, repeat)
    producer = await client.entry_producer("orders", name="import")
    await send(producer, FIRST, b"0", b"1")
    await producer.flush()
    assert producer.repeated_messages == 2
    broker.on(BaseCommand.SEND, broker.store)
    await send(producer, FIRST + 2, b"2")
    await producer.flush()
    assert producer.repeated_messages == 2


async def test_nothing_is_stored_behind_an_entry_that_timed_out(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.entry_producer("orders", name="import", send_timeout_s=5)
    broker.kill()
    await send(producer, FIRST, b"0")
    await asyncio.sleep(4)
    await send(producer, FIRST + 1, b"1")
    await asyncio.sleep(1.5)
    # The first is given up now, the second would have three seconds more.
    broker.start()
    with pytest.raises(SendTimedOut):
        await producer.flush()
    with pytest.raises(SendTimedOut):
        await send(producer, FIRST + 2, b"2")
    await asyncio.sleep(20)
    assert broker.stored_bodies == []


async def test_a_producer_that_failed_leaves_its_name_to_the_next_one(
    client: Client, broker: FakeBroker
) -> None:
    def refuse(session: Session, command: BaseCommand, _: bytes) -> None:
        told = command.send
        error = answers.encode_send_error(
            told.producer_id, told.sequence_id, api.NotAllowedError, "too large"
        )
        session.write(error)

    broker.on(BaseCommand.SEND, refuse)
    producer = await client.entry_producer("orders", name="import")
    await send(producer, FIRST, b"0")
    with pytest.raises(NotAllowed):
        await producer.flush()
    await until(lambda: bool(broker.of_type(BaseCommand.CLOSE_PRODUCER)))
    await producer.close()
    with pytest.raises(NotAllowed):
        await send(producer, FIRST, b"0")


async def test_a_lost_connection_stores_everything_in_order(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.entry_producer("orders", name="import")
    broker.on(BaseCommand.SEND)
    for number in range(3):
        await send(producer, FIRST + number, b"%d" % number)
    await asyncio.sleep(1)
    broker.on(BaseCommand.SEND, broker.store)
    broker.drop_connections()
    await send(producer, FIRST + 3, b"3")
    await producer.flush()
    assert broker.stored_bodies == [b"0", b"1", b"2", b"3"]


async def test_sending_waits_while_too_many_messages_are_under_way(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.entry_producer("orders", name="import", pending_messages_max=4)
    await send(producer, FIRST, b"0", b"1")
    await send(producer, FIRST + 2, b"2", b"3")
    third = asyncio.ensure_future(send(producer, FIRST + 4, b"4"))
    await asyncio.sleep(1)
    assert not third.done()
    broker.on(BaseCommand.SEND, broker.store)
    broker.drop_connections()
    await third
    await producer.flush()
    assert broker.stored_bodies == [b"%d" % number for number in range(5)]


async def test_closing_the_producer_fails_a_send_that_waits_for_room(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SEND)
    producer = await client.entry_producer("orders", pending_messages_max=1, close_timeout_s=1)
    await send(producer, 0, b"0")
    second = asyncio.ensure_future(send(producer, 1, b"1"))
    await asyncio.sleep(0)
    await producer.close()
    with pytest.raises(Closed):
        await second


async def test_a_flush_says_what_ended_the_producer_also_where_nothing_waits(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.entry_producer("orders", name="import")

    def refuse(session: Session, command: BaseCommand, _: bytes) -> None:
        request_id = command.producer.request_id
        session.write(answers.encode_error(request_id, api.TopicTerminatedError, "it ended"))

    broker.on(BaseCommand.PRODUCER, refuse)
    broker.drop_connections()
    await until(lambda: len(broker.of_type(BaseCommand.PRODUCER)) == 2)
    await asyncio.sleep(1)
    for _ in range(2):
        with pytest.raises(TopicTerminated):
            await producer.flush()
    with pytest.raises(TopicTerminated):
        await send(producer, FIRST, b"0")


async def test_an_entry_larger_than_the_broker_takes_is_refused(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.entry_producer("orders")
    with pytest.raises(MessageTooLarge):
        await send(producer, 0, bytes(MAX_MESSAGE_BYTES + 1))
    with pytest.raises(MessageTooLarge):
        await send(producer, 0, bytes(MAX_MESSAGE_BYTES // 2), bytes(MAX_MESSAGE_BYTES // 2))
    await send(producer, 0, b"small")
    await producer.flush()
    assert broker.stored_bodies == [b"small"]


async def test_a_topic_with_partitions_is_refused_and_one_of_them_taken(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PARTITIONED_METADATA,
        lambda session, command, _: session.write(
            answers.encode_partitions(command.partitionMetadata.request_id, 3)
        ),
    )
    with pytest.raises(ValueError, match="has 3 partitions: name one of them"):
        await client.entry_producer("orders")
    async with client.entry_producer("orders-partition-2") as producer:
        assert producer.topic.endswith("-partition-2")


async def test_a_name_that_another_producer_has_is_refused(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_error(command.producer.request_id, api.ProducerBusy, "taken")
        ),
    )
    with pytest.raises(ProducerBusy):
        await client.entry_producer("orders", name="import")


KEYS = st.none() | st.text(max_size=5) | st.binary(max_size=5)
TIMES = st.none() | st.integers(0, 1 << 62)
PROPERTIES = st.none() | st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3)
ROWS = st.lists(st.tuples(KEYS, TIMES, PROPERTIES, st.booleans()), max_size=5)


@given(ROWS)
def test_columns_of_attributes_say_what_single_messages_say(
    rows: list[tuple[str | bytes | None, int | None, dict[str, str] | None, bool]],
) -> None:
    encoded = encode_attributes(
        len(rows),
        keys=[key for key, _, _, _ in rows],
        event_times_ms=[time for _, time, _, _ in rows],
        properties=[properties for _, _, properties, _ in rows],
        are_null=[is_null for _, _, _, is_null in rows],
    )
    assert len(encoded) == len(rows)
    for said, (key, time, properties, is_null) in zip(encoded, rows, strict=True):
        wanted = MessageAttributes(
            key, None, dict(sorted((properties or {}).items())), time or None, is_null=is_null
        )
        assert said == wanted.encode_for_batch()
        assert decode_attributes(said) == wanted


def test_properties_leave_in_the_order_in_which_they_were_given() -> None:
    properties = {"z": "ä" * 100, "": "", "a": "1"}
    wanted = SingleMessageMetadata(partition_key="k")
    for name, value in properties.items():
        wanted.properties.add(key=name, value=value)
    encoded = MessageAttributes("k", properties=properties).encode_for_batch()
    assert encoded == wanted.SerializePartialToString()


@pytest.mark.parametrize("value", [5, [b"x"]])
def test_a_property_that_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        MessageAttributes(properties={"a": value}).encode_for_batch()


def test_columns_that_no_message_has_take_no_bytes() -> None:
    assert encode_attributes(2) == [b"", b""]
    assert encode_attributes(2, keys=["k", None])[1] == b""


def test_an_event_time_before_1970_is_refused() -> None:
    with pytest.raises(ValueError, match="not before 1970"):
        encode_attributes(2, event_times_ms=[None, -1])
