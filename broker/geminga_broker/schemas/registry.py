"""The schemas of topics: registered, found, compared, deleted.

There is one registry per broker, because a schema does not belong to a topic that is open here: the
partitions of a topic, which several brokers may serve, share one schema; REST asks for schemas of
topics that are not loaded; and versions outlive an unload. Any broker may write them. Only
versions, which never change, are cached: each request reads the topic's node in ZooKeeper.

Facts: ``SchemaRegistryServiceImpl`` of Apache Pulsar 4.0.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from weakref import WeakValueDictionary

from geminga_broker.errors import ServiceNotReady
from geminga_broker.policies.schemas import SchemaStrategy
from geminga_broker.schemas.counts import Operation, SchemaCounts
from geminga_broker.schemas.errors import SchemaNotFound
from geminga_broker.schemas.rules.compatibility import (
    Version,
    check_consumer,
    check_following,
    version_of,
)
from geminga_broker.schemas.rules.definitions import Schema, check_definition
from geminga_broker.schemas.storage import (
    SchemasChanged,
    SchemaStorage,
    StoredSchema,
    StoredSchemas,
)
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.topics.schemas import SchemaInfo, SchemaLocator
from geminga_runtime.clock import Clock

_VERSION = struct.Struct(">q")
# A round fails only if another broker stores a version of the same topic's schema meanwhile. More
# in a row mean that something stores schemas in a loop; the client tries again later.
ROUNDS_MAX = 16


def schema_id(topic: TopicName) -> str:
    """The id of a topic's schema, which is that of the partitioned topic for a partition. As in
    upstream, a persistent and a non-persistent topic of the same name share a schema."""
    return f"{topic.namespace}/{topic.base.encoded_local}"


def encode_version(number: int) -> bytes:
    """A version as in commands and messages (``LongSchemaVersion``)."""
    return _VERSION.pack(number)


def decode_version(version: bytes) -> int:
    """The number of such a version; -1, which is no version, if it has another length."""
    return int(_VERSION.unpack(version)[0]) if len(version) == _VERSION.size else -1


def live(stored: StoredSchemas) -> list[StoredSchema]:
    """The versions since the last deletion."""
    #     0  1  2  T  4  5      T is a tombstone: 4 and 5 are live, and the next number is 6
    #
    # From the end: everything up to the last tombstone is deleted.
    versions = list(stored.versions)
    for at in range(len(versions) - 1, -1, -1):
        if versions[at].info.is_deleted:
            return versions[at + 1 :]
    return versions


def _judged(versions: list[StoredSchema]) -> list[Version]:
    return [
        Version(each.version, Schema(each.info.type, each.info.definition, each.info.properties))
        for each in versions
    ]


# What ``put`` does, and what a crash leaves:
#
#     check the definition ─▶ lock ─▶ load ─▶ compare ─▶ write a ledger ─▶ compare-and-set the node
#                                     ▲                   a ledger that     │ the node was changed
#                                     └── again ───────── no node names ◀───┘
class SchemaRegistry:
    """The registry of one broker.

    All methods raise ``StorageUnavailable`` and ``CoordinationError`` besides what they say.
    """

    def __init__(self, storage: SchemaStorage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        # For metrics.
        self.counts = SchemaCounts(clock)
        # One lock for each schema that is being changed here: of many producers that come with the
        # same new schema, one stores it. Weak values: a lock goes when the last task that holds it,
        # or waits for it, has ended.
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # Reading

    async def versions(self, topic: TopicName) -> list[StoredSchema]:
        """The versions since the last deletion, the oldest first."""
        with self.counts.timed(Operation.GET, str(topic.namespace)):
            return live(await self._storage.load(schema_id(topic)))

    async def version(self, topic: TopicName, number: int | None = None) -> StoredSchema:
        """The version ``number``, or the newest one. Raises ``SchemaNotFound``."""
        # Tombstones have numbers as well, so that the number is no index. A number from before the
        # last tombstone is not found either.
        versions = await self.versions(topic)
        found = [each for each in versions if number in {None, each.version}]
        if not found:
            raise SchemaNotFound
        return found[-1]

    async def locator(self, topic: TopicName) -> SchemaLocator | None:
        """The content of the topic's node in ZooKeeper."""
        found = await self._storage.locator(schema_id(topic))
        return None if found is None else found[0]

    async def find(self, topic: TopicName, schema: Schema) -> int | None:
        """The number of the version that equals ``schema``. Raises ``InvalidSchema``."""
        return version_of(_judged(await self.versions(topic)), schema)

    async def check(
        self,
        topic: TopicName,
        schema: Schema,
        strategy: SchemaStrategy,
        *,
        of_consumer: bool = False,
    ) -> None:
        """Raise ``InvalidSchema`` or ``IncompatibleSchema`` unless it may be the next version, or
        with ``of_consumer`` unless a consumer may read with it."""
        check_definition(schema)
        # Without the lock: what is stored meanwhile was compared by ``put``, and a consumer stores
        # nothing.
        versions = _judged(await self.versions(topic))
        with self.counts.compared(str(topic.namespace)):
            if of_consumer:
                check_consumer(versions, schema, strategy)
            else:
                check_following(versions, schema, strategy)

    # Changing

    async def put(self, topic: TopicName, schema: Schema, strategy: SchemaStrategy) -> int:
        """The number of the version that equals ``schema``, which is stored if there is none and
        ``strategy`` allows it. Raises ``InvalidSchema``, ``IncompatibleSchema``."""
        # Before the lock is taken: the work on a definition does not hold up other producers. Up to
        # 10 ms for a definition of the largest size.
        check_definition(schema)

        # May run several times, each time with what is stored then: it must decide anew, and keep
        # nothing.
        async def attempt(stored: StoredSchemas) -> int:
            versions = _judged(live(stored))
            number = version_of(versions, schema)
            # The usual case: producers come with a schema that is known. Whatever the strategy: a
            # schema that equals an old version is that version.
            if number is not None:
                return number
            if versions:
                with self.counts.compared(str(topic.namespace)):
                    check_following(versions, schema, strategy)
            return await self._append(stored, topic, schema)

        with self.counts.timed(Operation.PUT, str(topic.namespace)):
            return await self._change(topic, attempt)

    async def delete(self, topic: TopicName) -> int:
        """Store a tombstone, and return its number; later versions continue the numbers. As in
        upstream, a topic without a schema gets one, too."""
        append = partial(
            self._append, topic=topic, schema=Schema(SchemaType.NONE), is_tombstone=True
        )
        with self.counts.timed(Operation.DELETE, str(topic.namespace)):
            return await self._change(topic, append)

    async def _change(
        self, topic: TopicName, attempt: Callable[[StoredSchemas], Awaitable[int]]
    ) -> int:
        """Repeat ``attempt`` with the stored versions until no other broker has changed them
        meanwhile."""
        # The lock spares the producers of this broker retries; between brokers the version of the
        # node decides.
        key = schema_id(topic)
        # No await between the look and the entry, so that two tasks get the same lock.
        lock = self._writing.get(key)
        if lock is None:
            lock = self._writing[key] = asyncio.Lock()
        async with lock:
            for _ in range(ROUNDS_MAX):
                try:
                    return await attempt(await self._storage.load(key))
                except SchemasChanged:
                    continue
        # Clients retry this error, and not one that says that the schema is incompatible.
        raise ServiceNotReady(f"the schemas of {topic} keep changing while they are changed")

    async def _append(
        self,
        stored: StoredSchemas,
        topic: TopicName,
        schema: Schema,
        *,
        is_tombstone: bool = False,
    ) -> int:
        info = SchemaInfo(
            schema_id(topic),
            schema.type,
            schema.definition,
            self._clock.wall_ms(),
            is_deleted=is_tombstone,
            properties=schema.properties,
        )
        # Upstream's hash of a tombstone is empty.
        digest = b"" if is_tombstone else hashlib.sha256(schema.definition).digest()
        return await self._storage.append(stored, info, digest)

    async def delete_all(self, topic: TopicName) -> bool:
        """Delete all versions for good, and begin again with the numbers; False if there were none.

        The topic is deleted, or an operator wants it.
        """
        with self.counts.timed(Operation.DELETE, str(topic.namespace)):
            return await self._storage.delete(schema_id(topic))

    async def delete_namespace(self, namespace: NamespaceName) -> None:
        """Delete schemas that were uploaded without a topic: their namespace is deleted."""
        await self._storage.delete_namespace(str(namespace))
