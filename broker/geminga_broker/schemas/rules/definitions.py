"""Decodes and checks what clients send as schemas. Pure.

Facts: ``SchemaDataValidator``, ``KeyValueSchemaInfo`` and ``ProtobufNativeSchemaUtils`` of
Apache Pulsar 4.0.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from geminga_broker.schemas.errors import InvalidSchema
from geminga_broker.schemas.rules.avro import parse_avro
from geminga_protocol.pulsar.enums import SchemaType

# Upstream's bound is the size of a frame, 5 MB. Usual definitions have kilobytes. Parsing a MiB of
# JSON takes 10 ms, in which the broker does nothing else.
SCHEMA_BYTES_MAX = 1024 * 1024
# How deep pairs may lie within pairs; upstream follows them as deep as its stack. Each half is
# smaller than its pair, so that this bounds stack frames, not work.
PAIRS_DEPTH_MAX = 8

# The types whose definitions are Avro schemas. Those of JSON may be JSON schemas in the form of the
# Jackson library instead, which Pulsar 2.0 wrote.
AVRO_DEFINED = frozenset({SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF})
# Values of "type" in such JSON schemas; except for arrays, Avro schemas have none of them.
# "string", "boolean" and "null" are in both forms, and read as Avro's.
_JACKSON_TYPES = frozenset({"object", "array", "integer", "number", "any"})


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a client sends it."""

    type: SchemaType
    # Its form depends on the type; empty for types that need none.
    definition: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


def check_definition(schema: Schema, *, depth: int = 0) -> None:
    """Raise ``InvalidSchema`` unless the definition is valid for the schema's type."""
    # Before anything is parsed. Checked for the halves of pairs as well, which are shorter.
    if len(schema.definition) > SCHEMA_BYTES_MAX:
        raise InvalidSchema(
            f"the schema has {len(schema.definition)} bytes: {SCHEMA_BYTES_MAX} are allowed"
        )
    try:
        _check(schema, depth)
    except InvalidSchema as error:
        # Upstream's words; the reason behind them is ours.
        words = f"Invalid schema definition data for {schema.type.name} schema: {error}"
        raise InvalidSchema(words) from None
    # ``DEPTH_MAX`` of the parsers is reached before, as long as the caller's own stack is shallow.
    except RecursionError:
        raise InvalidSchema(f"the {schema.type.name} schema is nested too deep") from None


def _check(schema: Schema, depth: int) -> None:
    match schema.type:
        case SchemaType.AVRO:
            if parse_avro(schema.definition).kind == "union":
                raise InvalidSchema("Avro schema typed [UNION] is not supported")
        case SchemaType.PROTOBUF:
            parse_avro(schema.definition)
        case SchemaType.JSON:
            if json_schema_id(schema) is None:
                parse_avro(schema.definition)
        case SchemaType.PROTOBUF_NATIVE:
            root_message(schema)
        case SchemaType.KEY_VALUE:
            if depth >= PAIRS_DEPTH_MAX:
                raise InvalidSchema(f"pairs lie within pairs more than {PAIRS_DEPTH_MAX} deep")
            for half in key_and_value(schema):
                check_definition(half, depth=depth + 1)
        # A consumer with it sends no schema to compare (``TopicSchemas.admit_consumer``).
        case SchemaType.AUTO_CONSUME:
            raise InvalidSchema("Schema AUTO_CONSUME is a client-side schema type")
        case _:
            # The other types need no definition. Bytes (NONE) may have any, and old Python clients
            # send ``null`` with strings.
            is_null = schema.type is SchemaType.STRING and schema.definition == b"null"
            if schema.definition and schema.type is not SchemaType.NONE and not is_null:
                raise InvalidSchema(
                    f"there should be none, and it has {len(schema.definition)} bytes"
                )


