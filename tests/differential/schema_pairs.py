"""Schemas of which one follows others: what a real Pulsar's verdicts are recorded for.

A case is the schemas a topic has had, the oldest first, and the one that is to follow. Facts about
Avro's rules are those of its specification, "Schema Resolution".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as REST takes it: its type's name and its definition."""

    type: str
    definition: str
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Case:
    """The schemas of a topic, and its next one."""

    name: str
    history: tuple[Schema, ...]
    following: Schema


def _record(*fields: Any, name: str = "Order", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def _field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def _definition(kind: Any) -> str:
    return json.dumps(kind, separators=(",", ":"))


def _key_value(key: Schema, value: Schema) -> Schema:
    """A schema of pairs as REST takes it: the halves' definitions in a JSON object."""

    def half(schema: Schema) -> Any:
        return json.loads(schema.definition) if schema.definition else ""

    properties = {
        "key.schema.name": "",
        "key.schema.type": key.type,
        "key.schema.properties": "{}",
        "value.schema.name": "",
        "value.schema.type": value.type,
        "value.schema.properties": "{}",
        "kv.encoding.type": "INLINE",
    }
    definition = _definition({"key": half(key), "value": half(value)})
    return Schema("KEY_VALUE", definition, properties)


def _native(root: str, messages: Mapping[str, Sequence[tuple[str, int]]]) -> Schema:
    """A ProtobufNative schema of messages of int32 fields (name, number)."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for name, number in fields:
            described.field.add(
                name=name,
                number=number,
                type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
                label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
            )
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    encoded = base64.b64encode(files.SerializeToString()).decode()
    return Schema(
        "PROTOBUF_NATIVE",
        _definition(
            {
                "fileDescriptorSet": encoded,
                "rootMessageTypeName": f"shop.{root}",
                "rootFileDescriptorName": "order.proto",
            }
        ),
    )


ID = _field("id", "int")
NOTE = _field("note", "string")
NOTE_OR_NOT = _field("note", ["null", "string"], default=None)
JACKSON = {
    "type": "object",
    "id": "urn:jsonschema:shop:Order",
    "properties": {"id": {"type": "integer"}},
}
CODES = {"type": "enum", "name": "Code", "symbols": ["A", "B"]}
MORE_CODES = {"type": "enum", "name": "Code", "symbols": ["A", "B", "C"]}
TREE = _record(_field("left", ["null", "Tree"], default=None), name="Tree")
GROWN_TREE = _record(
    _field("left", ["null", "Tree"], default=None), _field("leaf", "int", default=0), name="Tree"
)
HARD_TREE = _record(
    _field("left", ["null", "Tree"], default=None), _field("leaf", "int"), name="Tree"
)
INNER = _record(ID, name="Inner")


def _avro(name: str, old: Any, new: Any) -> Case:
    return Case(name, (Schema("AVRO", _definition(old)),), Schema("AVRO", _definition(new)))


def _avro_field(name: str, old: Any, new: Any) -> Case:
    """Two records whose one field is of these types."""
    return _avro(name, _record(_field("a", old)), _record(_field("a", new)))


def _both(name: str, kind: str, old: Any, new: Any) -> Case:
    return Case(name, (Schema(kind, _definition(old)),), Schema(kind, _definition(new)))


STRING = Schema("STRING", "")
INT32 = Schema("INT32", "")
V1 = Schema("AVRO", _definition(_record(ID)))
V2 = Schema("AVRO", _definition(_record(ID, NOTE_OR_NOT)))
V3 = Schema("AVRO", _definition(_record(ID, _field("note", "string", default=""))))
V4 = Schema("AVRO", _definition(_record(ID, NOTE)))

AVRO_CASES = (
    _avro("the same", _record(ID), _record(ID)),
    _avro("the same in other words", _record(ID), _record(ID, doc="an order")),
    _avro("other property", _record(ID), _record(ID, shop="x")),
    _avro("other aliases", _record(ID), _record(ID, aliases=["Purchase"])),
    _avro("field added", _record(ID), _record(ID, NOTE)),
    _avro("field added with default", _record(ID), _record(ID, NOTE_OR_NOT)),
    _avro("field removed", _record(ID, NOTE), _record(ID)),
    _avro("field with default removed", _record(ID, NOTE_OR_NOT), _record(ID)),
    _avro("field renamed", _record(ID), _record(_field("key", "int"))),
    _avro("field renamed with alias", _record(ID), _record(_field("key", "int", aliases=["id"]))),
    _avro("fields in another order", _record(ID, NOTE), _record(NOTE, ID)),
    _avro("record renamed", _record(ID), _record(ID, name="Purchase")),
    _avro(
        "record renamed with alias", _record(ID), _record(ID, name="Purchase", aliases=["Order"])
    ),
    _avro("record in another namespace", _record(ID), _record(ID, namespace="shop")),
    _avro("default of another type", _record(ID), _record(ID, _field("n", "int", default="x"))),
    _avro(
        "default null for a string", _record(ID), _record(ID, _field("n", "string", default=None))
    ),
    _avro(
        "default of the second branch",
        _record(ID),
        _record(ID, _field("n", ["null", "int"], default=3)),
    ),
    _avro("default of a record", _record(ID), _record(ID, _field("n", INNER, default={"id": 1}))),
    _avro(
        "default of a record lacks a field",
        _record(ID),
        _record(ID, _field("n", INNER, default={})),
    ),
    _avro_field("int to long", "int", "long"),
    _avro_field("int to float", "int", "float"),
    _avro_field("long to double", "long", "double"),
    _avro_field("float to double", "float", "double"),
    _avro_field("int to string", "int", "string"),
    _avro_field("string to bytes", "string", "bytes"),
    _avro_field("boolean to int", "boolean", "int"),
    _avro_field("string to null or string", "string", ["null", "string"]),
    _avro_field("branch added", ["null", "string"], ["null", "string", "int"]),
    _avro_field("branches in another order", ["null", "string"], ["string", "null"]),
    _avro_field("branch promoted", ["null", "int"], ["null", "long"]),
    _avro_field("int to union with float", "int", ["null", "float"]),
    _avro_field("enum grows", CODES, MORE_CODES),
    _avro_field("enum shrinks", MORE_CODES, CODES),
    _avro_field("enum shrinks with default", MORE_CODES, {**CODES, "default": "A"}),
    _avro_field("enum renamed", CODES, {**CODES, "name": "Letter"}),
    _avro_field("enum renamed with alias", CODES, {**CODES, "name": "Letter", "aliases": ["Code"]}),
    _avro_field("enum to string", CODES, "string"),
    _avro_field(
        "fixed of another size",
        {"type": "fixed", "name": "F", "size": 8},
        {"type": "fixed", "name": "F", "size": 16},
    ),
    _avro_field(
        "fixed renamed",
        {"type": "fixed", "name": "F", "size": 8},
        {"type": "fixed", "name": "G", "size": 8},
    ),
    _avro_field(
        "items promoted", {"type": "array", "items": "int"}, {"type": "array", "items": "long"}
    ),
    _avro_field(
        "values of another type",
        {"type": "map", "values": "int"},
        {"type": "map", "values": "string"},
    ),
    _avro_field(
        "array to map", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}
    ),
    _avro_field("inner record grows", INNER, _record(ID, NOTE, name="Inner")),
    _avro_field(
        "inner record renamed in a union", ["null", INNER], ["null", {**INNER, "name": "Other"}]
    ),
    _avro_field(
        "inner record in a union grows", ["null", INNER], ["null", _record(ID, NOTE, name="Inner")]
    ),
    _avro_field("logical type added", "long", {"type": "long", "logicalType": "timestamp-millis"}),
    _avro_field(
        "logical type changed",
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-micros"},
    ),
    _avro("recursive grows", TREE, GROWN_TREE),
    _avro("recursive grows without default", TREE, HARD_TREE),
    _avro("an int alone", "int", "long"),
    _avro("an enum alone", CODES, MORE_CODES),
    Case("longer history, all can read", (V1, V2), V3),
    Case("longer history, only the newest fits", (V1, V3), V4),
    Case("an older version again", (V1, V2), V1),
)

OTHER_CASES = (
    _both("json field added", "JSON", _record(ID), _record(ID, NOTE)),
    _both("json field added with default", "JSON", _record(ID), _record(ID, NOTE_OR_NOT)),
    _both("json int to long", "JSON", _record(_field("a", "int")), _record(_field("a", "long"))),
    _both("json of jackson to avro", "JSON", JACKSON, _record(ID)),
    _both("json of avro to jackson", "JSON", _record(ID), JACKSON),
    _both("json of jackson, the same id", "JSON", JACKSON, {**JACKSON, "properties": {}}),
    _both("json of jackson, another id", "JSON", JACKSON, {**JACKSON, "id": "urn:other"}),
    _both("protobuf field added", "PROTOBUF", _record(ID), _record(ID, NOTE)),
    _both("protobuf field added with default", "PROTOBUF", _record(ID), _record(ID, NOTE_OR_NOT)),
    Case(
        "native fields change",
        (_native("Order", {"Order": [("id", 1)]}),),
        _native("Order", {"Order": [("name", 1), ("note", 2)]}),
    ),
    Case(
        "native root changes",
        (_native("Order", {"Order": [("id", 1)], "Bill": [("id", 1)]}),),
        _native("Bill", {"Order": [("id", 1)], "Bill": [("id", 1)]}),
    ),
    Case("string to int32", (STRING,), INT32),
    Case("string again", (STRING,), STRING),
    Case("avro to json", (V1,), Schema("JSON", V1.definition)),
    Case("json to avro", (Schema("JSON", V1.definition),), V1),
    Case("avro to string", (V1,), STRING),
    Case("string to avro", (STRING,), V1),
    Case("avro to protobuf", (V1,), Schema("PROTOBUF", V1.definition)),
    Case("pair whose value grows", (_key_value(V1, V1),), _key_value(V1, V4)),
    Case("pair whose value grows with default", (_key_value(V1, V1),), _key_value(V1, V2)),
    Case("pair whose key grows with default", (_key_value(V1, V1),), _key_value(V2, V1)),
    Case("pair whose key is another type", (_key_value(V1, V1),), _key_value(STRING, V1)),
    Case("avro to pair", (V1,), _key_value(V1, V1)),
)

CASES = AVRO_CASES + OTHER_CASES
