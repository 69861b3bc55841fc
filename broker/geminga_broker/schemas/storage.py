"""Where the versions of a schema are kept: a node in ZooKeeper names a ledger for each.

Facts: ``BookkeeperSchemaStorage`` of Apache Pulsar 4.0, whose brokers read what is written here.
The order of writes: first the ledger, then the node by compare-and-set. A reader never finds a
version without its entry; a crash between the two leaves a ledger that nothing names, as with
upstream's. Deletions take the ledgers first as well: what is left of one that was cut short is
named by the node until the next one.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass

from geminga_broker.errors import StorageUnavailable
from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.writing.confirmation_waiter import ConfirmationWaiter
from geminga_ledger import LedgerError, Ledgers, NoSuchEntry, NoSuchLedger
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.managed_ledger import Position
from geminga_protocol.records.schemas import (
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

# Every producer with a schema is compared with all versions; entries never change, so that those
# read last are kept: up to 8 MiB of definitions, and so many.
KEPT_BYTES_MAX = 8 * 1024 * 1024
KEPT_ENTRIES_MAX = 10_000
# Only a version that is stored between a read and a write makes a round fail.
DELETE_ROUNDS_MAX = 16


class SchemasChanged(StorageUnavailable):
    """Another broker wrote the schemas meanwhile: read them again."""


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A version as it is stored; ``info.is_deleted`` for a tombstone."""

    version: int
    info: SchemaInfo


@dataclass(frozen=True, slots=True)
class StoredSchemas:
    """All versions of a topic's schema that can be read, the oldest first.

    ``locator`` is None, and ``node_version`` -1, where the topic has none.
    """

    versions: tuple[StoredSchema, ...] = ()
    locator: SchemaLocator | None = None
    node_version: int = -1


