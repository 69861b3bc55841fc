"""What was confirmed outlives kill -9: messages and acknowledgements, holes included.

And where deliveries come from: the newest out of the broker's cache, older ones from the bookie.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any

import pulsar
import pytest
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.raw_client import RawClient
from tests.integration.rest import metric

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.records.encodings.bit_sets import words_of_bits

SUBSCRIPTION = "holes"
MESSAGES = 200
ACKNOWLEDGED_UPTO = 59
BATCH = 10
ACKNOWLEDGED_IN_BATCH = {0, 3, 4, 9}
END = b"end"
RECEIVE_TIMEOUT_MS = 60_000
BOOKIE_READS = "geminga_bookie_reads_total"
CONSUMER_ID = 1


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster whose broker keeps a megabyte in memory; no other broker reads from its bookie."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GEMINGA_BROKER_CACHE_BYTES_MAX", str(1 << 20))
        # Nothing leaves because this takes long.
        environment.setenv("GEMINGA_BROKER_CACHE_AGE_MAX_S", "3600")
        environment.setenv("GEMINGA_BROKER_CACHE_WANTED_AGE_MAX_S", "3600")
        cluster = StandaloneProcess.start(tmp_path_factory.mktemp("forgetful") / "data")
    yield cluster
    cluster.stop()


def body(number: int) -> bytes:
    return f"message {number}".encode()


def publish(client: Any, topic: str, bodies: Sequence[bytes], *, in_one_batch: bool) -> None:
    """Publish and wait for every receipt; one entry for each message, or one for all."""
    producer = client.create_producer(
        topic,
        batching_enabled=in_one_batch,
        batching_max_messages=BATCH,
        batching_max_publish_delay_ms=60_000,
        block_if_queue_full=True,
        send_timeout_millis=SEND_TIMEOUT_MS,
    )
    results: list[object] = []

    def answered(result: object, _: object) -> None:
        results.append(result)

    for each in bodies:
        producer.send_async(each, answered)
    producer.flush()
    producer.close()
    assert results == [pulsar.Result.Ok] * len(bodies)


def publish_all(client: Any, topic: str) -> None:
    """Single messages, then a batch."""
    publish(client, topic, [body(number) for number in range(MESSAGES)], in_one_batch=False)
    batch = [body(number) for number in range(MESSAGES, MESSAGES + BATCH)]
    publish(client, topic, batch, in_one_batch=True)


def acknowledge_with_holes(raw: RawClient, topic: str) -> set[int]:
    """Acknowledge the beginning cumulatively, some of the rest one by one, a batch in part.

    Each is confirmed when this returns the numbers of what was not acknowledged.
    """
    raw.subscribe(topic, SUBSCRIPTION, CONSUMER_ID)
    raw.flow(CONSUMER_ID, 1000)
    ids = [
        raw.expect(api.BaseCommand.MESSAGE).command.message.message_id for _ in range(MESSAGES + 1)
    ]
    raw.acknowledge(CONSUMER_ID, [ids[ACKNOWLEDGED_UPTO]], api.CommandAck.Cumulative)
    rest = range(ACKNOWLEDGED_UPTO + 1, MESSAGES)
    chosen = random.Random(3).sample(rest, len(rest) // 2)
    for number in chosen[:20]:
        raw.acknowledge(CONSUMER_ID, [ids[number]])
    raw.acknowledge(CONSUMER_ID, [ids[number] for number in chosen[20:]])
    left_in_batch = set(range(BATCH)) - ACKNOWLEDGED_IN_BATCH
    batch = api.MessageIdData(ledgerId=ids[-1].ledgerId, entryId=ids[-1].entryId, batch_size=BATCH)
    batch.ack_set.extend(words_of_bits(sum(1 << index for index in left_in_batch)))
    raw.acknowledge(CONSUMER_ID, [batch])
    return (set(rest) - set(chosen)) | {MESSAGES + index for index in left_in_batch}


def drain(client: Any, topic: str, subscription: str) -> list[bytes]:
    """Everything the subscription still has, in the order of delivery."""
    consumer = client.subscribe(
        topic,
        subscription,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )
    publish(client, topic, [END], in_one_batch=False)
    received: list[bytes] = []
    while not received or received[-1] != END:
        received.append(bytes(consumer.receive(RECEIVE_TIMEOUT_MS).data()))
    consumer.close()
    return received[:-1]


@pytest.mark.parametrize("victims", [("broker",), ("bookie",), ("bookie", "broker")], ids="+".join)
def test_confirmed_messages_and_acknowledgements_outlive_kill_9(
    harmed: StandaloneProcess, victims: tuple[str, ...]
) -> None:
    topic = f"persistent://public/default/killed-{'-'.join(victims)}"
    with client_of(harmed.service_url) as client, RawClient(harmed.service_url) as raw:
        publish_all(client, topic)
        raw.connect()
        left = acknowledge_with_holes(raw, topic)
        pids = {victim: harmed.kill_part(victim) for victim in victims}
    for victim, pid in pids.items():
        harmed.wait_restarted(victim, pid)
    with client_of(harmed.service_url) as client:
        assert drain(client, topic, SUBSCRIPTION) == [body(number) for number in sorted(left)]
        everything = [body(number) for number in range(MESSAGES + BATCH)]
        received = drain(client, topic, "everything")
        assert [each for each in received if each != END] == everything


def test_what_was_not_acknowledged_is_delivered_again_after_a_kill(
    harmed: StandaloneProcess,
) -> None:
    topic = "persistent://public/default/unacknowledged"
    with client_of(harmed.service_url) as client:
        consumer = client.subscribe(topic, SUBSCRIPTION)
        publish(client, topic, [body(0), body(1)], in_one_batch=False)
        first = [bytes(consumer.receive(RECEIVE_TIMEOUT_MS).data()) for _ in range(2)]
        harmed.wait_restarted("broker", harmed.kill_part("broker"))
        again = [bytes(consumer.receive(RECEIVE_TIMEOUT_MS).data()) for _ in range(2)]
    assert first == again == [body(0), body(1)]


def test_a_tailing_consumer_causes_no_bookie_read(forgetful: StandaloneProcess) -> None:
    topic = "persistent://public/default/tailed"
    metrics_url = forgetful.metrics_url("bookie")
    with client_of(forgetful.service_url) as client:
        consumer = client.subscribe(topic, SUBSCRIPTION)
        producer = client.create_producer(topic, batching_enabled=False)
        reads_before = metric(metrics_url, BOOKIE_READS)
        for number in range(MESSAGES):
            producer.send(body(number))
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            assert message.data() == body(number)
            consumer.acknowledge(message)
        assert metric(metrics_url, BOOKIE_READS) == reads_before


def test_a_consumer_that_is_behind_reads_from_the_bookie(forgetful: StandaloneProcess) -> None:
    """Four megabytes through a cache of one: the oldest are not there any more.

    Published a part at a time: what is confirmed together leaves the cache together.
    """
    topic = "persistent://public/default/behind"
    bodies = [body(number).ljust(4096) for number in range(1024)]
    with client_of(forgetful.service_url) as client:
        client.subscribe(topic, SUBSCRIPTION).close()
        for part in range(0, len(bodies), 32):
            publish(client, topic, bodies[part : part + 32], in_one_batch=False)
        reads_before = metric(forgetful.metrics_url("bookie"), BOOKIE_READS)
        assert drain(client, topic, SUBSCRIPTION) == bodies
        reads = metric(forgetful.metrics_url("bookie"), BOOKIE_READS) - reads_before
        assert 0 < reads < len(bodies), "the oldest from the bookie, the newest from the cache"
