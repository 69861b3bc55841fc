"""Proves what producers, consumers and other clients are told of schemas."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import TOPIC, FrameClient

from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.policies.schemas import SchemaPolicies, SchemaStrategy
from geminga_broker.topics.directory import TopicDirectory
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.topics.topic_names import TopicName

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]

FIRST = bytes(8)
SECOND = bytes(7) + b"\1"


def schema(kind: str, definition: bytes = b"") -> api.Schema:
    return api.Schema(name="mine", schema_data=definition, type=api.Schema.Type.Value(kind))


def avro(*fields: str) -> api.Schema:
    described = [{"name": each, "type": "int"} for each in fields]
    record = {"type": "record", "name": "R", "fields": described}
    return schema("Avro", json.dumps(record).encode())


async def answer(client: FrameClient, settle: Settle) -> tuple[str, Any]:
    await settle()
    return client.answers[-1]


async def open_producer(
    connect: Connect, settle: Settle, brought: api.Schema | None = None
) -> tuple[str, Any]:
    """The answer to a PRODUCER on a new connection."""
    client = connect()
    fields: dict[str, Any] = {} if brought is None else {"schema": brought}
    client.open_producer(**fields)
    return await answer(client, settle)


async def subscribe(
    connect: Connect, settle: Settle, name: str, brought: api.Schema | None = None
) -> tuple[str, Any]:
    """The answer to a SUBSCRIBE on a new connection."""
    client = connect()
    fields: dict[str, Any] = {} if brought is None else {"schema": brought}
    client.subscribe(subscription=name, **fields)
    await settle()
    return next(each for each in client.answers if each[0] in {"success", "error"})


async def stored(connect: Connect, settle: Settle, **fields: Any) -> Any:
    """The answer to a GET_SCHEMA."""
    client = connect()
    client.ask("getSchema", topic=fields.pop("topic", TOPIC), **fields)
    return (await answer(client, settle))[1]


def hold(topics: TopicDirectory, policies: SchemaPolicies) -> None:
    (topic,) = topics.loaded.values()
    topic.apply(EffectivePolicies(schemas=policies))


async def test_a_producers_schema_is_registered_and_its_version_answered(
    connect: Connect, settle: Settle
) -> None:
    renamed = schema("Avro", avro("a").schema_data.replace(b'"R"', b'"Other"'))
    for brought, version in ((avro("a"), FIRST), (renamed, SECOND), (avro("a"), FIRST)):
        name, told = await open_producer(connect, settle, brought)
        assert (name, told.schema_version) == ("producer_success", version)
    found = await stored(connect, settle)
    assert (found.schema_version, found.schema.type) == (SECOND, api.Schema.Avro)
    assert found.schema.schema_data == renamed.schema_data


async def test_a_version_is_found_by_its_bytes_and_for_partitions_too(
    connect: Connect, settle: Settle
) -> None:
    await open_producer(connect, settle, avro("a"))
    found = await stored(connect, settle, schema_version=FIRST, topic=f"{TOPIC}-partition-7")
    assert found.schema.schema_data == avro("a").schema_data
    for version in (SECOND, b"\xff" * 8, b"\0"):
        found = await stored(connect, settle, schema_version=version)
        assert found.error_code == api.TopicNotFound
        assert found.error_message == f"Topic not found or no-schema {TOPIC}"


async def test_a_topic_without_a_schema_asks_nothing_of_zookeeper(
    connect: Connect, settle: Settle, requests: list[str]
) -> None:
    name, told = await open_producer(connect, settle)
    assert (name, told.schema_version) == ("producer_success", b"")
    await subscribe(connect, settle, "s")
    await subscribe(connect, settle, "auto", schema("AutoConsume"))
    assert [each for each in requests if "/schemas" in each] == []


@pytest.mark.parametrize(
    "brought", [avro("a", "b"), schema("String"), schema("Json", b"{")], ids=["two", "text", "none"]
)
async def test_a_schema_that_may_not_follow_is_refused(
    connect: Connect, settle: Settle, brought: api.Schema
) -> None:
    await open_producer(connect, settle, avro("a"))
    name, refusal = await open_producer(connect, settle, brought)
    assert (name, refusal.error) == ("error", api.IncompatibleSchema)
    name, refusal = await subscribe(connect, settle, "s", brought)
    assert (name, refusal.error) == ("error", api.IncompatibleSchema)


async def test_the_strategy_is_that_of_the_topics_policies(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    await open_producer(connect, settle, avro("a"))
    hold(topics, SchemaPolicies(strategy=SchemaStrategy.FORWARD))
    name, _ = await open_producer(connect, settle, avro("a", "b"))
    assert name == "producer_success"
    hold(topics, SchemaPolicies(strategy=SchemaStrategy.ALWAYS_INCOMPATIBLE))
    name, _ = await open_producer(connect, settle, avro("a", "b", "c"))
    assert name == "error"


async def test_without_auto_update_only_known_schemas_are_taken(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    await open_producer(connect, settle, avro("a"))
    hold(topics, SchemaPolicies(allows_auto_update=False))
    name, told = await open_producer(connect, settle, avro("a"))
    assert (name, told.schema_version) == ("producer_success", FIRST)
    name, refusal = await open_producer(connect, settle, avro())
    assert refusal.message == "Schema not found and schema auto updating is disabled."


async def test_where_schemas_are_enforced_a_producer_brings_one(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    await open_producer(connect, settle)
    hold(topics, SchemaPolicies(is_validation_enforced=True))
    name, _ = await open_producer(connect, settle)
    assert name == "producer_success"  # the topic has none
    await open_producer(connect, settle, schema("String"))
    name, refusal = await open_producer(connect, settle)
    assert (name, refusal.error) == ("error", api.IncompatibleSchema)


async def test_the_first_consumer_of_an_unused_topic_registers_its_schema(
    connect: Connect, settle: Settle
) -> None:
    name, _ = await subscribe(connect, settle, "s", avro("a"))
    assert name == "success"
    assert (await stored(connect, settle)).schema_version == FIRST
    # It reads; a consumer that reads less may come as well, one that needs more may not.
    assert (await subscribe(connect, settle, "less", avro()))[0] == "success"
    assert (await subscribe(connect, settle, "more", avro("a", "b")))[0] == "error"
    assert (await stored(connect, settle)).schema_version == FIRST


async def test_a_consumer_with_a_schema_is_refused_where_others_use_the_topic_without(
    connect: Connect, settle: Settle
) -> None:
    await subscribe(connect, settle, "plain")
    name, refusal = await subscribe(connect, settle, "s", avro("a"))
    assert (name, refusal.error) == ("error", api.IncompatibleSchema)
    # Upstream's words, at whose end is the type's name.
    assert refusal.message.endswith("topic with empty(BYTES) schema: new schema type AVRO")


async def test_consumers_of_any_schema_do_not_count_as_users(
    connect: Connect, settle: Settle
) -> None:
    await subscribe(connect, settle, "auto", schema("AutoConsume"))
    assert (await subscribe(connect, settle, "s", avro("a")))[0] == "success"


async def test_another_clusters_replicator_does_not_count_as_user(
    connect: Connect, settle: Settle
) -> None:
    """It connects without a schema, and brings the messages' schemas before their messages."""
    replicator = connect()
    replicator.open_producer(producer_name="pulsar.repl.east-->standalone")
    assert (await answer(replicator, settle))[0] == "producer_success"
    assert (await subscribe(connect, settle, "s", avro("a")))[0] == "success"


