"""Proves what classes are in Avro, and that their values come back from JSON and Avro."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import pydantic
import pytest

from geminga import AvroSchema, AvroType, JsonSchema
from geminga.schemas.records import json_definition, kind_of


class Color(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Item:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: int
    note: str | None
    items: list[Item]
    by_place: dict[str, Item]
    price: float
    secret: bytes
    is_paid: bool
    color: Color = Color.BLUE
    small: Annotated[int, AvroType("int")] = 3
    last: Item | None = None
    title: str | None = "none"
    colors: list[Color] = field(default_factory=list)


ORDER = Order(
    id=1,
    note=None,
    items=[Item("a"), Item("b", 2)],
    by_place={"top": Item("c")},
    price=0.5,
    secret=b"\xff\x00",
    is_paid=True,
    color=Color.RED,
    last=Item("z"),
    colors=[Color.BLUE],
)


def test_the_definition_of_a_class() -> None:
    fields = {each["name"]: each for each in kind_of(Order).definition["fields"]}
    item = {
        "type": "record",
        "name": "Item",
        "fields": [
            {"name": "sku", "type": "string"},
            {"name": "count", "type": "long", "default": 1},
        ],
    }
    assert fields["id"] == {"name": "id", "type": "long"}
    assert fields["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    assert fields["items"] == {"name": "items", "type": {"type": "array", "items": item}}
    # Defined once, named from then on.
    assert fields["by_place"]["type"] == {"type": "map", "values": "Item"}
    assert fields["small"] == {"name": "small", "type": "int", "default": 3}
    assert fields["last"] == {"name": "last", "type": ["null", "Item"], "default": None}
    # A default is of the first branch of its union.
    assert fields["title"] == {"name": "title", "type": ["string", "null"], "default": "none"}
    assert fields["color"]["default"] == "BLUE"
    assert fields["colors"] == {
        "name": "colors",
        "type": {"type": "array", "items": "Color"},
        "default": [],
    }


@pytest.mark.parametrize("make", [JsonSchema, AvroSchema])
def test_a_value_comes_back(make: Any) -> None:
    schema = make(Order)
    assert schema.decode(schema.encode(ORDER)) == ORDER


def test_what_is_missing_in_json_has_its_default() -> None:
    schema = JsonSchema(Order)
    payload = (
        b'{"id":1,"items":[],"by_place":{},"price":1.0,"secret":"","is_paid":false,"more":[1]}'
    )
    read = schema.decode(payload)
    assert read == Order(1, None, [], {}, 1.0, b"", is_paid=False)


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"{}", b'{"sku":1,', b'{"count":1}', b"\xff", b"null"]
)
def test_json_that_is_no_such_record_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        JsonSchema(Item).decode(payload)


def test_a_value_of_another_class_is_refused() -> None:
    for schema in (JsonSchema(Item), AvroSchema(Item)):
        with pytest.raises(TypeError, match="should be of type Item"):
            schema.encode(ORDER)  # type: ignore[arg-type]


@dataclass
class Times:
    at: datetime
    day: date
    id: UUID


TIMES = Times(datetime(2026, 1, 31, 1, 2, 3, 4, UTC), date(2026, 1, 31), UUID(int=5))


def test_dates_are_logical_types_in_avro_and_text_in_json() -> None:
    definition = kind_of(Times).definition
    assert [each["type"]["logicalType"] for each in definition["fields"]] == [
        "timestamp-micros",
        "date",
        "uuid",
    ]
    assert [each["type"] for each in json_definition(definition)["fields"]] == ["string"] * 3
    for schema in (JsonSchema(Times), AvroSchema(Times)):
        assert schema.decode(schema.encode(TIMES)) == TIMES


@dataclass
class Unknown:
    inner: list[complex]


@dataclass
class Both:
    value: int | str


@pytest.mark.parametrize("hint", [Unknown, Both, int, list[int]])
def test_a_class_of_which_no_schema_can_be_made_is_named(hint: Any) -> None:
    if hint in (Unknown, Both):
        with pytest.raises(TypeError, match=r"(inner|value).* is of type"):
            JsonSchema(hint)
    else:
        assert kind_of(hint).definition  # a field's type, though no record


class Model(pydantic.BaseModel):
    id: int
    item: Color | None = None
    tags: list[str] = []


@pytest.mark.parametrize("make", [JsonSchema, AvroSchema])
def test_pydantic_models_are_records(make: Any) -> None:
    value = Model(id=3, tags=["a"])
    schema = make(Model)
    assert schema.decode(schema.encode(value)) == value
    assert kind_of(Model).definition["fields"][0] == {"name": "id", "type": "long"}


def test_pydantic_judges_what_it_reads() -> None:
    with pytest.raises(ValueError, match="id"):
        JsonSchema(Model).decode(b'{"id":"no number"}')
