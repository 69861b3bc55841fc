"""The schemas of a topic: a node in ZooKeeper names the ledger entries that contain them.

Facts: ``BookkeeperSchemaStorage`` and ``SchemaRegistryServiceImpl`` of Apache Pulsar; the messages
are those of SchemaStorageFormat.proto and SchemaRegistryFormat.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self, cast

from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.records import schemas_pb2
from geminga_protocol.records.encodings.protobuf_records import parse_message
from geminga_protocol.records.topics.managed_ledger import Position

SCHEMAS_PATH = "/schemas"

# How errors name the records.
_LOCATOR = "schema locator"
_ENTRY = "schema entry"
_INFO = "schema info"

# The position of a first version in its own entry: the entry does not exist yet when it is encoded.
NO_POSITION: Position = (-1, -1)
# SchemaInfo numbers the types from 1 on, commands number them from 0 on, both in the same order.
_STORED_TYPE_OFFSET = 1


#     /schemas/TENANT/NAMESPACE/TOPIC     SchemaLocator: newest, versions
#         │ position of a version
#         ▼
#     an entry of a ledger                SchemaEntry: schema (an encoded SchemaInfo), versions
#
# An entry never changes. Deleting a schema adds a version that is a tombstone.
@dataclass(frozen=True, slots=True)
class SchemaIndex:
    """One version: the entry that contains it, and the SHA-256 of its schema data."""

    version: int
    position: Position
    # By it a schema that is registered again is found without reading its entry.
    hash: bytes


@dataclass(frozen=True, slots=True)
class SchemaLocator:
    """A topic's node: the newest version, and every version so far (the newest included)."""

    newest: SchemaIndex
    versions: tuple[SchemaIndex, ...]

    def encode(self) -> bytes:
        """The bytes of the node."""
        return schemas_pb2.SchemaLocator(
            info=_message_of(self.newest), index=map(_message_of, self.versions)
        ).SerializeToString()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read the node. Raises ``MalformedRecord``."""
        message = parse_message(schemas_pb2.SchemaLocator, value, _LOCATOR)
        return cls(_index_of(message.info), tuple(map(_index_of, message.index)))


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """One entry of a schema ledger: a version, and the index of the earlier versions."""

    # An encoded ``SchemaInfo``.
    schema: bytes
    versions: tuple[SchemaIndex, ...]

    def encode(self) -> bytes:
        """The payload of the entry."""
        return schemas_pb2.SchemaEntry(
            # Earlier versions are named in each entry: the newest entry alone leads to all of them.
            schema_data=self.schema,
            index=map(_message_of, self.versions),
        ).SerializeToString()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read an entry's payload. Raises ``MalformedRecord``."""
        message = parse_message(schemas_pb2.SchemaEntry, payload, _ENTRY)
        return cls(message.schema_data, tuple(map(_index_of, message.index)))


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """One version of a topic's schema."""

    # ``tenant/namespace/encoded-topic``.
    schema_id: str
    type: SchemaType
    # In the form of the type: for AVRO, JSON and PROTOBUF an Avro schema in JSON.
    definition: bytes
    # Unix time of the registration, and the role that registered the version.
    created_ms: int
    user: str = ""
    # A tombstone: with this version the schema was deleted, the versions before it count no more.
    is_deleted: bool = False
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    def encode(self) -> bytes:
        """The bytes of ``SchemaEntry.schema``."""
        number = cast(
            "schemas_pb2.SchemaInfo.SchemaType.ValueType", self.type + _STORED_TYPE_OFFSET
        )
        return schemas_pb2.SchemaInfo(
            schema_id=self.schema_id,
            user=self.user,
            type=number,
            schema=self.definition,
            timestamp=self.created_ms,
            deleted=self.is_deleted,
            props=[
                schemas_pb2.SchemaInfo.KeyValuePair(key=key, value=value)
                for key, value in self.properties.items()
            ],
        ).SerializeToString()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read the bytes of ``SchemaEntry.schema``. Raises ``MalformedRecord``."""
        message = parse_message(schemas_pb2.SchemaInfo, value, _INFO)
        return cls(
            message.schema_id,
            # Protobuf has no member for an unknown number in proto2: it leaves the required field
            # unset, so ``parse_message`` has refused such an entry.
            SchemaType(message.type - _STORED_TYPE_OFFSET),
            message.schema,
            message.timestamp,
            message.user,
            message.deleted,
            {pair.key: pair.value for pair in message.props},
        )


def schema_path(schema_id: str) -> str:
    """The node of a topic's schemas; ``schema_id`` is ``tenant/namespace/encoded-topic``."""
    return f"{SCHEMAS_PATH}/{schema_id}"


def _message_of(index: SchemaIndex) -> schemas_pb2.IndexEntry:
    ledger_id, entry_id = index.position
    return schemas_pb2.IndexEntry(
        version=index.version,
        position=schemas_pb2.PositionInfo(ledgerId=ledger_id, entryId=entry_id),
        hash=index.hash,
    )


def _index_of(message: schemas_pb2.IndexEntry) -> SchemaIndex:
    position = message.position.ledgerId, message.position.entryId
    return SchemaIndex(message.version, position, message.hash)
