"""Proves that values are read by the schema that each message was written with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session, metadata, until
from tests.unit.geminga.schema_answers import tells

from geminga import (
    AutoConsumeSchema,
    AvroSchema,
    Client,
    Int32Schema,
    KeyValueSchema,
    SchemaInfo,
    SchemaType,
    StringSchema,
)
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.messages.payload import encode_payload


@dataclass
class Order:
    id: int
    note: str | None = None


@dataclass
class OrderBefore:
    id: int


BEFORE, NOW = AvroSchema(OrderBefore), AvroSchema(Order)
VERSIONS = {b"\0": BEFORE.schema_info, b"\1": NOW.schema_info}


def payload(data: bytes, version: bytes | None) -> bytes:
    described = metadata()
    if version is not None:
        described.schema_version = version
    return encode_payload(described, data)


async def test_each_version_is_asked_for_once_and_nothing_overtakes(
    client: Client, broker: FakeBroker
) -> None:
    asked: list[bytes] = []
    broker.on(BaseCommand.GET_SCHEMA, tells(VERSIONS, asked))
    consumer = await client.consumer("orders", "billing", schema=NOW)
    broker.deliver(0, payload=payload(NOW.encode(Order(0)), None))
    broker.deliver(1, payload=payload(BEFORE.encode(OrderBefore(1)), b"\0"))
    broker.deliver(2, payload=payload(NOW.encode(Order(2, "x")), b"\1"))
    broker.deliver(3, payload=payload(BEFORE.encode(OrderBefore(3)), b"\0"))
    values = [(await consumer.receive()).value for _ in range(4)]
    assert values == [Order(0), Order(1), Order(2, "x"), Order(3)]
    assert asked == [b"\0", b"\1"]


async def test_a_message_says_which_schema_its_value_is_read_by(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.GET_SCHEMA, tells(VERSIONS, []))
    consumer = await client.consumer("orders", "billing", schema=NOW)
    anything = await client.consumer("orders", "all", schema=AutoConsumeSchema())
    for consumer_id in range(2):
        broker.deliver(0, payload=payload(b"", None), consumer_id=consumer_id)
        broker.deliver(1, payload=payload(b"", b"\0"), consumer_id=consumer_id)
    now, before = NOW.schema_info.definition, BEFORE.schema_info.definition
    read = [(await each.receive()).schema for each in (consumer, consumer, anything, anything)]
    assert [each and each.definition for each in read] == [now, before, None, before]


async def test_a_message_whose_schema_is_gone_can_be_received_and_not_read(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.GET_SCHEMA, tells({}, []))
    consumer = await client.consumer("orders", "billing", schema=NOW)
    broker.deliver(0, payload=payload(b"?", b"\7"))
    broker.deliver(1, payload=payload(NOW.encode(Order(1)), None))
    message = await consumer.receive()
    with pytest.raises(ValueError, match="version 07"):
        _ = message.value
    assert message.data == b"?"
    assert (await consumer.receive()).value == Order(1)


async def test_a_broker_that_cannot_tell_a_schema_for_a_minute_makes_no_message_unreadable(
    client: Client, broker: FakeBroker
) -> None:
    def cannot_tell(session: Session, command: BaseCommand, _payload: bytes) -> None:
        request_id = command.getSchema.request_id
        session.write(answers.encode_error(request_id, api.ServiceNotReady, "no bookie answers"))

    broker.on(BaseCommand.GET_SCHEMA, cannot_tell)
    consumer = await client.consumer("orders", "billing", schema=NOW)
    broker.deliver(0, payload=payload(BEFORE.encode(OrderBefore(0)), b"\0"))
    await asyncio.sleep(60.0)
    broker.on(BaseCommand.GET_SCHEMA, tells(VERSIONS, []))
    broker.deliver(1, payload=payload(BEFORE.encode(OrderBefore(1)), b"\0"))
    assert [(await consumer.receive()).value for _ in range(2)] == [Order(0), Order(1)]


NESTED = 20_000


@pytest.mark.parametrize(
    "definition",
    [b"5", b'{"type":{}}', b'{"type":"array","items":5}', b"[" * NESTED + b"]" * NESTED],
    ids=["number", "nameless", "of-a-number", "nested"],
)
async def test_a_schema_that_is_none_holds_nothing_up(
    client: Client, broker: FakeBroker, definition: bytes
) -> None:
    versions = VERSIONS | {b"\0": SchemaInfo(SchemaType.AVRO, "", definition)}
    broker.on(BaseCommand.GET_SCHEMA, tells(versions, []))
    consumer = await client.consumer("orders", "billing", schema=NOW)
    broker.deliver(0, payload=payload(b"?", b"\0"))
    broker.deliver(1, payload=payload(NOW.encode(Order(1)), b"\1"))
    unreadable = await consumer.receive()
    with pytest.raises(ValueError, match="version 00, is of no use"):
        _ = unreadable.value
    assert (await consumer.receive()).value == Order(1)


async def test_what_waits_for_a_schema_comes_again_after_a_lost_connection(
    client: Client, broker: FakeBroker
) -> None:
    asked: list[bytes] = []
    silent: list[BaseCommand] = []
    broker.on(BaseCommand.GET_SCHEMA, lambda _s, command, _p: silent.append(command))
    consumer = await client.consumer("orders", "billing", schema=NOW)
    broker.deliver(0, payload=payload(BEFORE.encode(OrderBefore(0)), b"\0"))
    await until(lambda: bool(silent))
    broker.on(BaseCommand.GET_SCHEMA, tells(VERSIONS, asked))
    broker.drop_connections()
    await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
    await until(lambda: consumer.is_connected)
    broker.deliver(0, payload=payload(BEFORE.encode(OrderBefore(0)), b"\0"))
    broker.deliver(1, payload=payload(NOW.encode(Order(1)), b"\1"))
    assert (await consumer.receive()).value == Order(0)
    assert (await consumer.receive()).value == Order(1)
    assert asked == [b"\0", b"\1"]


async def test_a_consumer_without_a_class_reads_whatever_is_there(
    client: Client, broker: FakeBroker
) -> None:
    pair = KeyValueSchema(StringSchema(), Int32Schema())
    versions = {b"\0": StringSchema().schema_info, b"\1": pair.schema_info, b"\2": NOW.schema_info}
    broker.on(BaseCommand.GET_SCHEMA, tells(versions, []))
    consumer = await client.consumer("orders", "billing", schema=AutoConsumeSchema())
    broker.deliver(0, payload=payload(b"text", b"\0"))
    broker.deliver(1, payload=payload(pair.encode(("a", 1)), b"\1"))
    broker.deliver(2, payload=payload(NOW.encode(Order(3)), b"\2"))
    broker.deliver(3, payload=payload(b"bytes", None))
    values = [(await consumer.receive()).value for _ in range(4)]
    assert values == ["text", ("a", 1), {"id": 3, "note": None}, b"bytes"]


async def test_the_key_of_a_separated_pair_is_the_messages_key(
    client: Client, broker: FakeBroker
) -> None:
    schema = KeyValueSchema(StringSchema(), Int32Schema(), "SEPARATED")
    consumer = await client.consumer("orders", "billing", schema=schema)
    described = metadata()
    described.partition_key = "azE="  # k1
    described.partition_key_b64_encoded = True
    broker.deliver(0, payload=encode_payload(described, Int32Schema().encode(5)))
    described.null_value = True
    broker.deliver(1, payload=encode_payload(described, b""))
    assert (await consumer.receive()).value == ("k1", 5)
    assert (await consumer.receive()).value == ("k1", None)
