"""Values of the messages of one topic: each read by the schema that it was written with.

Most schemas read every version alike. Avro, pairs of it, and the schema that is the topic's own
need the writer's: the broker is asked for each version once, while what came waits in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from geminga.messages import Message
from geminga.schemas.key_value import KeyValueEncoding, KeyValueSchema, join
from geminga.schemas.schema import Schema, SchemaInfo, info_of
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import SchemaType

# Readers of versions that are kept: a topic with more has each message in a version of its own.
VERSIONS_KEPT_MAX = 1_000

Read = Callable[[bytes], Any]


@runtime_checkable
class VersionedSchema(Protocol):
    """A schema that reads what others wrote, if it knows their schema."""

    def reader_of(self, writer: SchemaInfo, /) -> Read:
        """Reads what was written with ``writer``; raises ``ValueError`` for one that is none."""
        ...


@dataclass(frozen=True, slots=True)
class _Version:
    """How messages of one version of the topic's schema are read."""

    read: Read
    is_separated: bool = False
    schema: SchemaInfo | None = None


class ValueReader:
    """Makes values by ``schema``, and knows the versions that it was told of."""

    def __init__(self, schema: Schema[Any]) -> None:
        self._versioned: object = schema
        info = schema.schema_info
        if info is not None and info.type is SchemaType.AUTO_CONSUME:
            info = None  # a message that has no schema
        self._own = _Version(schema.decode, _is_separated(schema), info)
        self._versions: dict[bytes, _Version] = {}

    def wants(self, version: bytes | None) -> bool:
        """Whether messages of that version can only be read once it is ``learn``\\ ed."""
        return (
            version is not None
            and version not in self._versions
            and isinstance(self._versioned, VersionedSchema)
        )

    def learn(self, version: bytes, told: api.Schema) -> None:
        """That version of the topic's schema is what a broker ``told``."""
        try:
            writer = info_of(told)
            assert isinstance(self._versioned, VersionedSchema)
            read = self._versioned.reader_of(writer)
        except (ValueError, RecursionError) as wrong:  # one that is nested too deep
            self.refuse(version, wrong)
        else:
            encoding = writer.properties.get("kv.encoding.type")
            is_separated = encoding == KeyValueEncoding.SEPARATED
            self._keep(version, _Version(read, is_separated, writer))

    def refuse(self, version: bytes, error: Exception) -> None:
        """Messages of that version cannot be read, for ``error``: each raises it for its value."""

        def refuse(_: bytes) -> Any:  # noqa: ANN401 - as all that read
            raise ValueError(f"its schema, version {version.hex()}, is of no use") from error

        self._keep(version, _Version(refuse))

    def _keep(self, version: bytes, known: _Version) -> None:
        if len(self._versions) >= VERSIONS_KEPT_MAX:
            del self._versions[next(iter(self._versions))]
        self._versions[version] = known

    def value(self, message: Message[Any]) -> Any:  # noqa: ANN401 - whatever the schema makes
        """The message's value; raises what the schema raises."""
        known = self._version(message)
        if known.is_separated:
            return known.read(join(message.key_bytes, None if message.is_null else message.data))
        return None if message.is_null else known.read(message.data)

    def schema(self, message: Message[Any]) -> SchemaInfo | None:
        """The schema by which the value is read; ``None`` if none is needed, or it is not known."""
        return self._version(message).schema

    def _version(self, message: Message[Any]) -> _Version:
        version = message.schema_version
        known = None if version is None else self._versions.get(version)
        return known or self._own


def _is_separated(schema: object) -> bool:
    return isinstance(schema, KeyValueSchema) and schema.encoding is KeyValueEncoding.SEPARATED
