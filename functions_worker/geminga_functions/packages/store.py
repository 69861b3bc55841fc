"""Packages in topics: each has a topic of its own, and is as durable as its messages.

A package is cut into parts of at most ``PART_BYTES``, one message each, so that neither the writer
nor a reader holds a whole package in memory. The last message has the number of bytes and parts and
the SHA-256 of the package; without it the package was not stored. A durable subscription without
consumers, created before the first part, keeps the messages from being deleted. Packages are never
changed: storing one again under the same path deletes the topic and creates it anew.
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

# The messages of a package's topic:
#
#   +------------+------------+-----+----------+---------------------------+
#   | PART_BYTES | PART_BYTES | ... | the rest | file, parts, size, sha256 |
#   |           the payloads of the parts      | properties, empty payload |
#   +------------+------------+-----+----------+---------------------------+
#
# Below the 5 MiB that brokers take as one message, and small enough for many uploads at once.
PART_BYTES: Final = 1024 * 1024
# Parts of one transfer that are in memory, on their way to the broker or from it.
PARTS_AHEAD: Final = 4
PART_TIMEOUT_S: Final = 30.0
SUBSCRIPTION: Final = "package"


@dataclass(frozen=True, slots=True)
class StoredPackage:
    """A package as it was stored."""

    path: str
    # The name of its file, which tells what kind of package it is.
    file_name: str
    size_bytes: int
    # In hexadecimal digits.
    sha256: str


@dataclass(frozen=True, slots=True, eq=False)
class PackageStore:
    """Stores, reads and removes packages, by paths such as ``tenant/namespace/name/ID-file.zip``.

    ``namespace`` is that of the workers' own topics; ``web_url`` is the brokers' REST interface.
    A package with more than ``bytes_max`` bytes is refused.
    """

    client: geminga.Client
    calls: RestCalls
    web_url: str
    namespace: str
    bytes_max: int

    def topic(self, path: str) -> str:
        """The name of the topic of a package."""
        slug = slug_of(path)[-SLUG_CHARACTERS_MAX:].strip("-")
        return f"persistent://{self.namespace}/package-{slug}-{digest_of(path)}"

    async def store(self, path: str, file_name: str, chunks: AsyncIterable[bytes]) -> StoredPackage:
        """Store a package, in place of an earlier one with this path.

        Raises ``PackageTooLarge``, ``ClientError``, ``ServerUnreachable``; nothing is stored then.
        """
        # First: the parts of an earlier package, or of an upload that did not end, would come
        # before those of this one.
        await self.remove(path)
        topic = self.topic(path)
        try:
            return await self._write(topic, path, file_name, chunks)
        except BaseException:
            try:
                await self.remove(path)
            except Exception:
                # It takes space, and is no package without its last message.
                extra = {"path": path}
                log.exception("a package that was not stored leaves its topic", extra=extra)
            raise

    async def _write(
        self, topic: str, path: str, file_name: str, chunks: AsyncIterable[bytes]
    ) -> StoredPackage:
        digest, size_bytes, parts = hashlib.sha256(), 0, 0
        async with self.client.producer(
            topic,
            initial_subscription=SUBSCRIPTION,
            # A part nearly fills a message; waiting for others would only delay it.
            batching=None,
            pending_messages_max=PARTS_AHEAD,
        ) as producer:
            async for part in _parts(chunks):
                size_bytes += len(part)
                parts += 1
                # While it arrives, not by what the client says of its size: ``store`` then deletes
                # the topic.
                if size_bytes > self.bytes_max:
                    raise PackageTooLarge(file_name, size_bytes, self.bytes_max)
                digest.update(part)
                # Waits while half of ``PARTS_AHEAD`` parts have no receipt: so an upload is as fast
                # as the broker stores.
                await producer.ready()
                producer.send_nowait(part)
            package = StoredPackage(path, file_name, size_bytes, digest.hexdigest())
            # All parts are stored before the last message, which says that they are.
            await producer.flush()
            await producer.send(b"", properties=_properties(package, parts))
        return package

    async def read(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a package, part by part.

        The parts are right only if no error comes before their end, so the caller must read to the
        end. Raises ``PackageNotFound``, ``PackageDamaged``, ``ClientError``.
        """
        topic = self.topic(path)
        digest, size_bytes, parts = hashlib.sha256(), 0, 0
        # A reader would create the topic.
        if await self._call("GET", topic, "/stats") == 404:
            raise PackageNotFound(path)
        async with self.client.reader(topic, receiver_queue_size=PARTS_AHEAD) as reader:
            while await reader.has_message_available():
                message = await reader.read()
                # Only the last message has it.
                if "sha256" not in message.properties:
                    part = message.value
                    digest.update(part)
                    size_bytes += len(part)
                    parts += 1
                    yield part
                    continue
                file_name = message.properties.get("file", "")
                found = StoredPackage(path, file_name, size_bytes, digest.hexdigest())
                # Number, size and digest at once: what differs is of no use to the reader.
                if dict(message.properties) != _properties(found, parts):
                    raise PackageDamaged(path, "its parts are not those that were stored")
                return
        raise PackageDamaged(path, "its last message is missing")

    async def remove(self, path: str) -> None:
        """Remove a package, if there is one. Raises ``ServerUnreachable``, ``PackageDamaged``."""
        # By force, since the subscription of the package is still there.
        answer = await self._call("DELETE", self.topic(path), "?force=true")
        if answer not in {204, 404}:
            raise PackageDamaged(path, f"the broker answered {answer} to its removal")

    async def _call(self, method: str, topic: str, rest: str) -> int:
        """Send a request about a topic to a broker; returns the status of the answer."""
        url = topic_url(self.web_url, topic, rest)
        return (await self.calls.call(RestCall(method, url))).status


def _properties(package: StoredPackage, parts: int) -> dict[str, str]:
    """The properties of the last message."""
    return {
        "file": package.file_name,
        "parts": str(parts),
        "size": str(package.size_bytes),
        "sha256": package.sha256,
    }


async def _parts(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in parts of ``PART_BYTES``, of which the last may be shorter."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        while len(held) >= PART_BYTES:
            yield bytes(held[:PART_BYTES])
            del held[:PART_BYTES]
    if held:
        yield bytes(held)
