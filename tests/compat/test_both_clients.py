"""Proves that ``geminga`` and the official Python client read what the other one writes, on Geminga
and on a real Apache Pulsar. Every test runs for each writer, reader and broker."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.compat.clients import (
    CLIENTS,
    BatchingName,
    Broker,
    Client,
    Compression,
    KeyPair,
    Letter,
    Reading,
    Writing,
)
from tests.compat.schemas import SCHEMAS

BROKERS = ("geminga", "pulsar")
BATCHINGS: tuple[BatchingName, ...] = get_args(BatchingName)
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
# A broker takes 5 MiB at once: this leaves in three chunks, and compressed in two, as every
# compression leaves out the second of two equal kilobytes.
KILOBYTES = random.Random(1)
LARGE = b"".join(KILOBYTES.randbytes(1024) * 2 for _ in range(6 * 1024))
CHUNKS, CHUNKS_COMPRESSED = 3, 2
DELAY_S = 2.0
EARLY_S = 1.0  # as early may Pulsar be


@dataclass(frozen=True, slots=True)
class Route:
    """Who writes, who reads, where, and on which topic."""

    writer_name: str
    reader_name: str
    writer: Client
    reader: Client
    broker: Broker
    topic: str


@pytest.fixture(params=product(CLIENTS, CLIENTS, BROKERS), ids="-".join)
def route(request: pytest.FixtureRequest) -> Iterator[Route]:
    """Every writer with every reader on every broker, each on a topic of its own."""
    writer, reader, broker_name = request.param
    broker: Broker = request.getfixturevalue(f"{broker_name}_broker")
    topic = f"persistent://public/default/compat-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        writes, reads = (stack.enter_context(CLIENTS[name](broker)) for name in (writer, reader))
        yield Route(writer, reader, writes, reads, broker, topic)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    private = rsa.generate_private_key(65537, 2048)
    directory = tmp_path_factory.mktemp("keys")
    made = KeyPair(directory / "public.pem", directory / "private.pem")
    made.public.write_bytes(
        private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    made.private.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return made


def letters(count: int) -> list[Letter]:
    """Messages with everything that both clients can say of one."""
    return [
        Letter(
            b"%d" % number * 100,  # long enough to be compressed
            f"key-{number % 3}",
            f"order-{number % 2}",
            {"number": str(number), "é": "ü ☕", "empty": ""},
            1_700_000_000_000 + number,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_values_of_every_schema(route: Route, kind: str) -> None:
    written, read = SCHEMAS[kind][route.writer_name], SCHEMAS[kind][route.reader_name]
    sent = [Letter(value) for value in written.values]
    route.writer.write(route.topic, sent, Writing(schema=written.schema))
    found = route.reader.read(route.topic, len(sent), Reading(schema=read.schema))
    assert [letter.value for letter in found] == list(read.values)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("batching", BATCHINGS)
def test_everything_that_is_said_of_a_message(
    route: Route, batching: BatchingName, compression: Compression
) -> None:
    sent = letters(12)
    ids = route.writer.write(route.topic, sent, Writing(batching=batching, compression=compression))
    found = route.reader.read(route.topic, len(sent))
    in_order = sorted(found, key=lambda letter: letter.event_time_ms or 0)
    assert in_order == sent
    assert [letter.id for letter in in_order] == ids
    entries: dict[Any, set[str | None]] = {}
    for letter in found:
        entries.setdefault(letter.message_id.position, set()).add(letter.ordering_key)
    # By key: an ordering key counts for more than a key.
    assert len(entries) == {"none": 12, "plain": 1, "by key": 2}[batching]
    assert batching != "by key" or all(len(each) == 1 for each in entries.values())


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_messages_in_chunks(route: Route, compression: Compression) -> None:
    sent = letters(3)
    sent[1] = replace(sent[1], value=LARGE)
    ids = route.writer.write(route.topic, sent, Writing(chunking=True, compression=compression))
    found = route.reader.read(route.topic, 3)
    assert found == sent
    assert [letter.id for letter in found] == ids
    assert chunks_of(found[1]) == (CHUNKS if compression == "none" else CHUNKS_COMPRESSED)


def chunks_of(letter: Letter) -> int:
    """As how many entries a message is stored."""
    last = letter.message_id
    first = last.first_chunk or last
    assert first.ledger_id == last.ledger_id
    return last.entry_id - first.entry_id + 1


@pytest.mark.parametrize(
    "how",
    [
        Writing(),
        Writing(batching="plain", compression="zstd"),
        Writing(chunking=True, compression="zlib"),
    ],
    ids=["alone", "batch", "chunks"],
)
def test_encrypted_messages(route: Route, keys: KeyPair, how: Writing) -> None:
    sent = letters(3)
    if how.chunking:
        sent[1] = replace(sent[1], value=LARGE)
    route.writer.write(route.topic, sent, replace(how, keys=keys))
    found = route.reader.read(route.topic, 3, Reading(keys=keys))
    assert found == sent
    assert chunks_of(found[1]) == (CHUNKS_COMPRESSED if how.chunking else 1)
    path = route.topic.replace("://", "/")
    for letter in found:
        ledger_id, entry_id = letter.message_id.position
        shown = route.broker.admin("GET", f"{path}/ledger/{ledger_id}/entry/{entry_id}")
        assert shown.headers["X-Pulsar-Is-Encrypted"] == "true"


def test_a_key_has_one_partition(route: Route) -> None:
    path = route.topic.replace("://", "/")
    route.broker.admin("PUT", f"{path}/partitions", 7)
    sent = [Letter(key=f"key-{number}") for number in range(40)]
    for client in (route.writer, route.reader):
        client.write(route.topic, sent)
    partitions: dict[str | None, list[int]] = {}
    for letter in route.reader.read(route.topic, 80):
        partitions.setdefault(letter.key, []).append(letter.message_id.partition)
    assert all(first == second for first, second in partitions.values())
    assert len({first for first, _ in partitions.values()}) == 7


@pytest.mark.parametrize("batching", ["none", "plain"])
def test_ids_of_one_are_positions_for_the_other(route: Route, batching: BatchingName) -> None:
    sent = letters(10)
    ids = route.writer.write(route.topic, sent, Writing(batching=batching))
    assert route.reader.read(route.topic, 6, Reading(seek_to=ids[4])) == sent[4:]
    found = route.reader.read(route.topic, 10, Reading(seek_to=ids[0]))
    assert route.writer.read(route.topic, 6, Reading(seek_to=found[4].id)) == sent[4:]
    assert route.reader.read_after(route.topic, ids[4], 5) == sent[5:]
    assert route.writer.read_after(route.topic, found[4].id, 5) == sent[5:]


def test_delayed_messages(route: Route) -> None:
    sent = [Letter(b"late", deliver_after_s=DELAY_S), Letter(b"at once")]
    begun_s = time.monotonic()
    route.writer.write(route.topic, sent)
    found = route.reader.read(route.topic, 2, Reading(is_shared=True))
    assert time.monotonic() - begun_s >= DELAY_S - EARLY_S
    assert {letter.value for letter in found} == {b"at once", b"late"}


def test_null_values(route: Route) -> None:
    sent = [Letter(None, "gone"), Letter(b"", "empty")]
    for batching in BATCHINGS:
        route.writer.write(route.topic, sent, Writing(batching=batching))
    assert route.reader.read(route.topic, 6) == sent * 3
