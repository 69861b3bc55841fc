"""Proves that JSON is what the official client writes and reads."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulsar.schema
import pytest

from geminga import JsonSchema, SchemaType


@dataclass
class Order:
    id: int
    name: str | None = None


class OfficialOrder(pulsar.schema.Record):  # type: ignore[misc]
    id = pulsar.schema.Long(required=True)
    name = pulsar.schema.String()


def test_the_official_client_reads_what_we_write_and_we_read_what_it_writes() -> None:
    official, ours = pulsar.schema.JsonSchema(OfficialOrder), JsonSchema(Order)
    read = official.decode(ours.encode(Order(3, "é")))
    assert (read.id, read.name) == (3, "é")
    assert ours.decode(official.encode(OfficialOrder(id=4))) == Order(4)


def test_plain_values_need_a_definition() -> None:
    definition = {"type": "record", "name": "Any", "fields": []}
    schema = JsonSchema(dict, definition=definition, properties={"a": "1"})
    assert schema.decode(schema.encode({"x": [1, None]})) == {"x": [1, None]}
    assert schema.schema_info.type is SchemaType.JSON
    assert json.loads(schema.schema_info.definition) == definition
    assert schema.schema_info.properties == {"a": "1"}
    with pytest.raises(TypeError, match="dict"):
        schema.encode([])  # type: ignore[arg-type]
