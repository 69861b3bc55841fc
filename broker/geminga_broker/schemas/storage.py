"""Stores the versions of schemas: each in a ledger of its own, which a node in ZooKeeper names.

Facts: ``BookkeeperSchemaStorage`` of Apache Pulsar 4.0, whose brokers read what is written here.

A write creates the ledger first, then changes the node by compare-and-set. So a reader never finds
a version without its entry; a crash between the two leaves a ledger that no node names, as in
upstream. A deletion deletes the ledgers first as well: after a crash, the node still names those
that are left, and the next deletion finds them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field

from geminga_broker.errors import StorageUnavailable
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.writing.confirmation_waiter import ConfirmationWaiter
from geminga_ledger import LedgerError, Ledgers, NoSuchEntry, NoSuchLedger
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.topics.managed_ledger import Position
from geminga_protocol.records.topics.schemas import (
    NO_POSITION,
    SchemaEntry,
    SchemaIndex,
    SchemaInfo,
    SchemaLocator,
    schema_path,
)
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeExists,
    NodeMissing,
    VersionMismatch,
)

log = logging.getLogger(__name__)

# The schema of every producer is compared with all versions. Entries never change, so that the most
# recently used ones are cached, bounded by the bytes of their definitions and by their number. 8
# MiB hold some thousand usual definitions, of a few kilobytes each.
CACHED_BYTES_MAX = 8 * 1024 * 1024
CACHED_ENTRIES_MAX = 10_000
# A round fails only if a version is stored between its read and its write.
DELETE_ROUNDS_MAX = 16


class SchemasChanged(StorageUnavailable):
    """Another broker changed the schemas meanwhile: read them again."""


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A stored version."""

    version: int
    # With ``is_deleted`` for a tombstone. As it stands in the entry; the number stands in the index
    # of the node.
    info: SchemaInfo


@dataclass(frozen=True, slots=True)
class StoredSchemas:
    """All versions of a topic's schema that can be read, the oldest first."""

    versions: tuple[StoredSchema, ...] = ()
    # The content and the version of the node; None and -1 if the topic has no schema.
    locator: SchemaLocator | None = None
    node_version: int = -1


@dataclass(slots=True, eq=False)
class _EntryCache:
    """The most recently used entries, bounded in number and bytes."""

    _entries: OrderedDict[Position, SchemaInfo] = field(default_factory=OrderedDict, init=False)
    # The size of all definitions in the cache. Of definitions only: they come from clients, the
    # rest of an entry is small.
    _bytes: int = field(default=0, init=False)

    def get(self, position: Position) -> SchemaInfo | None:
        # Keyed by ledger and entry id, which are never used again: an entry of the cache cannot be
        # out of date.
        found = self._entries.get(position)
        if found is not None:
            self._entries.move_to_end(position)
        return found

    def put(self, position: Position, info: SchemaInfo) -> None:
        # Two loads at once may read the same entry.
        if position in self._entries:
            return
        self._entries[position] = info
        self._bytes += len(info.definition)
        while self._bytes > CACHED_BYTES_MAX or len(self._entries) > CACHED_ENTRIES_MAX:
            self._bytes -= len(self._entries.popitem(last=False)[1].definition)


