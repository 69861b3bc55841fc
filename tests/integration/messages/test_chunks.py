"""Messages larger than a message may be, and messages that no broker can read: the official
client's chunks and its encryption, alone and together."""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import Any

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.raw_client import RawClient
from tests.integration.rest import rest
from tests.integration.waiting import eventually

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import parse_metadata

MIB = 1024 * 1024
RECEIVE_TIMEOUT_MS = 60_000
KEY_NAME = "mine"
TYPES = {
    "exclusive": (pulsar.ConsumerType.Exclusive, 1),
    "failover": (pulsar.ConsumerType.Failover, 2),
    "shared": (pulsar.ConsumerType.Shared, 3),
    "key-shared": (pulsar.ConsumerType.KeyShared, 3),
}


def body_of(size_bytes: int, seed: int) -> bytes:
    """Bytes that cannot be compressed."""
    return random.Random(seed).randbytes(size_bytes)


def receive_all(consumers: list[Any], count: int) -> list[bytes]:
    """What the consumers receive together, acknowledged."""
    found: list[bytes] = []
    waits = 0
    while len(found) < count:
        assert waits < RECEIVE_TIMEOUT_MS / 100, f"{len(found)} of {count} messages"
        for consumer in consumers:
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                waits += 1
            else:
                found.append(bytes(message.data()))
                consumer.acknowledge(message)
    return found


def check_nothing_is_left(cluster: StandaloneProcess, topic: str) -> None:
    """Everything is acknowledged, soon (the client gathers acknowledgements for 100 ms), and no
    consumer got more than it had asked for."""
    path = f"/admin/v2/{topic.replace('://', '/')}/stats"

    def counted() -> tuple[int, int]:
        stats = rest(cluster.web_service_url, "GET", path)[1]["subscriptions"]["s"]
        assert all(each["availablePermits"] >= 0 for each in stats["consumers"])
        return stats["unackedMessages"], stats["msgBacklog"]

    eventually(counted, lambda found: found == (0, 0))


def check_arrives(
    cluster: StandaloneProcess, topic: str, kind: str, bodies: list[bytes], **producing: Any
) -> None:
    """Send ``bodies`` from two producers at once; they come whole."""
    consumer_type, count = TYPES[kind]
    crypto = producing.get("crypto_key_reader")
    with client_of(cluster.service_url) as client:
        consumers = [
            client.subscribe(
                topic, "s", consumer_type, consumer_name=str(number), crypto_key_reader=crypto
            )
            for number in range(count)
        ]
        producers = [client.create_producer(topic, **producing) for _ in range(2)]
        for number, body in enumerate(bodies):
            producers[number % 2].send_async(body, None, partition_key=str(number))
        for producer in producers:
            producer.flush()
        assert sorted(receive_all(consumers, len(bodies))) == sorted(bodies)
        check_nothing_is_left(cluster, topic)


@pytest.mark.parametrize("kind", TYPES)
def test_chunked_messages_come_whole_whatever_the_subscription(
    standalone: StandaloneProcess, kind: str
) -> None:
    topic = f"persistent://public/default/chunks-{kind}"
    bodies = [body_of(size * MIB + 1, size) for size in (11, 6, 16, 1)]
    check_arrives(standalone, topic, kind, bodies, chunking_enabled=True, batching_enabled=False)


@pytest.mark.full
@pytest.mark.parametrize("kind", TYPES)
def test_fifty_mebibytes_come_whole(standalone: StandaloneProcess, kind: str) -> None:
    topic = f"persistent://public/default/huge-{kind}"
    bodies = [body_of(50 * MIB, 1), body_of(50 * MIB, 2)]
    check_arrives(standalone, topic, kind, bodies, chunking_enabled=True, batching_enabled=False)


def test_without_chunks_a_message_that_is_too_large_is_refused(
    standalone: StandaloneProcess,
) -> None:
    with client_of(standalone.service_url) as client:
        producer = client.create_producer("persistent://public/default/too-large")
        with pytest.raises(pulsar.MessageTooBig):
            producer.send(bytes(6 * MIB))
        producer.send(b"small")


@pytest.fixture(scope="module")
def key_reader(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    """A key pair of this test alone."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the key pair, and is not there")
    directory = tmp_path_factory.mktemp("keys")
    private, public = str(directory / "private.pem"), str(directory / "public.pem")
    for words in (
        ("genpkey", "-algorithm", "RSA", "-out", private),
        ("pkey", "-in", private, "-pubout", "-out", public),
    ):
        subprocess.run([openssl, *words], check=True, capture_output=True)
    return pulsar.CryptoKeyReader(public, private)


@pytest.mark.parametrize(
    "producing",
    [
        {"batching_enabled": False},
        {"batching_enabled": True, "batching_max_publish_delay_ms": 60_000},
        {
            "batching_enabled": True,
            "batching_max_publish_delay_ms": 60_000,
            "compression_type": pulsar.CompressionType.ZLib,
        },
        {"batching_enabled": False, "chunking_enabled": True},
    ],
    ids=["single", "batch", "compressed", "chunks"],
)
def test_what_is_encrypted_passes_untouched(
    standalone: StandaloneProcess,
    key_reader: pulsar.CryptoKeyReader,
    producing: dict[str, Any],
    request: pytest.FixtureRequest,
) -> None:
    topic = f"persistent://public/default/encrypted-{request.node.callspec.id}"
    size = 11 * MIB if "chunking_enabled" in producing else 100
    bodies = [body_of(size, number) for number in range(4)]
    check_arrives(
        *(standalone, topic, "shared", bodies),
        crypto_key_reader=key_reader,
        encryption_key=KEY_NAME,
        **producing,
    )
    with RawClient(standalone.service_url) as raw:
        raw.connect()
        raw.subscribe(topic, "raw", 1)
        raw.flow(1, 1000)
        payload = raw.expect(api.BaseCommand.MESSAGE).payload
    metadata = parse_metadata(payload)
    assert [each.key for each in metadata.encryption_keys] == [KEY_NAME]
    assert not any(body[:50] in payload for body in bodies)
