"""Our client's schemas with a real registry, and with the official client on the other side."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pulsar.schema
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest

import geminga
from geminga_protocol.pulsar.api_pb2 import KeyValue

TIMEOUT_S = 60
RECEIVE_MS = TIMEOUT_S * 1_000


@dataclass
class Order:
    id: int
    drink: str | None = None


@dataclass
class OrderLater:
    id: int
    cups: int = 1


class OfficialOrder(pulsar.schema.Record):  # type: ignore[misc]  # the official client has no types
    """The same record, as the official client writes it."""

    id = pulsar.schema.Long(required=True)
    drink = pulsar.schema.String()


@pytest.fixture
async def client(standalone: StandaloneProcess) -> AsyncGenerator[geminga.Client]:
    async with geminga.connect(standalone.service_url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/client-schemas-{uuid.uuid4().hex[:8]}"


async def received(consumer: geminga.Consumer[Any], count: int) -> list[Any]:
    async with asyncio.timeout(TIMEOUT_S):
        return [(await consumer.receive()).value for _ in range(count)]


@pytest.mark.parametrize(
    ("ours", "official"),
    [
        (geminga.JsonSchema(Order), pulsar.schema.JsonSchema(OfficialOrder)),
        (geminga.AvroSchema(Order), pulsar.schema.AvroSchema(OfficialOrder)),
    ],
    ids=["json", "avro"],
)
async def test_records_go_both_ways(
    standalone: StandaloneProcess, client: geminga.Client, topic: str, ours: Any, official: Any
) -> None:
    with client_of(standalone.service_url) as other:
        consumer = await client.consumer(topic, "ours", schema=ours)
        other_consumer = other.subscribe(topic, "official", schema=official)
        producer: geminga.Producer[Any] = await client.producer(topic, schema=ours)
        await producer.send(Order(1, "tea"))
        other.create_producer(topic, schema=official).send(OfficialOrder(id=2))
        assert await received(consumer, 2) == [Order(1, "tea"), Order(2)]
        values = [other_consumer.receive(RECEIVE_MS).value() for _ in range(2)]
        assert [(each.id, each.drink) for each in values] == [(1, "tea"), (2, None)]


async def test_what_may_not_follow_is_refused(client: geminga.Client, topic: str) -> None:
    await client.producer(topic, schema=geminga.JsonSchema(Order))
    with pytest.raises(geminga.IncompatibleSchema):
        await client.producer(topic, schema=geminga.StringSchema())


async def test_older_versions_are_read_by_the_rules_of_avro(
    client: geminga.Client, topic: str
) -> None:
    before, later = geminga.AvroSchema(Order), geminga.AvroSchema(OrderLater)
    consumer = await client.consumer(topic, "s", schema=geminga.AutoConsumeSchema())
    first = await client.producer(topic, schema=before)
    await first.send(Order(1, "tea"))
    second = await client.producer(topic, schema=later)
    await second.send(OrderLater(2, 3))
    await first.send(Order(3))
    assert await received(consumer, 3) == [
        {"id": 1, "drink": "tea"},
        {"id": 2, "cups": 3},
        {"id": 3, "drink": None},
    ]
    reading = await client.consumer(topic, "t", schema=later, initial_position="earliest")
    assert await received(reading, 3) == [OrderLater(1), OrderLater(2, 3), OrderLater(3)]


async def test_the_key_of_a_separated_pair_is_the_messages(
    client: geminga.Client, topic: str
) -> None:
    schema = geminga.KeyValueSchema(geminga.StringSchema(), geminga.JsonSchema(Order), "SEPARATED")
    consumer = await client.consumer(topic, "s", schema=schema)
    anything = await client.consumer(topic, "a", schema=geminga.AutoConsumeSchema())
    producer = await client.producer(topic, schema=schema)
    await producer.send(("k", Order(1)))
    await producer.send((None, Order(2)))
    message = await consumer.receive()
    assert (message.value, message.key_bytes) == (("k", Order(1)), b"k")
    assert await received(consumer, 1) == [(None, Order(2))]
    assert await received(anything, 1) == [("k", {"id": 1, "drink": None})]


async def test_payloads_that_are_encoded_already_get_the_topics_schema(
    standalone: StandaloneProcess, client: geminga.Client, topic: str
) -> None:
    schema = geminga.JsonSchema(Order)
    consumer = await client.consumer(topic, "s", schema=schema)
    producer = await client.producer(topic, schema=geminga.AutoProduceSchema())
    await producer.send(b'{"id":7}')
    message = await consumer.receive()
    assert (message.value, message.schema_version) == (Order(7), bytes(8))
    path = topic.removeprefix("persistent://")
    status, shown = rest(standalone.web_service_url, "GET", f"/admin/v2/schemas/{path}/schema")
    assert (status, shown["type"], shown["version"]) == (200, "JSON", 0)


async def test_protobuf_messages_have_the_version_whose_definition_was_uploaded(
    standalone: StandaloneProcess, client: geminga.Client, topic: str
) -> None:
    schema = geminga.ProtobufSchema(KeyValue)
    definition = schema.schema_info.definition.decode()
    path = f"/admin/v2/schemas/{topic.removeprefix('persistent://')}/schema"
    uploaded = {"type": "PROTOBUF", "schema": definition, "properties": {}}
    status, _ = rest(standalone.web_service_url, "POST", path, uploaded)
    assert status == 200
    consumer = await client.consumer(topic, "s", schema=schema)
    producer = await client.producer(topic, schema=schema)
    await producer.send(KeyValue(key="a", value="b"))
    message = await consumer.receive()
    assert (message.value, message.schema_version) == (KeyValue(key="a", value="b"), bytes(8))
    with pytest.raises(geminga.IncompatibleSchema):
        await client.producer(topic, schema=geminga.ProtobufNativeSchema(KeyValue))
