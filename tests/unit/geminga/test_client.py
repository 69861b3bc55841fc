"""Proves that a client opens what it is asked for, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, until
from tests.unit.geminga.fake_network import FakeNetwork

from geminga import (
    BytesSchema,
    Client,
    Closed,
    InvalidServiceUrl,
    MessageId,
    NotConnected,
    RequestTooLarge,
    SchemaInfo,
    SchemaType,
    StringSchema,
    connect,
)
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_simulation.event_loop.clock import SimulatedClock

CLOSE_TIMEOUT_S = 5.0


async def test_leaving_the_client_closes_everything(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    tasks_before = len(asyncio.all_tasks())
    async with connect(
        broker.url, network=network, clock=SimulatedClock(), random=Random(1)
    ) as client:
        producer = await client.producer("orders")
        consumer = await client.consumer("orders", "billing")
        producer.send_nowait(b"last words", lambda _, __: None)
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
    assert broker.stored_bodies == [b"last words"]
    assert len(broker.of_type(BaseCommand.CLOSE_PRODUCER)) == 1
    assert len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 1
    assert not broker.open_sessions
    with pytest.raises(Closed):
        await receiving
    with pytest.raises(Closed):
        await producer.send(b"too late")
    assert len(asyncio.all_tasks()) == tasks_before


async def test_producers_and_consumers_share_a_connection(
    client: Client, broker: FakeBroker
) -> None:
    producers = [await client.producer("orders") for _ in range(3)]
    consumers = [await client.consumer("orders", f"s{number}") for number in range(3)]
    assert len(broker.sessions) == 1
    consumer_ids = [each.subscribe.consumer_id for each in broker.of_type(BaseCommand.SUBSCRIBE)]
    ids = [one.producer_id for one in producers] + consumer_ids
    assert len(set(ids)) == 6
    for number, producer in enumerate(producers):
        assert await producer.send(b"x") == MessageId(LEDGER, number)
    broker.deliver(0, b"for the second", consumer_id=consumer_ids[1])
    assert (await consumers[1].receive()).data == b"for the second"


async def test_partitions_can_be_asked_for(client: Client, broker: FakeBroker) -> None:
    broker.on(
        BaseCommand.PARTITIONED_METADATA,
        lambda session, command, _: session.write(
            answers.encode_partitions(command.partitionMetadata.request_id, 4)
        ),
    )
    assert await client.partitions("orders") == 4
    asked = broker.of_type(BaseCommand.PARTITIONED_METADATA)[0].partitionMetadata
    assert asked.topic == "persistent://public/default/orders"


async def test_bad_names_are_refused_here(client: Client, broker: FakeBroker) -> None:
    with pytest.raises(InvalidTopicName):
        await client.producer("a/b")
    with pytest.raises(InvalidTopicName):
        await client.consumer("", "s")
    with pytest.raises(InvalidServiceUrl):
        connect("localhost:6650")
    assert not broker.received


async def test_without_any_broker_opening_fails_in_the_end(
    client: Client, broker: FakeBroker
) -> None:
    broker.kill()
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(NotConnected):
        await client.producer("orders")
    assert 30 <= asyncio.get_running_loop().time() - started_s <= 40


async def test_opening_can_be_given_up(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.PRODUCER)
    broker.on(BaseCommand.SUBSCRIBE)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await client.producer("orders")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await client.consumer("orders", "s")
    await until(lambda: len(broker.of_type(BaseCommand.CLOSE_PRODUCER)) == 1)
    await until(lambda: len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 1)


async def test_what_is_closed_is_forgotten(client: Client) -> None:
    for _ in range(3):
        await (await client.producer("orders")).close()
        await (await client.consumer("orders", "s", type="shared")).close()
    await asyncio.sleep(0)
    assert not client._channels._closes
    assert not client._channels.owners


async def test_the_same_seed_gives_the_same_names(network: FakeNetwork, broker: FakeBroker) -> None:
    names: list[str] = []
    for _ in range(2):
        async with connect(broker.url, network=network, random=Random(7)) as client:
            names.append((await client.consumer("orders", "s")).name)
    assert names[0] == names[1]


async def test_a_closed_client_opens_nothing(client: Client) -> None:
    await client.__aexit__(None, None, None)
    for opening in (client.producer("orders"), client.consumer("orders", "s")):
        with pytest.raises(Closed):
            async with asyncio.timeout(60):
                await opening


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ping_interval_s": 0}, "ping_interval_s must be more than 0, not 0"),
        ({"operation_timeout_s": -1}, "operation_timeout_s must be more than 0"),
        ({"memory_limit_bytes": 0}, "memory_limit_bytes must be more than 0"),
        ({"reconnect_timeout_s": 0}, "reconnect_timeout_s must be None or more than 0"),
        ({"authentication": "eyJ"}, "authentication is a method, such as Token"),
    ],
)
async def test_an_option_that_cannot_be_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises((ValueError, TypeError), match=reason):
        connect("pulsar://here:1", **options)


@pytest.mark.parametrize("schema", [str, "json", StringSchema])
async def test_what_is_no_schema_is_refused(client: Client, schema: Any) -> None:
    openings = (client.producer, client.reader, client.table_view)
    for opening in (*openings, partial(client.consumer, subscription="s")):
        with pytest.raises(TypeError, match="is no schema; one is JsonSchema"):
            opening("orders", schema=schema)


async def test_a_schema_that_no_broker_takes_is_refused_at_once(client: Client) -> None:
    schema = BytesSchema(SchemaInfo(SchemaType.STRING, definition=bytes(10_000_000)))
    with pytest.raises(RequestTooLarge, match=r"SUBSCRIBE of 100\d{5} bytes"):
        await client.consumer("orders", "s", schema=schema)
    with pytest.raises(RequestTooLarge, match=r"PRODUCER of .* its schema"):
        await client.producer("orders", schema=schema)


async def test_a_subscription_has_a_name(client: Client) -> None:
    with pytest.raises(ValueError, match="needs a subscription with a name"):
        client.consumer("orders", "")


async def test_closing_waits_for_a_silent_broker_once_and_not_for_each(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    loop = asyncio.get_running_loop()
    async with connect(
        broker.url, network=network, clock=SimulatedClock(), random=Random(1)
    ) as client:
        broker.on(BaseCommand.SEND)
        broker.on(BaseCommand.CLOSE_PRODUCER)
        for _ in range(20):
            producer = await client.producer("orders", close_timeout_s=CLOSE_TIMEOUT_S)
            producer.send_nowait(b"never confirmed", lambda _, __: None)
        began_s = loop.time()
    assert loop.time() - began_s < 2 * CLOSE_TIMEOUT_S + 2
