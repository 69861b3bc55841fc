"""Proves that values are read by whatever schema they were written with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from geminga import (
    AutoConsumeSchema,
    AutoProduceSchema,
    AvroSchema,
    BoolSchema,
    JsonSchema,
    KeyValueSchema,
    ProtobufNativeSchema,
    Schema,
    SchemaInfo,
    SchemaType,
    StringSchema,
    schema_of,
)
from geminga.schemas.auto import SINGLE
from geminga_protocol.pulsar.api_pb2 import KeyValue


@dataclass
class Item:
    sku: str
    count: int = 1


WRITTEN: list[tuple[Schema[Any], Any, Any]] = [
    (StringSchema(), "a", "a"),
    (BoolSchema(), True, True),
    (JsonSchema(Item), Item("a"), {"sku": "a", "count": 1}),
    (AvroSchema(Item), Item("a"), {"sku": "a", "count": 1}),
    (
        KeyValueSchema(StringSchema(), AvroSchema(Item)),
        ("k", Item("a")),
        ("k", {"sku": "a", "count": 1}),
    ),
]


@pytest.mark.parametrize(("schema", "value", "read"), WRITTEN, ids=lambda each: repr(each)[:40])
def test_a_value_is_read_without_its_class(schema: Schema[Any], value: Any, read: Any) -> None:
    info = schema.schema_info
    assert info is not None
    assert AutoConsumeSchema().reader_of(info)(schema.encode(value)) == read
    assert schema_of(info).encode(read) == schema.encode(value)


def test_protobuf_messages_are_read_by_their_descriptors() -> None:
    schema = ProtobufNativeSchema(KeyValue)
    read = schema_of(schema.schema_info).decode(schema.encode(KeyValue(key="a", value="b")))
    assert (read.key, read.value) == ("a", "b")


def test_all_types_but_three_can_be_read() -> None:
    made = {*SINGLE, SchemaType.JSON, SchemaType.AVRO, SchemaType.PROTOBUF_NATIVE}
    assert set(SchemaType) - made - {SchemaType.KEY_VALUE} == {
        SchemaType.PROTOBUF,
        SchemaType.AUTO_CONSUME,
    }
    for kind, make in SINGLE.items():
        info = make().schema_info
        assert info is None or info.type is kind
    with pytest.raises(ValueError, match="PROTOBUF"):
        schema_of(SchemaInfo(SchemaType.PROTOBUF, "", b"{}"))


@pytest.mark.parametrize(
    "info",
    [
        SchemaInfo(SchemaType.JSON, "", b"{"),
        SchemaInfo(SchemaType.AVRO, "", b"{}"),
        SchemaInfo(SchemaType.KEY_VALUE, "", b""),
        SchemaInfo(SchemaType.KEY_VALUE, "", bytes(8), {"key.schema.type": "UNHEARD"}),
    ],
)
def test_a_schema_that_is_none_is_refused(info: SchemaInfo) -> None:
    with pytest.raises(ValueError, match=r"."):
        schema_of(info)


def test_the_automatic_schemas_take_only_what_they_can() -> None:
    with pytest.raises(TypeError, match="only consumers"):
        AutoConsumeSchema().encode("a")
    assert AutoConsumeSchema().decode(b"a") == b"a"
    assert AutoProduceSchema().encode(b"a") == AutoProduceSchema().decode(b"a") == b"a"