def json_schema_id(schema: Schema) -> str | None:
    """The id of a JSON schema in Jackson's form ("" if it has none); None if the definition is an
    Avro schema, or not valid at all."""
    # Told apart from Avro's by "type", which both have.
    try:
        described: object = json.loads(schema.definition.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(described, dict):
        return None
    kind = described.get("type")
    if not isinstance(kind, str) or kind not in _JACKSON_TYPES:
        return None
    if kind == "array" and "items" in described and "id" not in described:
        return None  # an Avro array: in Jackson's form it has an id, unless it lies within a type
    return str(described.get("id", ""))


# Protobuf


def root_message(schema: Schema) -> str:
    """The full name of the message that a ProtobufNative schema describes. Raises
    ``InvalidSchema``."""
    # The definition is JSON: the name of the root message, and the serialized descriptors of all
    # files that define it, in base64.
    try:
        described = json.loads(schema.definition.decode())
        name = described["rootMessageTypeName"]
        files = descriptor_pb2.FileDescriptorSet.FromString(
            base64.b64decode(described["fileDescriptorSet"], validate=True)
        )
        # A pool of its own, never the process's: names of clients would collide with those of other
        # clients and with our own messages.
        pool = descriptor_pool.DescriptorPool()
        for each in _in_order(files):
            pool.Add(each)
        return str(pool.FindMessageTypeByName(name).full_name)
    except (ValueError, TypeError, KeyError, DecodeError) as error:
        raise InvalidSchema(f"deserialize ProtobufNative Schema failed: {error}") from None


def _in_order(
    files: descriptor_pb2.FileDescriptorSet,
) -> list[descriptor_pb2.FileDescriptorProto]:
    """The files, each after those that it imports. Files that import each other come last; the
    descriptor pool refuses them."""
    waiting = {each.name: each for each in files.file}
    ordered: list[descriptor_pb2.FileDescriptorProto] = []
    while waiting:
        # Round by round: each takes the files whose imports are all placed. An import that is not
        # among the files counts as placed, and the pool refuses it.
        ready = [
            each
            for each in waiting.values()
            if not any(name in waiting for name in each.dependency)
        ]
        if not ready:
            return ordered + list(waiting.values())
        for each in ready:
            del waiting[each.name]
        ordered += ready
    return ordered


# Pairs
#
# +----------+-----+------------+-------+
# | key_size | key | value_size | value |   a half without a definition has the size 0;
# |   i32    |     |    i32     |       |   upstream reads -1 as 0
# +----------+-----+------------+-------+
_SIZE = struct.Struct(">i")


def key_and_value(schema: Schema) -> tuple[Schema, Schema]:
    """The halves of a KEY_VALUE schema, whose types stand in its properties. Raises
    ``InvalidSchema``."""
    # Nothing may follow the value, or equal pairs could have different bytes.
    key, rest = _take(schema.definition)
    value, rest = _take(rest)
    if rest:
        raise InvalidSchema(f"{len(rest)} bytes follow the pair")
    return _half(schema, "key", key), _half(schema, "value", value)


def _take(definition: bytes) -> tuple[bytes, bytes]:
    """The half that ``definition`` begins with, and the rest."""
    if len(definition) < _SIZE.size:
        raise InvalidSchema("the pair is cut off")
    # A half without a definition may have the size -1.
    size = max(_SIZE.unpack_from(definition)[0], 0)
    end = _SIZE.size + size
    if len(definition) < end:
        raise InvalidSchema("the pair is cut off")
    return definition[_SIZE.size : end], definition[end:]


def _half(schema: Schema, name: str, definition: bytes) -> Schema:
    """The key or the value of a pair, whose type and properties are among those of the pair."""
    # Upstream's names for the properties of ``KeyValueSchemaInfo``.
    label = schema.properties.get(f"{name}.schema.type", "BYTES")
    kind = schema_type(label)
    if kind is None:
        raise InvalidSchema(f"the {name} is of type {label}, which there is not")
    text = schema.properties.get(f"{name}.schema.properties", "")
    try:
        found: object = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidSchema(f"the {name}'s properties are no JSON object")
    return Schema(kind, definition, {str(key): str(value) for key, value in found.items()})


def pair_definition(key: bytes, value: bytes) -> bytes:
    """The definition of a KEY_VALUE schema."""
    return b"".join((_SIZE.pack(len(key)), key, _SIZE.pack(len(value)), value))


def schema_type(name: str) -> SchemaType | None:
    """The type of that name in REST and in the properties of pairs; None if there is none. BYTES is
    stored as NONE."""
    if name == "BYTES":
        return SchemaType.NONE
    return SchemaType.__members__.get(name)
