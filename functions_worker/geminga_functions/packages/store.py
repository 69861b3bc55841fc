"""Packages in topics: a topic of its own for each, which its ledgers keep as they keep messages.

A package is cut into parts of at most ``PART_BYTES``, a message each, and ends with a message that
says how many bytes and parts there are and their SHA-256: neither side holds a whole package in
memory. A durable subscription without consumers, made before the first part, keeps the messages.
A package without its last message was never stored. Packages are never changed: one that is stored
again under its path gets a new topic.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Final

import geminga
from geminga_functions.broker_calls import topic_url
from geminga_functions.errors import PackageDamaged, PackageNotFound, PackageTooLarge
from geminga_functions.names import SLUG_CHARACTERS_MAX, digest_of, slug_of
from geminga_server.http.rest_calls import RestCall, RestCalls

log = logging.getLogger(__name__)

# Below the 5 MiB that brokers take in one message, and small enough for many uploads at once.
PART_BYTES: Final = 1024 * 1024
# Parts on their way to the broker, or from it: what a transfer holds in memory.
PARTS_AHEAD: Final = 4
PART_TIMEOUT_S: Final = 30.0
SUBSCRIPTION: Final = "package"


@dataclass(frozen=True, slots=True)
class StoredPackage:
    """A package as it was stored: its path, the name of its file, its size and SHA-256 in hex."""

    path: str
    file_name: str
    size_bytes: int
    sha256: str


class PackageStore:
    """Stores, reads and removes packages, by paths such as ``tenant/namespace/name/ID-file.zip``.

    ``namespace`` is the one of the functions workers' own topics; ``web_url`` is of brokers. No
    package has more than ``bytes_max`` bytes.
    """

    def __init__(
        self,
        client: geminga.Client,
        calls: RestCalls,
        web_url: str,
        namespace: str,
        bytes_max: int,
    ) -> None:
        self.bytes_max = bytes_max
        self._client = client
        self._calls = calls
        self._web_url = web_url
        self._namespace = namespace

    def topic(self, path: str) -> str:
        """The name of the topic of a package."""
        slug = slug_of(path)[-SLUG_CHARACTERS_MAX:].strip("-")
        return f"persistent://{self._namespace}/package-{slug}-{digest_of(path)}"

    async def store(self, path: str, file_name: str, chunks: AsyncIterable[bytes]) -> StoredPackage:
        """Store a package; one that has this path is replaced.

        Raises ``PackageTooLarge``, ``ClientError``, ``ServerUnreachable``; nothing is stored then.
        """
        await self.remove(path)
        topic = self.topic(path)
        try:
            return await self._write(topic, path, file_name, chunks)
        except BaseException:
            await self._discard(path)
            raise

    async def _write(
        self, topic: str, path: str, file_name: str, chunks: AsyncIterable[bytes]
    ) -> StoredPackage:
        digest, size_bytes, parts = hashlib.sha256(), 0, 0
        async with self._client.producer(
            topic,
            initial_subscription=SUBSCRIPTION,
            batching=None,
            pending_messages_max=PARTS_AHEAD,
        ) as producer:
            async for part in _parts(chunks):
                size_bytes += len(part)
                parts += 1
                if size_bytes > self.bytes_max:
                    raise PackageTooLarge(file_name, size_bytes, self.bytes_max)
                digest.update(part)
                await producer.ready()
                producer.send_nowait(part)
            package = StoredPackage(path, file_name, size_bytes, digest.hexdigest())
            # Before the last message: what makes the package a whole one must be the last stored.
            await producer.flush()
            await producer.send(b"", properties=_properties(package, parts))
        return package

    async def _discard(self, path: str) -> None:
        try:
            await self.remove(path)
        except Exception:
            log.exception("a package that was not stored leaves its topic", extra={"path": path})

    async def read(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a package, part by part. The caller must read to the end: what was read
        is right only if no error comes.

        Raises ``PackageNotFound``, ``PackageDamaged``, ``ClientError``.
        """
        topic = self.topic(path)
        digest, size_bytes, parts = hashlib.sha256(), 0, 0
        # A reader would make the topic of a path that does not exist.
        if not await self._exists(topic):
            raise PackageNotFound(path)
        async with self._client.reader(topic, receiver_queue_size=PARTS_AHEAD) as reader:
            while await reader.has_message_available():
                message = await reader.read()
                if "sha256" not in message.properties:
                    part = message.value
                    digest.update(part)
                    size_bytes += len(part)
                    parts += 1
                    yield part
                    continue
                file_name = message.properties.get("file", "")
                found = StoredPackage(path, file_name, size_bytes, digest.hexdigest())
                if dict(message.properties) != _properties(found, parts):
                    raise PackageDamaged(path, "its parts are not those that were stored")
                return
        raise PackageDamaged(path, "its last message is missing")

    async def remove(self, path: str) -> None:
        """Remove a package; nothing happens where there is none. Raises ``ServerUnreachable``."""
        answer = await self._call("DELETE", self.topic(path), "?force=true")
        if answer not in {204, 404}:
            raise PackageDamaged(path, f"the broker answered {answer} to its removal")

    async def _exists(self, topic: str) -> bool:
        return await self._call("GET", topic, "/stats") != 404

    async def _call(self, method: str, topic: str, rest: str) -> int:
        url = topic_url(self._web_url, topic, rest)
        return (await self._calls.call(RestCall(method, url))).status


def _properties(package: StoredPackage, parts: int) -> dict[str, str]:
    return {
        "file": package.file_name,
        "parts": str(parts),
        "size": str(package.size_bytes),
        "sha256": package.sha256,
    }


async def _parts(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in parts of ``PART_BYTES``, of which the last is shorter."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        while len(held) >= PART_BYTES:
            yield bytes(held[:PART_BYTES])
            del held[:PART_BYTES]
    if held:
        yield bytes(held)
