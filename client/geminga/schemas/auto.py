"""Schemas that are the topic's: values as whatever schema their messages were written with.

``AUTO_CONSUME`` and ``AUTO_PRODUCE`` of Pulsar's Java client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from geminga.schemas import primitives
from geminga.schemas.avro import AvroSchema
from geminga.schemas.json_schema import JsonSchema
from geminga.schemas.key_value import KeyValueSchema, parts_of
from geminga.schemas.protobuf import ProtobufNativeSchema, class_of
from geminga.schemas.schema import BytesSchema, Schema, SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

SINGLE: Mapping[SchemaType, Callable[[], Schema[Any]]] = {
    SchemaType.NONE: BytesSchema,
    SchemaType.STRING: primitives.StringSchema,
    SchemaType.BOOLEAN: primitives.BoolSchema,
    SchemaType.INT8: primitives.Int8Schema,
    SchemaType.INT16: primitives.Int16Schema,
    SchemaType.INT32: primitives.Int32Schema,
    SchemaType.INT64: primitives.Int64Schema,
    SchemaType.FLOAT: primitives.FloatSchema,
    SchemaType.DOUBLE: primitives.DoubleSchema,
    SchemaType.DATE: primitives.DateSchema,
    SchemaType.TIME: primitives.TimeSchema,
    SchemaType.TIMESTAMP: primitives.TimestampSchema,
    SchemaType.INSTANT: primitives.InstantSchema,
    SchemaType.LOCAL_DATE: primitives.LocalDateSchema,
    SchemaType.LOCAL_TIME: primitives.LocalTimeSchema,
    SchemaType.LOCAL_DATE_TIME: primitives.LocalDateTimeSchema,
}


class AutoConsumeSchema:
    """Values are what their messages' own schema makes of them: JSON and Avro records are dicts,
    Protobuf's are messages, key-value pairs are tuples, and without a schema they are bytes."""

    schema_info = SchemaInfo(SchemaType.AUTO_CONSUME, "AutoConsume")

    def encode(self, value: object, /) -> bytes:
        """Raises ``TypeError``: which schema would it be?"""
        raise TypeError(f"only consumers use AutoConsumeSchema: {value!r:.100} was not sent")

    def decode(self, payload: bytes, /) -> Any:  # noqa: ANN401 - whatever it is
        """A message that was written without a schema: its payload."""
        return payload

    def reader_of(self, writer: SchemaInfo, /) -> Callable[[bytes], Any]:
        """Reads what was written with that schema. Raises ``ValueError``, and so does it."""
        return schema_of(writer).decode


class AutoProduceSchema:
    """Values are payloads that are encoded already, by the schema that the topic has."""

    schema_info: SchemaInfo | None = None

    def encode(self, value: bytes, /) -> bytes:
        """The value as it is; raises ``TypeError`` for what is no bytes."""
        return BytesSchema().encode(value)

    def decode(self, payload: bytes, /) -> bytes:
        """The payload as it is."""
        return payload


def schema_of(info: SchemaInfo) -> Schema[Any]:
    """A schema that reads and writes what ``info`` describes, without a class for it.

    Raises ``ValueError`` for a definition that is none, and for PROTOBUF, which describes names of
    fields and not their numbers.
    """
    made = SINGLE.get(info.type)
    if made is not None:
        return made()
    if info.type is SchemaType.JSON:
        return JsonSchema(object, definition=_json(info), properties=info.properties)
    if info.type is SchemaType.AVRO:
        return AvroSchema(object, definition=_json(info), properties=info.properties)
    if info.type is SchemaType.PROTOBUF_NATIVE:
        return ProtobufNativeSchema(class_of(info.definition))
    if info.type is SchemaType.KEY_VALUE:
        return _key_value(info)
    raise ValueError(f"messages of a {info.type.name} schema cannot be read without its class")


def _json(info: SchemaInfo) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(info.definition)
    except ValueError as wrong:
        raise ValueError(f"the definition of the {info.type.name} schema is no JSON") from wrong


def _key_value(info: SchemaInfo) -> Schema[Any]:
    key, value = map(schema_of, parts_of(info))
    return KeyValueSchema(key, value, info.properties.get("kv.encoding.type", "INLINE"))