@dataclass(slots=True, eq=False)
class SchemaStorage:
    """The schemas of all topics. A schema's id is ``tenant/namespace/encoded-topic``.

    All methods raise ``StorageUnavailable`` and ``CoordinationError``.
    """

    coordination: Coordination
    ledgers: Ledgers
    # Quorums of new ledgers, and the size of reads.
    config: ManagedLedgerConfig
    _cache: _EntryCache = field(default_factory=_EntryCache, init=False)

    async def locator(self, schema_id: str) -> tuple[SchemaLocator, int] | None:
        """The content of the node, and its version; None if the topic has no schema."""
        try:
            value, stat = await self.coordination.get(schema_path(schema_id))
        except NodeMissing:
            return None
        # The version goes with the content: a later compare-and-set succeeds only for the content
        # that was read.
        return SchemaLocator.decode(value), stat.version

    async def load(self, schema_id: str) -> StoredSchemas:
        """All versions, without those whose ledger is lost or whose entry is damaged."""
        found = await self.locator(schema_id)
        if found is None:
            return StoredSchemas()
        locator, node_version = found
        versions: list[StoredSchema] = []
        # One after the other. Mostly all are in the cache; a topic has few versions.
        for index in locator.versions:
            try:
                info = await self._read(index.position)
            except (NoSuchLedger, NoSuchEntry, MalformedRecord):
                # As in upstream: the topic works without the rest of its history. Its number stays
                # in the node, so that it is not given again.
                log.exception(
                    "schema version lost",
                    extra={"schema": schema_id, "version": index.version},
                )
            except LedgerError as error:
                raise StorageUnavailable(str(error)) from error
            else:
                versions.append(StoredSchema(index.version, info))
        return StoredSchemas(tuple(versions), locator, node_version)

    async def _read(self, position: Position) -> SchemaInfo:
        info = self._cache.get(position)
        if info is None:
            ledger_id, entry_id = position
            # Recover it: the broker that wrote it may have crashed before it closed the ledger.
            reader = await self.ledgers.open(ledger_id, recover=True)
            entries = await reader.read(entry_id, entry_id, bytes_max=self.config.read_bytes_max)
            info = SchemaInfo.decode(SchemaEntry.decode(entries[0]).schema)
            self._cache.put(position, info)
        return info

    async def append(self, present: StoredSchemas, info: SchemaInfo, digest: bytes) -> int:
        """Store ``info`` as the version after those of ``present``, and return its number.

        ``digest`` is its hash in the index. Raises ``SchemasChanged`` if another version was
        stored, or all were deleted, since ``present`` was read.
        """
        schema_id, locator = info.schema_id, present.locator
        earlier = () if locator is None else locator.versions
        # Tombstones have numbers, too; ``delete`` lets them begin again. Of ``present``, as it was
        # read: if it is out of date, the compare-and-set below fails.
        number = 0 if locator is None else locator.newest.version + 1
        # The entry repeats the index as it was before; as in upstream, the first one has a
        # placeholder.
        shown = earlier or (SchemaIndex(0, NO_POSITION, digest),)
        # First the ledger: a node that names a ledger without its entry would be a lost version for
        # readers.
        position = await self._write(schema_id, SchemaEntry(info.encode(), shown).encode())
        index = SchemaIndex(number, position, digest)
        changed = SchemaLocator(index, (*earlier, index)).encode()
        # The compare-and-set: a new node must not exist, a present one must have the version read.
        path = schema_path(schema_id)
        try:
            if locator is None:
                await self.coordination.create(path, changed, make_parents=True)
            else:
                await self.coordination.set(path, changed, version=present.node_version)
        except (NodeExists, NodeMissing, VersionMismatch):
            # The ledger that no node names goes again; if that fails, it is left, and logged. Any
            # other error leaves in doubt whether the node was changed, so the ledger has to stay:
            # if the node names it, the client's next attempt finds its schema there.
            try:
                await self.ledgers.delete(position[0])
            except CoordinationError as error:
                log.warning(
                    "schema ledger left",
                    extra={"schema": schema_id, "ledger": position[0], "error": str(error)},
                )
            raise SchemasChanged(f"the schemas of {schema_id} keep changing") from None
        self._cache.put(position, info)
        return number

    async def _write(self, schema_id: str, payload: bytes) -> Position:
        """Write one entry into a new ledger, and close it."""
        config, writes = self.config, ConfirmationWaiter()
        try:
            writer = await self.ledgers.create(
                ensemble_size=config.ensemble_size,
                write_quorum=config.write_quorum,
                ack_quorum=config.ack_quorum,
                custom={
                    "pulsar/schemaId": schema_id.encode(),
                    "application": b"pulsar",
                    "component": b"schema",
                },
                listener=writes,
            )
            # Closed, so that readers need not recover it.
            try:
                entry_id = writer.append(payload)
                # Durable before the node names it.
                await writes.wait_for(entry_id)
                await writer.close()
            except BaseException:
                writer.detach()
                raise
        except LedgerError as error:
            raise StorageUnavailable(str(error)) from error
        return writer.ledger_id, entry_id

    async def delete(self, schema_id: str) -> bool:
        """Delete all versions and the node; False if there were none.

        First the ledgers, as in upstream: after a crash, the node still names those that are left.
        The next deletion, of the schema, its topic or its namespace, finds them. Until then
        ``load`` leaves out the versions that are lost.
        """
        for _ in range(DELETE_ROUNDS_MAX):
            found = await self.locator(schema_id)
            if found is None:
                return False
            locator, node_version = found
            try:
                # A ledger that is gone already is no error, so that a deletion may be repeated.
                for each in locator.versions:
                    await self.ledgers.delete(each.position[0])
                await self.coordination.delete(schema_path(schema_id), version=node_version)
            except NodeMissing:
                return True  # another broker has deleted the same ledgers, and then the node
            except VersionMismatch:
                continue  # a version was added meanwhile: delete its ledger as well
            return True
        raise SchemasChanged(f"the schemas of {schema_id} keep changing while they are deleted")

    async def delete_namespace(self, namespace: str) -> None:
        """Delete all schemas of a namespace, ``tenant/name``, and their parent node."""
        with suppress(NodeMissing):
            # A schema that is stored while this runs makes the deletion of the parent fail, which
            # is raised.
            for name in await self.coordination.children(schema_path(namespace)):
                await self.delete(f"{namespace}/{name}")
            await self.coordination.delete(schema_path(namespace))