async def test_a_topic_takes_its_schema_with_it_and_a_partition_does_not(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    await open_producer(connect, settle, avro("a"))
    partition = TopicName.parse(TOPIC).partition(0)
    await topics.get(partition, create=True)
    await topics.delete(partition, force=True)
    assert (await stored(connect, settle)).schema_version == FIRST
    await topics.delete(TopicName.parse(TOPIC), force=True)
    assert (await stored(connect, settle)).error_code == api.TopicNotFound


# GET_OR_CREATE_SCHEMA


@pytest.mark.parametrize(("kind", "version"), [("None", b""), ("String", FIRST)])
async def test_asking_for_a_version_registers_the_schema_unless_it_is_bytes(
    connect: Connect, settle: Settle, kind: str, version: bytes
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    request_id = client.ask("getOrCreateSchema", topic=TOPIC, schema=schema(kind))
    await settle()
    (told,) = client.all_of("getOrCreateSchemaResponse")
    assert (told.request_id, told.HasField("error_code")) == (request_id, False)
    assert (told.HasField("schema_version"), told.schema_version) == (True, version)


async def test_asking_with_a_schema_that_may_not_follow_is_refused(
    connect: Connect, settle: Settle
) -> None:
    await open_producer(connect, settle, avro("a"))
    client = connect()
    client.ask("getOrCreateSchema", topic=TOPIC, schema=schema("String"))
    name, told = await answer(client, settle)
    assert (name, told.error_code) == ("getOrCreateSchemaResponse", api.IncompatibleSchema)


async def test_a_topic_that_is_not_there_has_no_schemas(connect: Connect, settle: Settle) -> None:
    client = connect()
    client.ask("getOrCreateSchema", topic="t/n/absent", schema=schema("None"))
    await settle()
    (told,) = client.all_of("getOrCreateSchemaResponse")
    assert told.error_code == api.TopicNotFound
    assert "t/n/absent" in told.error_message
