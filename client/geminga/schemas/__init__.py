"""Schemas: how the values that users send and receive become the bytes of messages, and back."""

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
