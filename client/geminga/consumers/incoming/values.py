"""Values of the messages of one topic: each read by the schema that it was written with.

Most schemas read every version alike. Avro, key-value pairs of it, and ``AutoConsumeSchema`` need
the writer's schema: a broker is asked for each version once, while its messages wait in their
order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from geminga.messages import Message
from geminga.schemas.key_value import KeyValueEncoding, KeyValueSchema, join
from geminga.schemas.schema import Schema, SchemaInfo, info_of
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import SchemaType

# So many versions are kept. A topic has a few: one with more has a version for each message, and
# keeping them would not help.
VERSIONS_KEPT_MAX = 1_000

Read = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class _Version:
    """How messages of one version of the topic's schema are read."""

    read: Read
    # Are they pairs whose keys are in the metadata?
    is_separated: bool = False
    # What ``Message.schema`` gives.
    schema: SchemaInfo | None = None


class ValueReader:
    """Reads values by ``schema``, and by the versions of the topic's schema that it has learned."""

    def __init__(self, schema: Schema[Any]) -> None:
        # Of a schema that needs the writer's to read a payload: makes of that what reads it, or
        # raises ``ValueError`` where that cannot be used.
        self._reader_of: Callable[[SchemaInfo], Read] | None = getattr(schema, "reader_of", None)
        info = schema.schema_info
        if info is not None and info.type is SchemaType.AUTO_CONSUME:
            info = None  # the schema of a message that was written without one
        kind: object = schema
        is_separated = (
            isinstance(kind, KeyValueSchema) and kind.encoding is KeyValueEncoding.SEPARATED
        )
        # For messages without a version, and for all if the schema needs no writer's.
        self._own = _Version(schema.decode, is_separated, info)
        self._versions: dict[bytes, _Version] = {}

    def wants(self, version: bytes | None) -> bool:
        """Must this version be learned before its messages can be read?"""
        return version is not None and version not in self._versions and self._reader_of is not None

    def learn(self, version: bytes, told: api.Schema) -> None:
        """Learn a version of the topic's schema, as a broker ``told`` it."""
        try:
            writer = info_of(told)
            assert self._reader_of is not None, "no version is wanted"
            read = self._reader_of(writer)
        except (ValueError, RecursionError) as wrong:  # the latter for one that is nested too deep
            self.refuse(version, wrong)
        else:
            # The writer decides where the key is, whatever the reader's schema says:
            # ``kv.encoding.type`` is upstream's property (``KeyValueSchemaInfo``).
            encoding = writer.properties.get("kv.encoding.type")
            is_separated = encoding == KeyValueEncoding.SEPARATED
            self._keep(version, _Version(read, is_separated, writer))

    def refuse(self, version: bytes, error: Exception) -> None:
        """Have the values of all messages of a version raise ``ValueError``, for ``error``."""

        def refuse(_: bytes) -> Any:  # noqa: ANN401 - as all that read
            raise ValueError(f"its schema, version {version.hex()}, is of no use") from error

        self._keep(version, _Version(refuse))

    def _keep(self, version: bytes, known: _Version) -> None:
        if len(self._versions) >= VERSIONS_KEPT_MAX:
            # The oldest. A message of that version that is still in the queue is then read by the
            # schema's own definition.
            del self._versions[next(iter(self._versions))]
        self._versions[version] = known

    # Called from ``Message.value``, when the user asks for it: a value that cannot be read is an
    # error there, and costs no other message anything.
    def value(self, message: Message[Any]) -> Any:  # noqa: ANN401 - whatever the schema makes
        """The message's value; raises what the schema raises."""
        known = self._version(message)
        if known.is_separated:
            return known.read(join(message.key_bytes, None if message.is_null else message.data))
        return None if message.is_null else known.read(message.data)

    def schema(self, message: Message[Any]) -> SchemaInfo | None:
        """The schema by which the message's value is read; ``None`` for bytes."""
        return self._version(message).schema

    def _version(self, message: Message[Any]) -> _Version:
        version = message.schema_version
        known = None if version is None else self._versions.get(version)
        # A version that was not learned is read by the schema's own definition: most schemas need
        # no other.
        return known or self._own
