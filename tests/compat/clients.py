"""``geminga`` and the official Python client behind one interface: a scenario is written once, and
either of them writes and reads in it, on a broker of either kind."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import pulsar
import requests
from tests.integration.official_client import client_of

import geminga
from geminga import sync

Compression = Literal["none", "lz4", "zlib", "zstd", "snappy"]
BatchingName = Literal["none", "plain", "by key"]
TIMEOUT_S = 60.0
KEY_NAME = "mine"
# Longer than any test: a batch leaves when the producer is flushed, and not before.
BATCH_DELAY_S = 600.0


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker of either kind, and the token that opens it if it asks for one."""

    service_url: str
    web_url: str
    token: str | None = None

    def admin(self, method: str, path: str, body: object = None) -> requests.Response:
        """What REST answers at ``/admin/v2/<path>``; fails unless it succeeds."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        url = f"{self.web_url}/admin/v2/{path}"
        answer = requests.request(method, url, json=body, headers=headers, timeout=TIMEOUT_S)
        assert answer.ok, f"{method} {url}: {answer.status_code} {answer.text}"
        return answer


@dataclass(frozen=True, slots=True)
class Letter:
    """A message as both clients know it. ``id`` is its id as bytes, known once it is stored."""

    value: Any = b""
    key: str | None = None
    ordering_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    event_time_ms: int | None = None
    deliver_after_s: float | None = field(default=None, compare=False)
    id: bytes = field(default=b"", compare=False)

    @property
    def message_id(self) -> geminga.MessageId:
        """The id taken apart."""
        return geminga.MessageId.from_bytes(self.id)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """PEM files of an RSA key: writers encrypt for it, readers read with it."""

    public: Path
    private: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How messages are sent. ``schema`` is of the client that writes."""

    schema: Any = None
    compression: Compression = "none"
    batching: BatchingName = "none"
    chunking: bool = False
    keys: KeyPair | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How messages are read. ``schema`` is of the client that reads."""

    schema: Any = None
    is_shared: bool = False
    keys: KeyPair | None = None
    seek_to: bytes | None = None


PLAIN_WRITING, PLAIN_READING = Writing(), Reading()


class Client(Protocol):
    """One of the two."""

    def write(self, topic: str, letters: Sequence[Letter], how: Writing = ...) -> list[bytes]:
        """Publish messages; returns their ids in the same order."""
        ...

    def read(self, topic: str, count: int, how: Reading = ...) -> list[Letter]:
        """The next messages of a subscription, from the topic's first on unless it seeks."""
        ...

    def read_after(self, topic: str, start: bytes, count: int) -> list[Letter]:
        """The messages that a reader gets which begins behind one."""
        ...


class Ours:
    """``geminga``, by its synchronous facade."""

    def __init__(self, client: sync.Client) -> None:
        self._client = client

    def write(
        self, topic: str, letters: Sequence[Letter], how: Writing = PLAIN_WRITING
    ) -> list[bytes]:
        """As ``Client`` says."""
        encryption = None
        if how.keys is not None:
            keys = geminga.PublicKeys({KEY_NAME: how.keys.public.read_bytes()})
            encryption = geminga.Encryption([KEY_NAME], keys)
        batching = geminga.Batching(delay_s=BATCH_DELAY_S, by_key=how.batching == "by key")
        producer: sync.Producer[Any] = self._client.producer(
            topic,
            schema=how.schema,
            compression=how.compression,
            batching=None if how.batching == "none" else batching,
            chunking=how.chunking,
            encryption=encryption,
            hashing="boost",  # the official client has no other
        )
        ids = [b""] * len(letters)

        def stored(index: int, message_id: geminga.MessageId | None, _error: object) -> None:
            ids[index] = message_id.to_bytes() if message_id is not None else b""

        with producer:
            for index, letter in enumerate(letters):
                producer.send_nowait(
                    letter.value,
                    partial(stored, index),
                    key=letter.key,
                    ordering_key=letter.ordering_key.encode() if letter.ordering_key else None,
                    properties=letter.properties,
                    event_time=letter.event_time_ms,
                    deliver_after=letter.deliver_after_s,
                )
            producer.flush()
        return ids

    def read(self, topic: str, count: int, how: Reading = PLAIN_READING) -> list[Letter]:
        """As ``Client`` says."""
        consumer: sync.Consumer[Any] = self._client.consumer(
            topic,
            "ours",
            schema=how.schema,
            type="shared" if how.is_shared else "exclusive",
            initial_position="earliest",
            decryption=geminga.PrivateKeys({KEY_NAME: how.keys.private.read_bytes()})
            if how.keys
            else None,
        )
        with consumer:
            if how.seek_to is not None:
                consumer.seek(geminga.MessageId.from_bytes(how.seek_to))
            return [self._letter(consumer.receive(TIMEOUT_S)) for _ in range(count)]

    def read_after(self, topic: str, start: bytes, count: int) -> list[Letter]:
        """As ``Client`` says."""
        with self._client.reader(topic, geminga.MessageId.from_bytes(start)) as reader:
            return [self._letter(reader.read(TIMEOUT_S)) for _ in range(count)]

    @staticmethod
    def _letter(message: geminga.Message[Any]) -> Letter:
        ordering_key = message.ordering_key
        return Letter(
            message.value,
            message.key,
            None if ordering_key is None else ordering_key.decode(),
            message.properties,
            message.event_time_ms,
            id=message.id.to_bytes(),
        )


