"""What a schema is for producers and consumers, and the one that leaves bytes as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import key_values
from geminga_protocol.pulsar.enums import SchemaType

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema as the broker's registry has it (``Schema``, PulsarApi.proto).

    - ``type``: how values are encoded.
    - ``name``, ``properties``: for other programs that read the registry.
    - ``definition``: the bytes that define values, JSON for most types; empty for primitive types.
    """

    type: SchemaType
    name: str = ""
    definition: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


def info_of(proto: api.Schema) -> SchemaInfo:
    """The schema that a broker sent; raises ``ValueError`` for an unknown type."""
    properties = {pair.key: pair.value for pair in proto.properties}
    # The numbers of ``SchemaType`` are those of the protocol.
    return SchemaInfo(SchemaType(proto.type), proto.name, proto.schema_data, properties)


def proto_of(info: SchemaInfo) -> api.Schema:
    """The schema as a broker is sent it."""
    return api.Schema(
        name=info.name,
        type=api.Schema.Type.ValueType(info.type),
        schema_data=info.definition,
        properties=key_values(info.properties),
    )


# A fourth member is looked for, and is no part of the protocol: ``reader_of(writer)``, of schemas
# that read a payload by the schema that it was written with (``ValueReader``). A schema without it
# reads the payloads of every version of the topic's schema with ``decode``.
class Schema(Protocol[ValueT]):
    """Turns values into the payloads of messages, and back.

    A class of your own with these three members is a schema, too.
    """

    @property
    def schema_info(self) -> SchemaInfo | None:
        """What the topic's schema must be compatible with; ``None`` where any will do."""
        ...

    def encode(self, value: ValueT, /) -> bytes:
        """Return the payload of a message with this value; raises ``ValueError`` or
        ``TypeError``."""
        ...

    def decode(self, payload: bytes, /) -> ValueT:
        """Return the value of a message with this payload; raises ``ValueError``."""
        ...


def checked(schema: Schema[ValueT] | None) -> Schema[ValueT] | None:
    """The schema; raises ``TypeError`` for anything else, such as a class of values."""
    # Looked for in its type: the class of a schema, given instead of an instance, has both names.
    if schema is None or all(hasattr(type(schema), name) for name in ("encode", "decode")):
        return schema
    raise TypeError(f"{schema!r} is no schema; one is JsonSchema(Order) or StringSchema()")


_BYTES: tuple[type, ...] = (bytes, bytearray, memoryview)


@dataclass(eq=False)
class BytesSchema:
    """The default schema: a value is the payload itself.

    For payloads that are encoded already, ``schema_info`` may say what is in them.
    """

    # Without one, a broker compares nothing: the topic may have any schema or none.
    schema_info: SchemaInfo | None = None

    def encode(self, value: bytes | bytearray | memoryview, /) -> bytes:
        """The value as it is; raises ``TypeError`` for anything but bytes."""
        # HOT: most values are bytes, which never change and need no copy.
        if type(value) is bytes:
            return value
        # Callers without types pass anything, and ``bytes(5)`` would be five bytes.
        if not isinstance(value, _BYTES):
            raise TypeError(f"without a schema a value is bytes, and not {type(value).__name__}")
        return bytes(value)  # a copy: its owner may change it before the message leaves

    def decode(self, payload: bytes, /) -> bytes:
        """The payload as it is."""
        return payload
