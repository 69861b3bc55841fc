"""Proves that columns become the payloads that the client's own schemas make of the same values."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import geminga
from geminga import AvroSchema, JsonSchema, Schema, SchemaInfo, SchemaType, schema_of
from geminga.arrow import PayloadEncoder, payload_schema

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
UTC_US, LOCAL_US = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def payloads(info: SchemaInfo | None, columns: pa.Schema, rows: list[dict[str, Any]]) -> list[Any]:
    encoder = PayloadEncoder(info, columns)
    return encoder.payloads(pa.RecordBatch.from_pylist(rows, schema=columns))


@pytest.mark.parametrize(
    ("kind", "values", "schema"),
    [
        (pa.string(), ["ä", ""], geminga.StringSchema()),
        (pa.large_string(), ["ä", ""], geminga.StringSchema()),
        (pa.bool_(), [True, False], geminga.BoolSchema()),
        (pa.int8(), [-128, 127], geminga.Int8Schema()),
        (pa.int16(), [-(2**15), 2**15 - 1], geminga.Int16Schema()),
        (pa.int32(), [-(2**31), 2**31 - 1], geminga.Int32Schema()),
        (pa.int64(), [-(2**63), 2**63 - 1], geminga.Int64Schema()),
        (pa.float32(), [1.5, -0.0], geminga.FloatSchema()),
        (pa.float64(), [1e300, 0.1], geminga.DoubleSchema()),
        (
            UTC_US,
            [MOMENT, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)],
            geminga.TimestampSchema(),
        ),
        (
            LOCAL_US,
            [MOMENT.replace(tzinfo=None), datetime(1, 1, 1, tzinfo=UTC).replace(tzinfo=None)],
            geminga.LocalDateTimeSchema(),
        ),
        (pa.time64("ns"), [time(23, 59, 59, 999_999), time(0)], geminga.LocalTimeSchema()),
    ],
)
def test_a_single_column_is_the_value_itself(
    kind: pa.DataType, values: list[Any], schema: Schema[Any]
) -> None:
    columns = pa.schema([("any name", kind)])
    info = payload_schema(columns)
    assert info == schema.schema_info
    made = payloads(info, columns, [{"any name": value} for value in [*values, None]])
    assert made == [*[schema.encode(value) for value in values], None]


def test_a_day_is_a_date_of_java() -> None:
    columns = pa.schema([("day", pa.date32())])
    info = payload_schema(columns)
    assert info == geminga.DateSchema().schema_info
    (made,) = payloads(info, columns, [{"day": date(2026, 1, 2)}])
    assert geminga.DateSchema().decode(made) == datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schema", "kind", "value"),
    [
        (geminga.InstantSchema(), UTC_US, MOMENT.replace(microsecond=678_901)),
        (geminga.InstantSchema(), UTC_US, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (geminga.LocalDateSchema(), pa.date32(), date(1969, 12, 31)),
        (geminga.TimeSchema(), pa.time64("ns"), time(1, 2, 3, 4_000)),
        (geminga.Int64Schema(), pa.int16(), 7),
    ],
)
def test_a_topic_s_schema_decides_what_a_column_becomes(
    schema: Schema[Any], kind: pa.DataType, value: object
) -> None:
    columns = pa.schema([("v", kind)])
    assert payloads(schema.schema_info, columns, [{"v": value}]) == [schema.encode(value)]


def test_bytes_and_text_are_payloads_as_they_are() -> None:
    for kind in (pa.binary(), pa.large_binary(), pa.string()):
        columns = pa.schema([("v", kind)])
        assert payloads(None, columns, [{"v": b"ab"}, {"v": None}]) == [b"ab", None]
    assert payload_schema(pa.schema([("v", pa.binary())])) is None


COLUMNS = pa.schema(
    [
        pa.field("i", pa.int32(), nullable=False),
        ("small", pa.int8()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("t", UTC_US),
        ("local", LOCAL_US),
        ("day", pa.date32()),
        ("time", pa.time64("ns")),
        ("d", pa.decimal128(5, 2)),
        ("list", pa.list_(UTC_US)),
        ("map", pa.map_(pa.string(), pa.binary())),
        ("nested", pa.struct([("x", pa.float32()), ("y", pa.struct([("z", pa.bool_())]))])),
    ]
)
FULL: dict[str, Any] = {
    "i": 1,
    "small": -1,
    "s": "ä",
    "b": b"\0\xff",
    "t": MOMENT,
    "local": datetime.fromisoformat("2026-01-02"),
    "day": date(2026, 1, 2),
    "time": time(1, 2, 3),
    "d": Decimal("-1.25"),
    "list": [MOMENT, None],
    "map": {"k": b"v", "none": None},
    "nested": {"x": 1.5, "y": {"z": True}},
}
EMPTY: dict[str, Any] = {**dict.fromkeys(FULL), "i": 2}


def test_columns_are_fields_of_an_avro_record() -> None:
    info = payload_schema(COLUMNS)
    assert info is not None
    assert info.type is SchemaType.AVRO
    schema = schema_of(info)
    full, empty = payloads(info, COLUMNS, [FULL, EMPTY])
    assert schema.decode(full) == FULL
    assert schema.decode(empty) == EMPTY
    definition = json.loads(info.definition)
    assert definition["name"] == "topLevelRecord"
    assert definition["fields"][0] == {"name": "i", "type": "int"}
    assert definition["fields"][2] == {"name": "s", "type": ["null", "string"], "default": None}


def test_columns_are_members_of_a_json_object() -> None:
    info = payload_schema(COLUMNS, "json")
    assert info is not None
    assert info.type is SchemaType.JSON
    full, empty = payloads(info, COLUMNS, [FULL, EMPTY])
    micros = 1_767_323_045_678_000
    assert json.loads(full) == {
        "i": 1,
        "small": -1,
        "s": "ä",
        "b": "AP8=",
        "t": micros,
        "local": 1_767_312_000_000_000,
        "day": 20_455,
        "time": 3_723_000_000,
        "d": "-1.25",
        "list": [micros, None],
        "map": {"k": "dg==", "none": None},
        "nested": {"x": 1.5, "y": {"z": True}},
    }
    assert json.loads(empty) == EMPTY


def test_a_single_column_of_a_nested_type_is_a_record() -> None:
    info = payload_schema(pa.schema([("v", pa.list_(pa.int64()))]))
    assert info is not None
    assert info.type is SchemaType.AVRO


def test_columns_are_written_for_the_schema_that_a_topic_has() -> None:
    definition = {
        "type": "record",
        "name": "Order",
        "namespace": "com.example",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "other", "type": ["null", "Kind"], "default": None},
            {"name": "amount", "type": ["int", "string"]},
            {"name": "note", "type": "string", "default": "none"},
        ],
    }
    union = pa.struct([("member0", pa.int32()), ("member1", pa.string())])
    columns = pa.schema([("kind", pa.string()), ("at", UTC_US), ("amount", union)])
    rows = [
        {"kind": "A", "at": MOMENT, "amount": {"member0": 5, "member1": None}},
        {"kind": "B", "at": MOMENT, "amount": {"member0": None, "member1": "many"}},
    ]
    avro = AvroSchema[Any](object, definition=definition)
    first, second = [avro.decode(each) for each in payloads(avro.schema_info, columns, rows)]
    assert first == {"kind": "A", "at": MOMENT, "amount": 5, "note": "none", "other": None}
    assert second["amount"] == "many"
    as_json = JsonSchema[Any](object, definition=definition)
    made = payloads(as_json.schema_info, columns, rows)
    assert json.loads(made[0]) == {"kind": "A", "at": 1_767_323_045_678, "amount": 5}
    with pytest.raises(ValueError, match="row 1: the schema has no such"):
        payloads(avro.schema_info, columns, [rows[0], {**rows[1], "kind": "C"}])
    with pytest.raises(ValueError, match=r"wants the fields \['at', 'amount'\]"):
        PayloadEncoder(avro.schema_info, pa.schema([("kind", pa.string())]))
    with pytest.raises(ValueError, match=r"no fields \['more'\]"):
        PayloadEncoder(avro.schema_info, columns.append(pa.field("more", pa.string())))
    with pytest.raises(ValueError, match="do not fit"):
        PayloadEncoder(avro.schema_info, columns.set(1, pa.field("at", pa.list_(pa.int8()))))


def test_a_key_and_a_value_are_a_pair() -> None:
    value = AvroSchema[Any](
        object,
        definition={"type": "record", "name": "R", "fields": [{"name": "i", "type": "int"}]},
    )
    schema = geminga.KeyValueSchema(geminga.StringSchema(), value)
    columns = pa.schema([("value", pa.struct([("i", pa.int32())])), ("key", pa.string())])
    rows: list[dict[str, Any]] = [{"key": "k", "value": {"i": 1}}, {"key": None, "value": None}]
    made = payloads(schema.schema_info, columns, rows)
    assert made == [schema.encode(("k", {"i": 1})), schema.encode((None, None))]
    with pytest.raises(ValueError, match=r"key and value, not of \['key'\]"):
        PayloadEncoder(schema.schema_info, pa.schema([("key", pa.string())]))
    apart = geminga.KeyValueSchema(geminga.StringSchema(), value, "SEPARATED")
    with pytest.raises(ValueError, match="stand apart"):
        PayloadEncoder(apart.schema_info, columns)


def test_what_cannot_be_written_is_refused() -> None:
    two = pa.schema([("a", pa.string()), ("b", pa.string())])
    with pytest.raises(ValueError, match="at least one"):
        payload_schema(pa.schema([]))
    with pytest.raises(ValueError, match=r"nested\.x is of type uint8"):
        payload_schema(pa.schema([("nested", pa.struct([("x", pa.uint8())]))]))
    for schema in (geminga.StringSchema(), geminga.Int8Schema()):
        with pytest.raises(ValueError, match="one column, and not of 2: a, b"):
            PayloadEncoder(schema.schema_info, two)
    with pytest.raises(ValueError, match="no payload by itself"):
        PayloadEncoder(None, pa.schema([("v", pa.list_(pa.int8()))]))
    columns = pa.schema([("v", pa.int64())])
    with pytest.raises(ValueError, match="should be of int8"):
        payloads(geminga.Int8Schema().schema_info, columns, [{"v": 300}])
    columns = pa.schema([("v", pa.float64()), ("w", pa.float64())])
    with pytest.raises(ValueError, match="JSON"):
        payloads(payload_schema(columns, "json"), columns, [{"v": float("nan"), "w": 1.0}])


def test_an_encoder_is_a_schema_for_producers() -> None:
    encoder = PayloadEncoder(geminga.StringSchema().schema_info, pa.schema([("v", pa.string())]))
    assert encoder.schema_info == geminga.StringSchema().schema_info
    assert encoder.decode(encoder.encode(b"payload")) == b"payload"
