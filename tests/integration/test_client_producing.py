"""What our client's producers write the official client reads: batches, compression, chunks."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pulsar
import pytest
from tests.integration.cluster_process import StandaloneProcess
from tests.integration.official_client import client_of

import geminga

RECEIVE_TIMEOUT_MS = 60_000
MIB = 1024 * 1024
COMPRESSIONS: list[Any] = ["none", "lz4", "zlib", "zstd", "snappy"]


def receive(consumer: Any, count: int) -> list[Any]:
    """The next messages, acknowledged."""
    messages = [consumer.receive(RECEIVE_TIMEOUT_MS) for _ in range(count)]
    for message in messages:
        consumer.acknowledge(message)
    return messages


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batches_and_messages_alone_are_read(
    standalone: StandaloneProcess, compression: Any
) -> None:
    topic = f"client-batches-{compression}"
    bodies = [b"%d" % number * (number % 50) for number in range(300)]

    async def produce() -> list[geminga.MessageId]:
        async with (
            geminga.connect(standalone.service_url) as client,
            client.producer(topic, compression=compression) as producer,
        ):
            for number, body in enumerate(bodies):
                producer.send_nowait(
                    body,
                    key=f"k{number % 7}",
                    properties={"number": str(number)},
                    event_time=number,
                )
            await producer.flush()
            return [await producer.send(b"alone" * 100), await producer.send(None, key=b"\xff")]

    with client_of(standalone.service_url) as official:
        consumer = official.subscribe(topic, "all")
        alone, null = asyncio.run(produce())
        messages = receive(consumer, 302)
    assert [message.data() for message in messages] == [*bodies, b"alone" * 100, b""]
    assert [message.partition_key() for message in messages[:10]] == [
        f"k{number % 7}" for number in range(10)
    ]
    assert [message.properties()["number"] for message in messages[:300]] == [
        str(number) for number in range(300)
    ]
    assert [message.event_timestamp() for message in messages[:300]] == list(range(300))
    assert messages[299].message_id().batch_index() >= 0
    assert messages[300].message_id().serialize() == alone.to_bytes()
    assert messages[301].message_id().serialize() == null.to_bytes()
    assert messages[301].partition_key() == "/w=="


def test_batches_by_key_are_each_delivered_to_one_consumer(standalone: StandaloneProcess) -> None:
    topic = "client-by-key"

    async def produce() -> None:
        async with (
            geminga.connect(standalone.service_url) as client,
            client.producer(topic, batching=geminga.Batching(by_key=True)) as producer,
        ):
            for number in range(1000):
                producer.send_nowait(b"%d" % number, key=str(number % 40))

    with client_of(standalone.service_url) as official:
        consumers = [
            official.subscribe(topic, "keys", pulsar.ConsumerType.KeyShared) for _ in range(3)
        ]
        asyncio.run(produce())
        found: dict[str, list[int]] = {}
        owners: dict[str, set[int]] = {}
        left = 1000
        while left:
            for index, consumer in enumerate(consumers):
                try:
                    message = consumer.receive(200)
                except pulsar.Timeout:
                    continue
                left -= 1
                key = message.partition_key()
                found.setdefault(key, []).append(int(message.data()))
                owners.setdefault(key, set()).add(index)
    assert all(len(owner) == 1 for owner in owners.values())
    assert len(set.union(*owners.values())) == 3
    assert found == {str(key): list(range(key, 1000, 40)) for key in range(40)}


@pytest.mark.parametrize("compression", COMPRESSIONS[:3])
def test_chunks_are_put_together(standalone: StandaloneProcess, compression: Any) -> None:
    topic = f"client-chunks-{compression}"
    body = random.Random(1).randbytes(11 * MIB)

    async def produce() -> geminga.MessageId:
        async with (
            geminga.connect(standalone.service_url) as client,
            client.producer(topic, chunking=True, compression=compression) as producer,
        ):
            producer.send_nowait(b"before")
            message_id = await producer.send(body)
            await producer.send(b"after")
            return message_id

    with client_of(standalone.service_url) as official:
        consumer = official.subscribe(topic, "all")
        message_id = asyncio.run(produce())
        messages = receive(consumer, 3)
    assert [message.data() for message in messages] == [b"before", body, b"after"]
    assert messages[1].message_id().serialize() == message_id.to_bytes()
    assert message_id.first_chunk is not None
