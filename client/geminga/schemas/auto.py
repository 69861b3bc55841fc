"""Schemas that stand for the topic's own: ``AUTO_CONSUME`` and ``AUTO_PRODUCE`` of Pulsar's Java
client."""

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

# The schemas that need no definition.
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
    """For consumers of any topic: each message is read by the schema that it was written with.

    JSON and Avro records become dicts, Protobuf's messages, key-value pairs tuples; the payloads of
    messages without a schema stay bytes. ``Message.schema`` says which schema it was.
    """

    # By this type a broker knows that the topic may have any schema.
    schema_info = SchemaInfo(SchemaType.AUTO_CONSUME, "AutoConsume")

    def encode(self, value: object, /) -> bytes:
        """Raises ``TypeError``: producers use ``AutoProduceSchema``."""
        raise TypeError(f"only consumers use AutoConsumeSchema: {value!r:.100} was not sent")

    def decode(self, payload: bytes, /) -> Any:  # noqa: ANN401 - whatever it is
        """The payload, of a message that was written without a schema."""
        return payload

    def reader_of(self, writer: SchemaInfo, /) -> Callable[[bytes], Any]:
        """Return what reads payloads that were written with this schema.

        Raises ``ValueError`` for a schema that cannot be used, and so does what it returns.
        """
        # Called once for each version: what is made of a definition (classes of messages, a parsed
        # schema) is kept with the version.
        return schema_of(writer).decode


class AutoProduceSchema(BytesSchema):
    """For producers whose values are payloads that are encoded already, by the topic's schema."""

    # ``Client.producer`` asks a broker for that schema, and sends it back as the producer's own.

    def __init__(self) -> None:
        super().__init__(None)


def schema_of(info: SchemaInfo) -> Schema[Any]:
    """Make a schema that reads and writes what ``info`` describes, without a class for values:
    `schema_of(await client.schema("orders"))`.

    Raises ``ValueError`` for a definition that cannot be used, and for PROTOBUF, which does not say
    the numbers of fields; ``MissingExtra`` for Avro without its package.
    """
    made = SINGLE.get(info.type)
    if made is not None:
        return made()
    if info.type in (SchemaType.JSON, SchemaType.AVRO):
        try:
            definition = json.loads(info.definition)
        except ValueError as wrong:
            raise ValueError(f"the definition of the {info.type.name} schema is no JSON") from wrong
        # Any object will do as a value: there is no class to compare it with.
        if info.type is SchemaType.JSON:
            return JsonSchema(object, definition=definition, properties=info.properties)
        return AvroSchema(object, definition=definition, properties=info.properties)
    if info.type is SchemaType.PROTOBUF_NATIVE:
        return ProtobufNativeSchema(class_of(info.definition))
    if info.type is SchemaType.KEY_VALUE:
        # Pulsar's default, of schemas that do not say where their keys are, is within the payload.
        key, value = map(schema_of, parts_of(info))
        return KeyValueSchema(key, value, info.properties.get("kv.encoding.type", "INLINE"))
    raise ValueError(f"messages of a {info.type.name} schema cannot be read without its class")
