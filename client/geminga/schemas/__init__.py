"""Schemas: how the values that users send and receive become the bytes of messages, and back.

In reading order: ``schema`` says what a schema offers, and has the one of bytes; ``primitives`` are
single values, ``json_schema`` and ``avro`` records (``records`` defines them by classes),
``protobuf`` messages (``protobuf_avro`` makes their Avro definitions), ``key_value`` pairs, and
``auto`` stands for whatever schema a topic has. A schema never asks a broker: consumers and
producers do, and hand it the schema of the topic.
"""

from geminga.schemas.auto import AutoConsumeSchema, AutoProduceSchema, schema_of
from geminga.schemas.avro import AvroSchema
from geminga.schemas.json_schema import JsonSchema
from geminga.schemas.key_value import KeyValueEncoding, KeyValueSchema
from geminga.schemas.primitives import (
    BoolSchema,
    DateSchema,
    DoubleSchema,
    FloatSchema,
    InstantSchema,
    Int8Schema,
    Int16Schema,
    Int32Schema,
    Int64Schema,
    LocalDateSchema,
    LocalDateTimeSchema,
    LocalTimeSchema,
    StringSchema,
    TimeSchema,
    TimestampSchema,
)
from geminga.schemas.protobuf import ProtobufNativeSchema, ProtobufSchema
from geminga.schemas.records import AvroType
from geminga.schemas.schema import BytesSchema, Schema, SchemaInfo

__all__ = [
    "AutoConsumeSchema",
    "AutoProduceSchema",
    "AvroSchema",
    "AvroType",
    "BoolSchema",
    "BytesSchema",
    "DateSchema",
    "DoubleSchema",
    "FloatSchema",
    "InstantSchema",
    "Int8Schema",
    "Int16Schema",
    "Int32Schema",
    "Int64Schema",
    "JsonSchema",
    "KeyValueEncoding",
    "KeyValueSchema",
    "LocalDateSchema",
    "LocalDateTimeSchema",
    "LocalTimeSchema",
    "ProtobufNativeSchema",
    "ProtobufSchema",
    "Schema",
    "SchemaInfo",
    "StringSchema",
    "TimeSchema",
    "TimestampSchema",
    "schema_of",
]