class _Kept:
    """Entries that were read last, bounded in number and bytes."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Position, SchemaInfo] = OrderedDict()
        self._bytes = 0

    def get(self, position: Position) -> SchemaInfo | None:
        found = self._entries.get(position)
        if found is not None:
            self._entries.move_to_end(position)
        return found

    def put(self, position: Position, info: SchemaInfo) -> None:
        if position in self._entries:
            return
        self._entries[position] = info
        self._bytes += len(info.definition)
        while self._bytes > KEPT_BYTES_MAX or len(self._entries) > KEPT_ENTRIES_MAX:
            self._bytes -= len(self._entries.popitem(last=False)[1].definition)


class SchemaStorage:
    """The schemas of all topics. A schema's id is ``tenant/namespace/encoded-topic``.

    All methods raise ``StorageUnavailable`` and ``CoordinationError``.
    """

    def __init__(
        self, coordination: Coordination, ledgers: Ledgers, config: ManagedLedgerConfig
    ) -> None:
        self._coordination = coordination
        self._ledgers = ledgers
        self._config = config
        self._kept = _Kept()

    async def locator(self, schema_id: str) -> tuple[SchemaLocator, int] | None:
        """What stands in the node, and the node's version; None where the topic has no schema."""
        try:
            value, stat = await self._coordination.get(schema_path(schema_id))
        except NodeMissing:
            return None
        return SchemaLocator.decode(value), stat.version

    async def load(self, schema_id: str) -> StoredSchemas:
        """All versions. One whose ledger is lost, or whose entry is damaged, is left out."""
        found = await self.locator(schema_id)
        if found is None:
            return StoredSchemas()
        locator, node_version = found
        loaded = [await self._version(schema_id, each) for each in locator.versions]
        versions = tuple(each for each in loaded if each is not None)
        return StoredSchemas(versions, locator, node_version)

    async def _version(self, schema_id: str, index: SchemaIndex) -> StoredSchema | None:
        try:
            return StoredSchema(index.version, await self._read(index.position))
        except (NoSuchLedger, NoSuchEntry, MalformedRecord):
            # As upstream: without the rest of its history the topic goes on.
            log.exception(
                "schema version lost",
                extra={"schema": schema_id, "version": index.version},
            )
            return None
        except LedgerError as error:
            raise StorageUnavailable(str(error)) from error

    async def _read(self, position: Position) -> SchemaInfo:
        info = self._kept.get(position)
        if info is None:
            ledger_id, entry_id = position
            reader = await self._ledgers.open(ledger_id, recover=True)
            entries = await reader.read(entry_id, entry_id, bytes_max=self._config.read_bytes_max)
            info = SchemaInfo.decode(SchemaEntry.decode(entries[0]).schema)
            self._kept.put(position, info)
        return info

    async def append(self, present: StoredSchemas, info: SchemaInfo, digest: bytes) -> int:
        """Store ``info`` as the version after those of ``present``; returns its number.

        ``digest`` is the hash that the index shows. Raises ``SchemasChanged`` where another version
        was stored, or all were deleted, since ``present`` was read.
        """
        schema_id, locator = info.schema_id, present.locator
        earlier = () if locator is None else locator.versions
        number = 0 if locator is None else locator.newest.version + 1
        shown = earlier or (SchemaIndex(0, NO_POSITION, digest),)
        position = await self._write(schema_id, SchemaEntry(info.encode(), shown).encode())
        index = SchemaIndex(number, position, digest)
        changed = SchemaLocator(index, (*earlier, index)).encode()
        path = schema_path(schema_id)
        try:
            if locator is None:
                await self._coordination.create(path, changed, make_parents=True)
            else:
                await self._coordination.set(path, changed, version=present.node_version)
        except (NodeExists, NodeMissing, VersionMismatch):
            await self._drop_ledger(schema_id, position[0])
            raise SchemasChanged(f"the schemas of {schema_id} keep changing") from None
        self._kept.put(position, info)
        return number

    async def _write(self, schema_id: str, payload: bytes) -> Position:
        """Put an entry into a ledger of its own."""
        config, writes = self._config, ConfirmationWaiter()
        try:
            writer = await self._ledgers.create(
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
            try:
                entry_id = writer.append(payload)
                await writes.wait_for(entry_id)
                await writer.close()
            except BaseException:
                writer.detach()
                raise
        except LedgerError as error:
            raise StorageUnavailable(str(error)) from error
        return writer.ledger_id, entry_id

    async def delete(self, schema_id: str) -> bool:
        """Delete all versions and the node; whether there were any.

        First the ledgers, as upstream: what a crash leaves is a node that still names them, by
        which the next deletion, of the schema, its topic or its namespace, finds what is left.
        Until then their versions are left out, as all that are lost.
        """
        for _ in range(DELETE_ROUNDS_MAX):
            found = await self.locator(schema_id)
            if found is None:
                return False
            locator, node_version = found
            try:
                for each in locator.versions:
                    await self._ledgers.delete(each.position[0])
                await self._coordination.delete(schema_path(schema_id), version=node_version)
            except NodeMissing:
                return True  # another broker deleted the same ledgers, and then the node
            except VersionMismatch:
                continue  # a version was added meanwhile: its ledger goes, too
            return True
        raise SchemasChanged(f"the schemas of {schema_id} keep changing while they are deleted")

    async def _drop_ledger(self, schema_id: str, ledger_id: int) -> None:
        """Delete a ledger that nothing names; one that cannot be deleted is left, and logged."""
        try:
            await self._ledgers.delete(ledger_id)
        except CoordinationError as error:
            log.warning(
                "schema ledger left",
                extra={"schema": schema_id, "ledger": ledger_id, "error": str(error)},
            )

    async def names(self, namespace: str) -> list[str]:
        """The ids of the schemas of a namespace, ``tenant/name``."""
        try:
            names = await self._coordination.children(schema_path(namespace))
        except NodeMissing:
            return []
        return [f"{namespace}/{each}" for each in names]

    async def forget_namespace(self, namespace: str) -> None:
        """Delete the node above a namespace's schemas, if there is none."""
        with suppress(NodeMissing):
            await self._coordination.delete(schema_path(namespace))
