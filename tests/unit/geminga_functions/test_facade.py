"""Proves that the facade stands in for the official client in functions: the same classes, and
records with the same schemas, by which values are read as they were written."""

from __future__ import annotations

from enum import Enum
from types import ModuleType
from typing import Any

import pulsar.functions.context
import pulsar.schema
import pytest

import geminga
import geminga_functions.facade.pulsar as facade
import geminga_functions.facade.pulsar.schema
from geminga_functions.instance.context import Context
from geminga_functions.instance.record_schemas import AvroRecords, JsonRecords

OFFICIAL, OURS = pulsar.schema, geminga_functions.facade.pulsar.schema


class Colour(Enum):
    RED = 1
    BLUE = 2


def records(schema: Any) -> Any:
    """The same record, declared with either module."""

    class Inner(schema.Record):  # type: ignore[misc]
        _avro_namespace = "a.b"
        name = schema.String(required=True)

    class Outer(schema.Record):  # type: ignore[misc]
        number = schema.Integer(default=5, required_default=True)
        size = schema.Long()
        ratio = schema.Double(required=True)
        half = schema.Float()
        yes = schema.Boolean()
        raw = schema.Bytes()
        colour = Colour
        inner = Inner()
        words = schema.Array(schema.String())
        others = schema.Array(Inner())
        counts = schema.Map(schema.Integer())

    return Outer, Inner


def test_records_have_the_schemas_that_the_official_client_gives_them() -> None:
    assert records(OURS)[0].schema() == records(OFFICIAL)[0].schema()


@pytest.mark.parametrize("kind", [JsonRecords, AvroRecords])
@pytest.mark.parametrize("module", [OFFICIAL, OURS])
def test_records_are_read_as_they_were_written(module: ModuleType, kind: type[JsonRecords]) -> None:
    outer, inner = records(module)
    schema = kind(outer)
    value = outer(
        number=1,
        size=2,
        ratio=0.5,
        half=0.25,
        yes=True,
        colour=Colour.BLUE,
        inner=inner(name="x"),
        words=["a", "b"],
        others=[inner(name="y")],
        counts={"c": 3},
    )
    if kind is AvroRecords:
        value.raw = b"bytes"  # JSON has none
    read = schema.decode(schema.encode(value))
    for name in ("number", "size", "ratio", "half", "yes", "raw", "words", "counts"):
        assert getattr(read, name) == getattr(value, name), name
    assert read.inner.name == "x"
    assert read.others[0].name == "y"
    with pytest.raises(TypeError):
        schema.encode("no record")


def test_records_are_read_by_the_schema_of_their_writer() -> None:
    class Old(OURS.Record):
        name = OURS.String()

    class New(OURS.Record):
        name = OURS.String()
        size = OURS.Integer(default=7, required=True, required_default=True)

    New.__name__ = "Old"
    written = AvroRecords(Old)
    read = AvroRecords(New).reader_of(written.schema_info)(written.encode(Old(name="x")))
    assert (read.name, read.size) == ("x", 7)


def test_a_record_refuses_what_it_does_not_declare() -> None:
    outer, _ = records(OURS)
    record = outer(ratio=0.5)
    with pytest.raises(AttributeError):
        record.colours = "red"
    with pytest.raises(TypeError):
        record.number = "five"
    record.colour = "RED"
    assert record.colour is Colour.RED
    assert record == outer(ratio=0.5, colour=Colour.RED)
    assert record != outer(ratio=0.5)


def test_the_context_has_every_method_of_the_official_one() -> None:
    official = {name for name in vars(pulsar.functions.context.Context) if name[0] != "_"}
    assert official <= {name for name in dir(Context) if name[0] != "_"}
    assert len(official) >= 28


def test_the_facade_exports_what_functions_import() -> None:
    for name in facade.__all__:
        assert hasattr(facade, name)
        assert hasattr(pulsar, name), f"the official client has no {name}"
    assert isinstance(geminga.StringSchema(), OURS.StringSchema)
