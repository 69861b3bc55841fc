"""Our client's consumers, readers and table views on a real cluster.

The official client publishes what they read, reads what they publish, and shows what its own calls
do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pulsar
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest

from geminga import (
    EARLIEST,
    Client,
    Consumer,
    DeadLetterPolicy,
    KeySharedPolicy,
    Message,
    MessageId,
    PrivateKeys,
    Reader,
)

PREFIX = "persistent://public/default/consumers-"
ADMIN = "/admin/v2/persistent/public/default/consumers-"
WAIT_S = 60.0
RECEIVE_MS = 60_000


@pytest.fixture
def official(standalone: StandaloneProcess) -> Generator[Any]:
    """The official client of the shared cluster."""
    with client_of(standalone.service_url) as client:
        yield client


def publish(official: Any, topic: str, *bodies: bytes, **options: Any) -> None:
    """Publish with the official client and wait for all receipts."""
    producer = official.create_producer(PREFIX + topic, **options)
    for body in bodies:
        producer.send_async(body, None)
    producer.flush()
    producer.close()


async def next_of(consumer: Consumer[bytes] | Reader[bytes], count: int) -> list[Message[bytes]]:
    async with asyncio.timeout(WAIT_S):
        receive = consumer.receive if isinstance(consumer, Consumer) else consumer.read
        return [await receive() for _ in range(count)]


def data_of(messages: list[Message[bytes]]) -> list[bytes]:
    return [message.data for message in messages]


COMPRESSIONS = {
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("batched", [False, True])
async def test_what_the_official_client_compresses_is_received(
    client: Client, official: Any, compression: str, *, batched: bool
) -> None:
    topic = f"compressed-{compression}-{batched}"
    async with client.consumer(PREFIX + topic, "s") as consumer:
        bodies = [b"%d " % number * 100 for number in range(5)]
        kind = COMPRESSIONS[compression]
        publish(official, topic, *bodies, compression_type=kind, batching_enabled=batched)
        assert data_of(await next_of(consumer, 5)) == bodies


async def test_what_the_official_client_says_of_a_message_is_received(
    client: Client, official: Any
) -> None:
    async with client.consumer(PREFIX + "said", "s") as consumer:
        producer = official.create_producer(PREFIX + "said", producer_name="till")
        producer.send(
            b"body",
            properties={"a": "b"},
            partition_key="k",
            ordering_key="o",
            event_timestamp=1_000,
        )
        (message,) = await next_of(consumer, 1)
    assert (message.data, message.key, message.ordering_key) == (b"body", "k", b"o")
    assert message.properties == {"a": "b"}
    assert message.event_time == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert message.producer_name == "till"
    assert abs((datetime.now(UTC) - message.publish_time).total_seconds()) < 60


async def test_what_the_official_client_encrypts_is_received(
    client: Client, official: Any, tmp_path: Path
) -> None:
    private = rsa.generate_private_key(65537, 2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "public.pem").write_bytes(public)
    (tmp_path / "private.pem").write_bytes(pem)
    reader = pulsar.CryptoKeyReader(str(tmp_path / "public.pem"), str(tmp_path / "private.pem"))
    topic, keys = PREFIX + "encrypted", PrivateKeys({"mine": pem})
    async with client.consumer(topic, "s", decryption=keys) as consumer:
        producer = official.create_producer(
            topic,
            encryption_key="mine",
            crypto_key_reader=reader,
            compression_type=pulsar.CompressionType.ZLib,
        )
        for number in range(3):
            producer.send(b"secret %d" % number * 50)
        bodies = [b"secret %d" % number * 50 for number in range(3)]
        assert data_of(await next_of(consumer, 3)) == bodies


async def test_a_message_in_chunks_is_received_whole(client: Client, official: Any) -> None:
    body = bytes(range(256)) * 50_000  # 12 MB
    async with client.consumer(PREFIX + "chunks", "s") as consumer:
        publish(official, "chunks", body, chunking_enabled=True, batching_enabled=False)
        (message,) = await next_of(consumer, 1)
        assert message.data == body
        first_chunk = message.id.first_chunk
        assert first_chunk is not None
        await consumer.ack_confirmed(message)
    again = official.subscribe(PREFIX + "chunks", "s")
    with pytest.raises(pulsar.Timeout):
        again.receive(1000)


async def test_ids_are_the_official_clients_both_ways(client: Client, official: Any) -> None:
    async with client.consumer(PREFIX + "ids", "ours") as consumer:
        theirs = official.subscribe(PREFIX + "ids", "theirs")
        publish(official, "ids", b"0", b"1", b"2", batching_enabled=True)
        ours = await next_of(consumer, 3)
        others = [theirs.receive(RECEIVE_MS).message_id() for _ in range(3)]
        for message, other in zip(ours, others, strict=True):
            read = MessageId.from_bytes(other.serialize())
            assert (read, read.batch_size) == (message.id, message.id.batch_size)
            assert pulsar.MessageId.deserialize(message.id.to_bytes()) == other
        # That client goes on behind a message in a batch.
        for same in (others[1], pulsar.MessageId.deserialize(ours[1].id.to_bytes())):
            theirs.seek(same)
            assert theirs.receive(RECEIVE_MS).data() == b"2"
        await consumer.seek(MessageId.from_bytes(ours[1].id.to_bytes()))
        assert data_of(await next_of(consumer, 2)) == [b"1", b"2"]


async def test_messages_of_a_batch_are_acknowledged_one_by_one(
    client: Client, official: Any
) -> None:
    topic = PREFIX + "indexes"
    async with client.consumer(topic, "s", batch_index_acks=True) as consumer:
        publish(official, "indexes", *[b"%d" % number for number in range(5)])
        messages = await next_of(consumer, 5)
        await consumer.ack_confirmed(messages[1], messages[3])
    async with client.consumer(topic, "s") as consumer:
        assert data_of(await next_of(consumer, 3)) == [b"0", b"2", b"4"]


async def test_partitions_that_are_added_are_consumed_and_none_is_lost(
    client: Client, official: Any, standalone: StandaloneProcess
) -> None:
    web = standalone.web_service_url
    rest(web, "PUT", f"{ADMIN}growing/partitions", 2)
    topic = PREFIX + "growing"
    async with client.consumer(topic, "s", type="shared", topics_refresh_s=0.2) as consumer:
        assert len(consumer.topics) == 2
        rest(web, "POST", f"{ADMIN}growing/partitions", 4)
        bodies = [b"%d" % number for number in range(40)]
        spread = pulsar.PartitionsRoutingMode.RoundRobinDistribution
        publish(official, "growing", *bodies, batching_enabled=False, message_routing_mode=spread)
        messages = await next_of(consumer, 40)
        assert sorted(data_of(messages)) == sorted(bodies)
        assert len({message.topic for message in messages}) == 4
        await consumer.ack_confirmed(*messages)
        await consumer.seek(0)
        assert sorted(data_of(await next_of(consumer, 40))) == sorted(bodies)


async def test_a_pattern_finds_topics_that_are_made_later(client: Client, official: Any) -> None:
    publish(official, "pattern-a", b"before")
    publish(official, "other", b"of no interest")
    async with client.consumer(
        re.compile(PREFIX + r"pattern-[ab]"), "s", topics_refresh_s=1000
    ) as consumer:
        assert consumer.topics == [PREFIX + "pattern-a"]
        publish(official, "pattern-b", b"first")
        publish(official, "pattern-a", b"second")
        assert sorted(data_of(await next_of(consumer, 2))) == [b"first", b"second"]


async def test_dead_letters_are_read_by_the_official_client(client: Client, official: Any) -> None:
    async with client.consumer(
        PREFIX + "dead",
        "s",
        type="shared",
        nack_delay_s=0.1,
        dead_letters=DeadLetterPolicy(2, initial_subscription="undertaker"),
    ) as consumer:
        publish(official, "dead", b"bad")
        ids: list[MessageId] = []
        for count in range(3):
            (message,) = await next_of(consumer, 1)
            assert message.redelivery_count == count
            consumer.nack(message)
            ids.append(message.id)
        dead = official.subscribe(
            PREFIX + "dead-s-DLQ", "undertaker", consumer_type=pulsar.ConsumerType.Shared
        )
        letter = await asyncio.to_thread(dead.receive, RECEIVE_MS)
    assert letter.data() == b"bad"
    assert letter.properties()["REAL_TOPIC"] == PREFIX + "dead"
    assert letter.properties()["ORIGIN_MESSAGE_ID"] == str(ids[0])


async def test_a_message_is_consumed_again_later(client: Client, official: Any) -> None:
    async with client.consumer(
        PREFIX + "retried",
        "s",
        type="shared",
        dead_letters=DeadLetterPolicy(3, retry_letters=True),
    ) as consumer:
        publish(official, "retried", b"later")
        (message,) = await next_of(consumer, 1)
        await consumer.reconsume_later(message, 0.5)
        (again,) = await next_of(consumer, 1)
        assert (again.data, again.topic) == (b"later", PREFIX + "retried-s-RETRY")
        assert again.properties["RECONSUMETIMES"] == "1"


async def test_refused_and_forgotten_messages_come_again(client: Client, official: Any) -> None:
    async with client.consumer(
        PREFIX + "refused", "s", type="shared", nack_delay_s=0.2, ack_timeout_s=1.0
    ) as consumer:
        publish(official, "refused", b"refused", b"forgotten", batching_enabled=False)
        refused, _ = await next_of(consumer, 2)
        consumer.nack(refused)
        again: dict[bytes, int] = {}
        while len(again) < 2:  # in any order, where this is slower than the timeouts
            (message,) = await next_of(consumer, 1)
            again.setdefault(message.data, message.redelivery_count)
            await consumer.ack_confirmed(message)
        assert again == {b"refused": 1, b"forgotten": 1}


async def test_key_shared_consumers_have_the_keys_of_their_ranges(
    client: Client, official: Any
) -> None:
    low = KeySharedPolicy(ranges=[(0, 32767)])
    high = KeySharedPolicy(ranges=[(32768, 65535)])
    topic = PREFIX + "keys"
    async with (
        client.consumer(topic, "s", type="key_shared", key_shared=low) as one,
        client.consumer(topic, "s", type="key_shared", key_shared=high) as other,
    ):
        producer = official.create_producer(topic, batching_enabled=False)
        for number in range(40):
            producer.send(b"x", partition_key=str(number % 20))
        keys: list[set[str | None]] = [set(), set()]
        count = 0
        async with asyncio.timeout(WAIT_S):
            while count < 40:
                for number, consumer in enumerate((one, other)):
                    messages = await consumer.receive_many(40, 0.1)
                    count += len(messages)
                    keys[number] |= {message.key for message in messages}
        assert count == 40
        assert keys[0]
        assert keys[1]
        assert not keys[0] & keys[1]


async def test_a_paused_consumer_gets_what_it_had_asked_for_and_no_more(
    client: Client, official: Any
) -> None:
    async with client.consumer(PREFIX + "paused", "s", receiver_queue_size=10) as consumer:
        consumer.pause()
        publish(official, "paused", *[b"%d" % n for n in range(30)], batching_enabled=False)
        assert len(await next_of(consumer, 10)) == 10
        assert await consumer.receive_many(10, 0.5) == []
        consumer.resume()
        assert len(await next_of(consumer, 20)) == 20


@pytest.mark.parametrize("batched", [False, True])
async def test_a_reader_reads_all_there_is_and_goes_on_at_any_message(
    client: Client, official: Any, *, batched: bool
) -> None:
    topic = f"read-{batched}"
    publish(official, topic, *[b"%d" % n for n in range(10)], batching_enabled=batched)
    found: list[Message[bytes]] = []
    async with client.reader(PREFIX + topic) as reader:
        while await reader.has_message_available():
            found += await next_of(reader, 1)
        assert data_of(found) == [b"%d" % n for n in range(10)]
        await reader.seek(found[4].id)
        assert data_of(await next_of(reader, 6)) == [b"%d" % n for n in range(4, 10)]
    for inclusive in (False, True):
        start = found[6].id
        async with client.reader(PREFIX + topic, start, start_inclusive=inclusive) as reader:
            first = 6 if inclusive else 7
            expected = [b"%d" % n for n in range(first, 10)]
            assert data_of(await next_of(reader, len(expected))) == expected
            assert not await reader.has_message_available()


async def test_a_reader_may_begin_at_a_time(client: Client, official: Any) -> None:
    publish(official, "timed", b"early")
    await asyncio.sleep(0.05)
    between = datetime.now(UTC)
    await asyncio.sleep(0.05)
    publish(official, "timed", b"late")
    async with client.reader(PREFIX + "timed", between) as reader:
        assert await reader.has_message_available()
        assert data_of(await next_of(reader, 1)) == [b"late"]
        await reader.seek(datetime.now(UTC))
        assert not await reader.has_message_available()


async def test_a_table_view_has_what_the_official_one_has(client: Client, official: Any) -> None:
    topic = PREFIX + "table"
    producer = official.create_producer(topic)
    for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("c", b"")):
        producer.send(value, partition_key=key)
    async with client.table_view(topic) as view:
        theirs: dict[str, bytes] = {}
        official.create_table_view(topic).for_each(theirs.__setitem__)
        assert dict(view) == {"a": b"3", "b": b"2"} == theirs
        changes = aiter(view)
        producer.send(b"5", partition_key="a")
        await view.refresh()
        assert view["a"] == b"5"
        assert await anext(changes) == ("a", b"5")


async def test_unsubscribing_deletes_the_subscription(
    client: Client, standalone: StandaloneProcess
) -> None:
    async with client.consumer(PREFIX + "left", "s", initial_position="earliest") as consumer:
        assert (await consumer.last_message_id()).entry_id == -1
        await consumer.seek(EARLIEST)
        await consumer.unsubscribe()
    _, names = rest(standalone.web_service_url, "GET", f"{ADMIN}left/subscriptions")
    assert names == []
