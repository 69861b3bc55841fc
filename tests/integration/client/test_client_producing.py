"""What our client's producers write the official client reads: batches, compression, chunks."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pulsar
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest

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
                with suppress(pulsar.Timeout):
                    while left:
                        message = consumer.receive(200)
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


def test_partitions_get_keys_as_the_official_client_sends_them_and_all_others_in_turn(
    standalone: StandaloneProcess,
) -> None:
    topic = "persistent://public/default/client-partitions"
    rest(standalone.web_service_url, "PUT", f"{path_of(topic)}/partitions", 3)

    async def produce() -> None:
        async with (
            geminga.connect(standalone.service_url) as client,
            client.producer(topic, partitions_refresh_s=0.2) as producer,
        ):
            assert producer.partitions == 3
            for number in range(3000):
                producer.send_nowait(b"%d" % number)
            for number in range(300):
                producer.send_nowait(b"", key=f"key-{number}")
            await producer.flush()
            rest(standalone.web_service_url, "POST", f"{path_of(topic)}/partitions", 5)
            async with asyncio.timeout(60):
                while producer.partitions == 3:  # noqa: ASYNC110  # asked for by a timer
                    await asyncio.sleep(0.05)
            for _ in range(5):
                await producer.send(b"new", key=KEY_OF_PARTITION_4)

    with client_of(standalone.service_url) as official:
        consumer = official.subscribe(topic, "all")
        asyncio.run(produce())
        messages = receive(consumer, 3300)
        late = official.subscribe(
            f"{topic}-partition-4", "late", initial_position=pulsar.InitialPosition.Earliest
        )
        assert {message.data() for message in receive(late, 5)} == {b"new"}
    plain = [message for message in messages if not message.partition_key()]
    assert sorted(int(message.data()) for message in plain) == list(range(3000))
    for partition in range(3):
        theirs = [int(one.data()) for one in plain if one.message_id().partition() == partition]
        assert len(theirs) == 1000
        assert theirs == sorted(theirs)
    keyed = [message for message in messages if message.partition_key()]
    for message in keyed:
        expected = java_hash(message.partition_key()) % 3
        assert message.message_id().partition() == expected


KEY_OF_PARTITION_4 = "c"


def java_hash(text: str) -> int:
    code = 0
    for letter in text.encode():
        code = (31 * code + letter) % (1 << 32)
    return code % (1 << 31)


def path_of(topic: str) -> str:
    return "/admin/v2/" + topic.replace("://", "/")


def test_what_is_sent_twice_to_a_deduplicating_topic_is_stored_once(
    standalone: StandaloneProcess,
) -> None:
    namespace = "/admin/v2/namespaces/public/client-once"
    rest(standalone.web_service_url, "PUT", namespace)
    assert (
        rest(standalone.web_service_url, "POST", f"{namespace}/deduplication", body=True)[0] == 204
    )
    topic = "persistent://public/client-once/topic"

    async def produce() -> None:
        async with geminga.connect(standalone.service_url) as client:
            async with client.producer(topic, name="writer") as producer:
                for offset in range(0, 1000, 10):  # the sequence ids are a file's offsets, say
                    producer.send_nowait(b"%d" % offset, sequence_id=offset)
            async with client.producer(topic, name="writer") as producer:
                assert producer.last_sequence_id == 990
                for offset in range(0, 1000, 10):
                    producer.send_nowait(b"again", sequence_id=offset)
                repeated = await producer.send(b"again", sequence_id=990)
                assert (repeated.ledger_id, repeated.entry_id) == (-1, -1)
                await producer.send(b"new")
            async with client.producer(
                topic, name="keyed", batching=geminga.Batching(by_key=True)
            ) as producer:
                for number in range(100):
                    producer.send_nowait(b"%d" % number, key=str(number % 7))

    with client_of(standalone.service_url) as official:
        consumer = official.subscribe(topic, "all")
        asyncio.run(produce())
        found = [message.data() for message in receive(consumer, 201)]
    assert found[:101] == [*(b"%d" % offset for offset in range(0, 1000, 10)), b"new"]
    assert sorted(map(int, found[101:])) == list(range(100))


def test_one_producer_at_a_time_where_that_is_asked_for(standalone: StandaloneProcess) -> None:
    async def take_turns() -> None:
        async with geminga.connect(standalone.service_url) as client:
            first = await client.producer("client-modes", access_mode="exclusive")
            with pytest.raises(geminga.ProducerFenced):
                await client.producer("client-modes", access_mode="exclusive")
            waiting = asyncio.ensure_future(
                client.producer("client-modes", access_mode="wait_for_exclusive")
            )
            await first.send(b"one")
            await first.close()
            second = await waiting
            await second.send(b"two")
            third = await client.producer("client-modes", access_mode="exclusive_with_fencing")
            await third.send(b"three")
            with pytest.raises(geminga.ProducerFenced):
                await second.send(b"fenced")

    asyncio.run(take_turns())


def test_a_delayed_message_comes_later(standalone: StandaloneProcess) -> None:
    async def produce() -> None:
        async with (
            geminga.connect(standalone.service_url) as client,
            client.producer("client-delayed", initial_subscription="shared") as producer,
        ):
            producer.send_nowait(b"much later", deliver_after=3600.0)
            producer.send_nowait(b"late", deliver_after=1.0)
            producer.send_nowait(b"at once")

    begun_s = time.time()
    asyncio.run(produce())
    with client_of(standalone.service_url) as official:
        consumer = official.subscribe("client-delayed", "shared", pulsar.ConsumerType.Shared)
        # On a slow machine both of them are due, and come in the order of the log.
        after_s: dict[bytes, float] = {}
        for _ in range(2):
            (message,) = receive(consumer, 1)
            after_s[message.data()] = time.time() - begun_s
    assert after_s.keys() == {b"at once", b"late"}
    assert after_s[b"late"] >= 1.0


def test_the_owner_of_a_key_reads_what_is_encrypted(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    topic = "client-encrypted"
    private = rsa.generate_private_key(65537, 2048)
    public_pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "public.pem").write_bytes(public_pem)
    (tmp_path / "private.pem").write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    reader = pulsar.CryptoKeyReader(str(tmp_path / "public.pem"), str(tmp_path / "private.pem"))
    body = random.Random(1).randbytes(6 * MIB)
    encryption = geminga.Encryption(["mine"], geminga.PublicKeys({"mine": public_pem}))

    async def produce() -> None:
        async with (
            geminga.connect(standalone.service_url) as client,
            client.producer(
                topic, encryption=encryption, chunking=True, compression="zlib"
            ) as producer,
        ):
            producer.send_nowait(b"first" * 100)
            producer.send_nowait(b"second", key="k")
            await producer.flush()
            await producer.send(b"alone")
            await producer.send(body)

    with client_of(standalone.service_url) as official:
        consumer = official.subscribe(topic, "owner", crypto_key_reader=reader)
        asyncio.run(produce())
        found = [message.data() for message in receive(consumer, 4)]
    assert found == [b"first" * 100, b"second", b"alone", body]
