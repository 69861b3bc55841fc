"""Pairs of a key and a value with a schema each; the key is in the payload or is the message's."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from struct import Struct
from typing import Any, Generic, TypeVar, cast

from geminga.schemas.schema import Schema, SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

# +-----------------+-----+-------------------+-------+
# | i32: key's size | key | i32: value's size | value |     size -1: null
# +-----------------+-----+-------------------+-------+
_SIZE = Struct(">i")


class KeyValueEncoding(StrEnum):
    """Where the key of a pair is: ``INLINE`` in the payload, before the value, or ``SEPARATED`` as
    the key of the message, where routing, Key_Shared and compaction see it."""

    INLINE = "INLINE"
    SEPARATED = "SEPARATED"


class KeyValueSchema(Generic[KeyT, ValueT]):
    """Values are tuples of a key and a value, each of which may be ``None``:
    ``KeyValueSchema(StringSchema(), JsonSchema(Order), "SEPARATED")``.

    ``encoding`` says where the key is: see ``KeyValueEncoding``.
    """

    def __init__(
        self,
        key: Schema[KeyT],
        value: Schema[ValueT],
        encoding: KeyValueEncoding | str = KeyValueEncoding.INLINE,
    ) -> None:
        """Raises ``ValueError`` for an unknown encoding."""
        # Definition and properties of both are joined as Pulsar's ``KeyValueSchemaInfo`` does.
        self._key = key
        self._value = value
        # Read by producers and consumers: a separated key is put into the metadata and taken from
        # there by them, not here.
        self.encoding = KeyValueEncoding(encoding)
        parts: dict[str, Schema[Any]] = {"key": key, "value": value}
        properties = {"kv.encoding.type": str(self.encoding)}
        definitions: list[bytes] = []
        # The names of the properties are upstream's; other programs read them in the registry.
        for part, schema in parts.items():
            # A part without a schema is bytes.
            info = schema.schema_info or SchemaInfo(SchemaType.NONE, "Bytes")
            properties[f"{part}.schema.name"] = info.name
            properties[f"{part}.schema.type"] = info.type.name
            properties[f"{part}.schema.properties"] = json.dumps(dict(info.properties))
            definitions.append(info.definition)
        self.schema_info = SchemaInfo(
            SchemaType.KEY_VALUE, "KeyValue", join(*definitions), properties
        )

    def encode(self, pair: tuple[KeyT | None, ValueT | None], /) -> bytes:
        """Key and value in one payload; raises what the two schemas raise, or ``TypeError``."""
        key, value = self.encode_parts(pair)
        return join(key, value)

    def decode(self, payload: bytes, /) -> tuple[KeyT | None, ValueT | None]:
        """The pair in a payload; raises ``ValueError``."""
        return self.decode_parts(*split(payload))

    def encode_parts(
        self, pair: tuple[KeyT | None, ValueT | None], /
    ) -> tuple[bytes | None, bytes | None]:
        """Key and value, for a message that has them apart; raises as ``encode``."""
        # Callers without types pass anything.
        given = cast(object, pair)
        if not isinstance(given, tuple) or len(given) != 2:
            raise TypeError("the value should be a tuple of a key and a value")
        key, value = pair
        return (
            None if key is None else self._key.encode(key),
            None if value is None else self._value.encode(value),
        )

    def decode_parts(
        self, key: bytes | None, value: bytes | None, /
    ) -> tuple[KeyT | None, ValueT | None]:
        """The pair of a message that has key and value apart; raises ``ValueError``."""
        return (
            None if key is None else self._key.decode(key),
            None if value is None else self._value.decode(value),
        )

    def reader_of(self, writer: SchemaInfo, /) -> Callable[[bytes], tuple[Any, Any]]:
        """Return what reads pairs whose key and value were written with other schemas.

        Raises ``ValueError`` for a schema that cannot be used, and so does what it returns.
        """
        # Once for each version of the topic's schema, and not for each payload.
        key_info, value_info = parts_of(writer)
        readers = _reader(self._key, key_info), _reader(self._value, value_info)

        def read(payload: bytes) -> tuple[Any, Any]:
            key, value = split(payload)
            return (
                None if key is None else readers[0](key),
                None if value is None else readers[1](value),
            )

        return read

    def __repr__(self) -> str:
        return f"KeyValueSchema({self._key!r}, {self._value!r}, {self.encoding.name})"


def _reader(schema: Schema[Any], writer: SchemaInfo) -> Callable[[bytes], Any]:
    # Most schemas read every version alike: these have no such method.
    reader_of: Callable[[SchemaInfo], Callable[[bytes], Any]] | None
    reader_of = getattr(schema, "reader_of", None)
    return schema.decode if reader_of is None else reader_of(writer)


def parts_of(info: SchemaInfo) -> list[SchemaInfo]:
    """The schemas of the key and the value of a KEY_VALUE schema; raises ``ValueError``."""
    parts: list[SchemaInfo] = []
    for part, definition in zip(("key", "value"), split(info.definition), strict=True):
        try:
            # Upstream's name of the type. Its Java client calls a part without a schema ``BYTES``,
            # which has no number in the protocol, and takes one without a type for bytes, too.
            named = info.properties.get(f"{part}.schema.type", "BYTES")
            kind = SchemaType.NONE if named == "BYTES" else SchemaType[named]
            properties = json.loads(info.properties.get(f"{part}.schema.properties") or "{}")
        except (KeyError, ValueError) as wrong:
            raise ValueError(f"the key-value schema does not say what its {part} is") from wrong
        name = info.properties.get(f"{part}.schema.name", "")
        parts.append(SchemaInfo(kind, name, definition or b"", properties))
    return parts


def join(key: bytes | None, value: bytes | None) -> bytes:
    """Key and value with their sizes in front, in one payload."""
    parts: list[bytes] = []
    for part in (key, value):
        parts += [_SIZE.pack(-1)] if part is None else [_SIZE.pack(len(part)), part]
    return b"".join(parts)


def split(payload: bytes) -> tuple[bytes | None, bytes | None]:
    """The key and the value that ``join`` joined; raises ``ValueError`` for any other payload."""
    parts: list[bytes | None] = []
    end = 0
    while len(parts) < 2:
        begin = end + _SIZE.size
        if begin > len(payload):
            raise ValueError("the payload ends before a key and a value")
        (size,) = _SIZE.unpack_from(payload, end)
        # Checked before the cut: a slice beyond the end would be short in silence.
        if size < -1 or begin + size > len(payload):
            raise ValueError(f"a part should have {size} bytes, and {len(payload) - begin} follow")
        # A null part has a size and no bytes.
        end = begin + max(size, 0)
        parts.append(None if size == -1 else payload[begin:end])
    # Or a payload of another schema might pass for a pair.
    if end != len(payload):
        raise ValueError(f"{len(payload) - end} bytes stand behind a key and a value")
    key, value = parts
    return key, value
