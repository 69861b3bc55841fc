"""What is taken as a schema, and that no definition crashes or holds up what judges it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.policies.schemas import SchemaStrategy
from geminga_broker.schemas.errors import IncompatibleSchema, InvalidSchema
from geminga_broker.schemas.rules.avro import DEPTH_MAX
from geminga_broker.schemas.rules.compatibility import Version, check_consumer, check_following
from geminga_broker.schemas.rules.definitions import (
    SCHEMA_BYTES_MAX,
    Schema,
    check_definition,
    pair_definition,
)
from geminga_protocol.pulsar.enums import SchemaType


def avro(described: Any) -> Schema:
    return Schema(SchemaType.AVRO, json.dumps(described).encode())


def record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    described = [{"name": each, "type": kind} for each, kind in fields]
    return {"type": "record", "name": name, "fields": described}


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ("Unknown", '"Unknown" is not a defined name'),
        ({"type": "record", "name": "R"}, "the record R has no fields"),
        ({"type": "record", "name": "1R", "fields": []}, '"1R" is not a name'),
        (record(("a", "int"), ("a", "int")), 'the record Order has two fields "a"'),
        (record(("a", ["int", "int"])), "a union has two branches of type int"),
        (record(("a", ["int", ["null"]])), "a union is directly within a union"),
        (record(("a", {"type": "fixed", "name": "F"})), "the fixed F has no size"),
        (record(("a", {"type": "enum", "name": "E", "symbols": ["A", "A"]})), "symbol twice"),
        (record(("a", {"type": "array"})), "a type array does not say of what"),
        (record(("a", record(name="Order"))), 'the name "Order" is defined twice'),
        (["null", "string"], "Avro schema typed [UNION] is not supported"),
        (7, "no type is described by 7"),
    ],
)
def test_a_refusal_says_what_is_wrong(described: Any, said: str) -> None:
    with pytest.raises(InvalidSchema) as refusal:
        check_definition(avro(described))
    assert said in str(refusal.value)


def test_types_of_other_namespaces_are_found_by_their_names() -> None:
    inner = {"type": "enum", "name": "Code", "namespace": "other", "symbols": ["A"]}
    outer = record(("a", inner), ("b", "other.Code"), ("c", "shop.Order"))
    check_definition(avro({**outer, "namespace": "shop"}))


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF_NATIVE])
@pytest.mark.parametrize(
    "definition",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"type":' * 500 + b'"int"' + b"}" * 500,
        b'{"a":' * 100_000,
        b"x" * (10 * SCHEMA_BYTES_MAX),
    ],
    ids=["nothing", "cut", "no text", "brackets", "types in types", "braces", "10 MiB"],
)
def test_what_is_no_schema_is_refused_at_once(kind: SchemaType, definition: bytes) -> None:
    began = time.process_time()
    with pytest.raises(InvalidSchema):
        check_definition(Schema(kind, definition))
    assert time.process_time() - began < 1


@given(st.binary(max_size=60), st.sampled_from(SchemaType))
def test_garbage_is_a_schema_or_refused(definition: bytes, kind: SchemaType) -> None:
    try:
        check_definition(Schema(kind, definition, {"key.schema.type": "AVRO"}))
    except InvalidSchema:
        return


def test_types_may_be_nested_up_to_the_limit() -> None:
    described: Any = "int"
    for _ in range(DEPTH_MAX):
        described = {"type": "array", "items": described}
    check_definition(avro(described))
    check_following([Version(0, avro(described))], avro(described), SchemaStrategy.FULL_TRANSITIVE)
    with pytest.raises(InvalidSchema, match="deep"):
        check_definition(avro({"type": "array", "items": described}))


def test_a_deep_default_is_refused() -> None:
    described = record(("a", {"type": "array", "items": "int"}), name="R")
    described["fields"][0]["default"] = 1
    text = json.dumps(described).replace('"default": 1', f'"default": {"[" * 900}{"]" * 900}')
    schema = Schema(SchemaType.AVRO, text.encode())
    with pytest.raises((IncompatibleSchema, InvalidSchema)):
        check_following([Version(0, avro(record(name="R")))], schema, SchemaStrategy.BACKWARD)


def test_schemas_made_to_take_for_ever_are_refused() -> None:
    """Each record of the one union might be read by any of the other."""

    def many(prefix: str, kind: str) -> dict[str, Any]:
        return record(("a", [record(("x", kind), name=f"{prefix}{at}") for at in range(500)]))

    present = [Version(0, avro(many("a", "int")))]
    began = time.process_time()
    with pytest.raises(InvalidSchema, match="too large to be compared"):
        check_following(present, avro(many("b", "long")), SchemaStrategy.BACKWARD)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("strategy", "old", "new", "said"),
    [
        (
            "BACKWARD",
            [],
            [("id", "int")],
            "it cannot read version 3: field Order.id is read, is not",
        ),
        (
            "FORWARD",
            [("id", "int")],
            [],
            "version 3 cannot read it: field Order.id is read, is not",
        ),
        (
            "FULL",
            [("id", "int")],
            [("id", "string")],
            "field Order.id: type int cannot be read as s",
        ),
        ("ALWAYS_INCOMPATIBLE", [], [("id", "int")], "no schema may follow another"),
        (
            "BACKWARD",
            [("a", {"type": "array", "items": record(("b", "string"), name="I")})],
            [("a", {"type": "array", "items": record(("b", "int"), name="I")})],
            "field Order.a[].b: type string cannot be read as int",
        ),
    ],
)
def test_a_refusal_names_strategy_field_and_rule(
    strategy: str, old: list[tuple[str, Any]], new: list[tuple[str, Any]], said: str
) -> None:
    with pytest.raises(IncompatibleSchema) as refusal:
        check_following(
            [Version(3, avro(record(*old)))], avro(record(*new)), SchemaStrategy(strategy)
        )
    assert str(refusal.value).startswith(f"Incompatible schema by {strategy}: ")
    assert said in str(refusal.value)


def test_a_pair_is_refused_with_the_half_that_does_not_fit() -> None:
    types = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}

    def pair(value: Any) -> Schema:
        definition = pair_definition(b"", json.dumps(value).encode())
        return Schema(SchemaType.KEY_VALUE, definition, types)

    check_definition(pair(record()))
    with pytest.raises(IncompatibleSchema, match=r"field Order\.id .* \(in the value\)"):
        check_following(
            [Version(0, pair(record()))], pair(record(("id", "int"))), SchemaStrategy.BACKWARD
        )


def test_a_consumer_only_reads() -> None:
    """It is asked by BACKWARD where producers are asked by FORWARD or FULL."""
    present = [Version(0, avro(record(("id", "int"), ("note", "string"))))]
    fewer, more = avro(record(("id", "int"))), avro(record(("id", "int"), ("x", "int")))
    for strategy in (SchemaStrategy.FORWARD, SchemaStrategy.FULL, SchemaStrategy.BACKWARD):
        check_consumer(present, fewer, strategy)
        with pytest.raises(IncompatibleSchema):
            check_consumer(present, more, strategy)
    with pytest.raises(IncompatibleSchema):
        check_consumer(present, fewer, SchemaStrategy.FULL_TRANSITIVE)
    with pytest.raises(IncompatibleSchema, match=r"empty.BYTES. schema"):
        check_consumer([], fewer, SchemaStrategy.FULL)
    check_consumer([], fewer, SchemaStrategy.ALWAYS_COMPATIBLE)
