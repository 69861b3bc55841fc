"""Values of the messages of one topic: each read by the schema that it was written with.

Most schemas read every version alike. Avro, pairs of it, and the schema that is the topic's own
need the writer's: the broker is asked for each version once, while what came waits in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from geminga.messages import Message
from geminga.schemas.key_value import KeyValueEncoding, KeyValueSchema, join
from geminga.schemas.schema import Schema, SchemaInfo, info_of
from geminga_protocol.pulsar import api_pb2 as api

# Readers of versions that are kept: a topic with more has each message in a version of its own.
VERSIONS_KEPT_MAX = 1_000

Read = Callable[[bytes], Any]


@runtime_checkable
class VersionedSchema(Protocol):
    """A schema that reads what others wrote, if it knows their schema."""

    def reader_of(self, writer: SchemaInfo, /) -> Read:
        """Reads what was written with ``writer``; raises ``ValueError`` for one that is none."""
        ...


class ValueReader:
    """Makes values by ``schema``, and knows the versions that it was told of."""

    def __init__(self, schema: Schema[Any]) -> None:
        self._schema = schema
        self._versioned: object = schema
        self._is_separated = _is_separated(schema)
        self._versions: dict[bytes, tuple[Read, bool]] = {}

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
        except ValueError as wrong:
            self.refuse(version, wrong)
        else:
            encoding = writer.properties.get("kv.encoding.type")
            self._keep(version, read, is_separated=encoding == KeyValueEncoding.SEPARATED)

    def refuse(self, version: bytes, error: Exception) -> None:
        """Messages of that version cannot be read, for ``error``: each raises it for its value."""

        def refuse(_: bytes) -> Any:  # noqa: ANN401 - as all that read
            raise ValueError(f"its schema, version {version.hex()}, is of no use") from error

        self._keep(version, refuse, is_separated=False)

    def _keep(self, version: bytes, read: Read, *, is_separated: bool) -> None:
        if len(self._versions) >= VERSIONS_KEPT_MAX:
            del self._versions[next(iter(self._versions))]
        self._versions[version] = read, is_separated

    def value(self, message: Message[Any]) -> Any:  # noqa: ANN401 - whatever the schema makes
        """The message's value; raises what the schema raises."""
        version = message.schema_version
        known = None if version is None else self._versions.get(version)
        read, is_separated = known or (self._schema.decode, self._is_separated)
        if is_separated:
            return read(join(message.key_bytes, None if message.is_null else message.data))
        return None if message.is_null else read(message.data)


def _is_separated(schema: object) -> bool:
    return isinstance(schema, KeyValueSchema) and schema.encoding is KeyValueEncoding.SEPARATED