class Official:
    """``pulsar-client``, the C++ client of Apache Pulsar with its Python face."""

    COMPRESSIONS: Mapping[Compression, Any] = {
        "none": pulsar.CompressionType.NONE,
        "lz4": pulsar.CompressionType.LZ4,
        "zlib": pulsar.CompressionType.ZLib,
        "zstd": pulsar.CompressionType.ZSTD,
        "snappy": pulsar.CompressionType.SNAPPY,
    }

    def __init__(self, client: Any) -> None:
        self._client = client

    def write(
        self, topic: str, letters: Sequence[Letter], how: Writing = PLAIN_WRITING
    ) -> list[bytes]:
        """As ``Client`` says."""
        by_key = how.batching == "by key"
        producer = self._client.create_producer(
            topic,
            schema=how.schema or pulsar.schema.BytesSchema(),
            compression_type=self.COMPRESSIONS[how.compression],
            batching_enabled=how.batching != "none",
            batching_type=pulsar.BatchingType.KeyBased if by_key else pulsar.BatchingType.Default,
            batching_max_publish_delay_ms=int(BATCH_DELAY_S * 1000),
            chunking_enabled=how.chunking,
            encryption_key=KEY_NAME if how.keys else None,
            crypto_key_reader=self._keys(how.keys),
        )
        ids = [b""] * len(letters)

        def stored(index: int, result: Any, message_id: Any) -> None:
            ids[index] = message_id.serialize() if result == pulsar.Result.Ok else b""

        for index, letter in enumerate(letters):
            after_s = letter.deliver_after_s
            producer.send_async(
                letter.value,
                partial(stored, index),
                partition_key=letter.key,
                ordering_key=letter.ordering_key,
                properties=dict(letter.properties),
                event_timestamp=letter.event_time_ms,
                deliver_after=None if after_s is None else timedelta(seconds=after_s),
            )
        producer.flush()
        producer.close()
        return ids

    def read(self, topic: str, count: int, how: Reading = PLAIN_READING) -> list[Letter]:
        """As ``Client`` says."""
        consumer = self._client.subscribe(
            topic,
            "official",
            pulsar.ConsumerType.Shared if how.is_shared else pulsar.ConsumerType.Exclusive,
            schema=how.schema or pulsar.schema.BytesSchema(),
            initial_position=pulsar.InitialPosition.Earliest,
            crypto_key_reader=self._keys(how.keys),
            start_message_id_inclusive=True,  # a seek goes to the message, as ours do
        )
        if how.seek_to is not None:
            consumer.seek(pulsar.MessageId.deserialize(how.seek_to))
        letters = [self._letter(consumer.receive(int(TIMEOUT_S * 1000))) for _ in range(count)]
        consumer.close()
        return letters

    def read_after(self, topic: str, start: bytes, count: int) -> list[Letter]:
        """As ``Client`` says."""
        reader = self._client.create_reader(topic, pulsar.MessageId.deserialize(start))
        letters = [self._letter(reader.read_next(int(TIMEOUT_S * 1000))) for _ in range(count)]
        reader.close()
        return letters

    @staticmethod
    def _keys(keys: KeyPair | None) -> Any:
        return keys and pulsar.CryptoKeyReader(str(keys.public), str(keys.private))

    @staticmethod
    def _letter(message: Any) -> Letter:
        return Letter(
            None if message.has_null_value() else message.value(),
            message.partition_key() or None,
            message.ordering_key() or None,
            message.properties(),
            message.event_timestamp() or None,
            id=message.message_id().serialize(),
        )


@contextmanager
def ours(broker: Broker) -> Generator[Client]:
    """Our client of a broker."""
    who = geminga.Token(broker.token) if broker.token else None
    with sync.connect(broker.service_url, authentication=who) as client:
        yield Ours(client)


@contextmanager
def official(broker: Broker) -> Generator[Client]:
    """The official client of a broker."""
    who = pulsar.AuthenticationToken(broker.token) if broker.token else None
    with client_of(broker.service_url, authentication=who) as client:
        yield Official(client)


CLIENTS: Mapping[str, Callable[[Broker], AbstractContextManager[Client]]] = {
    "ours": ours,
    "official": official,
}
