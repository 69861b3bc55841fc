"""Proves that Avro is what the official client writes and reads, and that old versions are read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pulsar.schema
import pytest
from hypothesis import given
from hypothesis import strategies as some

from geminga import AvroSchema, MissingExtra, SchemaInfo, SchemaType


@dataclass
class Order:
    id: int
    name: str | None = None


@dataclass
class OrderBefore:
    id: int
    gone: str = ""


class OfficialOrder(pulsar.schema.Record):  # type: ignore[misc]
    id = pulsar.schema.Long(required=True)
    name = pulsar.schema.String()


def test_the_official_client_reads_what_we_write_and_we_read_what_it_writes() -> None:
    official: Any = pulsar.schema.AvroSchema(OfficialOrder)
    ours = AvroSchema(Order)
    read = official.decode(ours.encode(Order(3, "é")))
    assert (read.id, read.name) == (3, "é")
    assert ours.decode(official.encode(OfficialOrder(id=4))) == Order(4)


def test_what_was_written_with_an_older_schema_is_read_by_the_rules_of_avro() -> None:
    before, now = AvroSchema(OrderBefore), AvroSchema(Order)
    assert now.reader_of(before.schema_info)(before.encode(OrderBefore(3, "x"))) == Order(3)
    assert now.reader_of(now.schema_info)(now.encode(Order(3, "x"))) == Order(3, "x")


def test_a_writers_schema_that_is_none_is_refused() -> None:
    for definition in (
        *(b"", b"{}", b'{"type":"record"}', b'{"type":"unheard"}', b"5"),
        *(b'{"type":"array","items":5}', b'{"type":{"type":"map"}}'),
    ):
        with pytest.raises(ValueError, match=r"."):
            AvroSchema(Order).reader_of(SchemaInfo(SchemaType.AVRO, "", definition))


@given(payload=some.binary(max_size=40))
def test_damaged_payloads_are_refused_or_read(payload: bytes) -> None:
    schema = AvroSchema(Order)
    try:
        value = schema.decode(payload)
    except ValueError:
        return
    assert isinstance(value, Order)


def test_a_value_that_the_schema_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no such value"):
        AvroSchema(Order).encode(Order("x"))  # type: ignore[arg-type]


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingExtra, match=r"geminga\[avro\]"):
        AvroSchema(Order)
