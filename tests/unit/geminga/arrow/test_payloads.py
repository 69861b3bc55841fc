"""Proves that payloads become the columns that their schema describes, and that a payload which
cannot be read spoils no other."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geminga
from geminga import AvroSchema, JsonSchema, KeyValueSchema, Schema, SchemaInfo, SchemaType
from geminga.arrow import payload_fields
from geminga.arrow.payloads import codec_of
from geminga.schemas.key_value import join

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
DAY_BEFORE = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def decoded(
    info: SchemaInfo | None, payloads: list[bytes | None], columns: list[str] | None = None
) -> tuple[list[Any], dict[int, str]]:
    errors: dict[int, str] = {}
    codec = codec_of(info, columns)
    column = codec.decode(payloads, errors, [(len(payloads), None)])
    assert column.type == codec.column
    column.validate(full=True)
    return column.to_pylist(), errors


@pytest.mark.parametrize(
    ("schema", "kind", "values"),
    [
        (geminga.BytesSchema(), pa.binary(), [b"", b"\0\xff"]),
        (geminga.StringSchema(), pa.string(), ["", "ä"]),
        (geminga.BoolSchema(), pa.bool_(), [True, False]),
        (geminga.Int8Schema(), pa.int8(), [-128, 127]),
        (geminga.Int16Schema(), pa.int16(), [-(2**15), 2**15 - 1]),
        (geminga.Int32Schema(), pa.int32(), [-(2**31), 2**31 - 1]),
        (geminga.Int64Schema(), pa.int64(), [-(2**63), 2**63 - 1]),
        (geminga.FloatSchema(), pa.float32(), [0.5, -1.0]),
        (geminga.DoubleSchema(), pa.float64(), [0.1, 1e300]),
        (geminga.TimestampSchema(), pa.timestamp("us", tz="UTC"), [MOMENT, DAY_BEFORE]),
        (geminga.InstantSchema(), pa.timestamp("us", tz="UTC"), [MOMENT, DAY_BEFORE]),
        (geminga.LocalDateSchema(), pa.date32(), [date(2026, 1, 2), date(1, 1, 1)]),
        (geminga.TimeSchema(), pa.time64("ns"), [time(23, 59, 59, 999_000)]),
        (geminga.LocalTimeSchema(), pa.time64("ns"), [time(23, 59, 59, 999_999), time(0)]),
        (
            geminga.LocalDateTimeSchema(),
            pa.timestamp("us"),
            [MOMENT.replace(tzinfo=None), DAY_BEFORE.replace(tzinfo=None)],
        ),
    ],
)
def test_a_single_value_is_a_column(
    schema: Schema[Any], kind: pa.DataType, values: list[Any]
) -> None:
    info = schema.schema_info
    assert payload_fields(info) == pa.schema([("value", kind)])
    payloads = [*[schema.encode(value) for value in values], None]
    assert decoded(info, payloads) == ([*values, None], {})


def test_a_date_of_java_is_a_day() -> None:
    schema = geminga.DateSchema()
    payloads: list[bytes | None] = [schema.encode(MOMENT), schema.encode(DAY_BEFORE)]
    assert decoded(schema.schema_info, payloads) == ([date(2026, 1, 2), date(1969, 12, 31)], {})


@pytest.mark.parametrize(
    ("schema", "bad", "reason"),
    [
        (geminga.StringSchema(), b"\xff", "UTF8"),
        (geminga.Int32Schema(), b"abc", "4 bytes, and has 3"),
        (geminga.LocalDateSchema(), b"\x7f" * 8, "no such value"),
    ],
)
def test_a_value_that_cannot_be_read_is_null_and_named(
    schema: Schema[Any], bad: bytes, reason: str
) -> None:
    info = schema.schema_info
    good = {SchemaType.STRING: "a", SchemaType.INT32: 1, SchemaType.LOCAL_DATE: date(2000, 1, 1)}
    assert info is not None
    value = good[info.type]
    payload = schema.encode(value)
    values, errors = decoded(info, [payload, bad, None, payload, payload, bad])
    assert values == [value, None, None, value, value, None]
    assert list(errors) == [1, 5]
    assert reason in errors[1]


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal"}
DEFINITION: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "com.example",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "b", "type": ["null", "bytes"]},
        {"name": "ms", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "us", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "time", "type": ["null", {"type": "int", "logicalType": "time-millis"}]},
        {
            "name": "price",
            "type": [
                "null",
                {**DECIMAL, "precision": 6, "scale": 2},
            ],
        },
        {"name": "kind", "type": ["null", {"type": "enum", "name": "K", "symbols": ["A", "B"]}]},
        {"name": "again", "type": ["null", "K"]},
        {"name": "wide", "type": ["null", "int", "long"]},
        {"name": "real", "type": ["float", "double", "null"]},
        {"name": "either", "type": ["null", "int", "string", {"type": "array", "items": "K"}]},
        {"name": "list", "type": ["null", {"type": "array", "items": ["null", "double"]}]},
        {
            "name": "part",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Part",
                    "fields": [{"name": "at", "type": MICROS}],
                },
            ],
        },
        {"name": "map", "type": ["null", {"type": "map", "values": "Part"}]},
    ],
}
AVRO_FULL: dict[str, Any] = {
    "i": 1,
    "s": "ä",
    "b": b"\0\xff",
    "ms": MOMENT,
    "us": datetime.fromisoformat("2026-01-02T03:04:05.000006"),
    "day": date(2026, 1, 2),
    "time": time(1, 2, 3, 4_000),
    "price": Decimal("-12.50"),
    "kind": "A",
    "again": "B",
    "wide": 2**40,
    "real": 0.5,
    "either": "text",
    "list": [1.5, None],
    "part": {"at": MOMENT},
    "map": {"k": {"at": MOMENT}},
}
COLUMNS_FULL: dict[str, Any] = {
    **AVRO_FULL,
    "either": {"member0": None, "member1": "text", "member2": None},
    "map": [("k", {"at": MOMENT})],
}
EMPTY: dict[str, Any] = {**dict.fromkeys(AVRO_FULL), "i": 2}


def test_the_fields_of_an_avro_record_are_columns() -> None:
    schema = AvroSchema[Any](object, definition=DEFINITION)
    info = schema.schema_info
    assert payload_fields(info).names == list(AVRO_FULL)
    others = [{**EMPTY, "either": 5}, {**EMPTY, "either": ["A"]}]
    payloads = [schema.encode(each) for each in (AVRO_FULL, EMPTY, *others)]
    values, errors = decoded(info, [*payloads, None, b"\x02\x02\xff"])
    assert values[:2] == [COLUMNS_FULL, EMPTY]
    assert values[2]["either"] == {"member0": 5, "member1": None, "member2": None}
    assert values[3]["either"] == {"member0": None, "member1": None, "member2": ["A"]}
    assert values[4:] == [None, None]
    assert list(errors) == [5]


def test_the_members_of_a_json_object_are_columns() -> None:
    info = JsonSchema(object, definition=DEFINITION).schema_info
    full = {
        "i": 1,
        "s": "ä",
        "b": "AP8=",
        "ms": 1_767_323_045_678,
        "us": 1_767_323_045_000_006,
        "day": 20_455,
        "time": 3_723_004,
        "price": -12.5,
        "kind": "A",
        "again": "B",
        "wide": 2**40,
        "real": 0.5,
        "either": "text",
        "list": [1.5, None],
        "part": {"at": 1_767_323_045_678_000},
        "map": {"k": {"at": 1_767_323_045_678_000}},
        "unknown": 1,
    }
    payloads = [json.dumps(each).encode() for each in (full, {"i": 2}, {"i": "3"}, [1])]
    values, errors = decoded(info, [*payloads, b"{", None, b"\xff"])
    assert values == [COLUMNS_FULL, EMPTY, None, None, None, None, None]
    assert sorted(errors) == [2, 3, 4, 6]
    assert "no object" in errors[3]
    assert "no JSON" in errors[4]


PLAIN: dict[str, Any] = {
    "type": "record",
    "name": "Plain",
    "fields": [
        {"name": "i", "type": ["null", "long"]},
        {"name": "s", "type": ["null", "string"]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "l", "type": ["null", {"type": "array", "items": "double"}]},
    ],
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=3,
)
PLAIN_RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(),
        "at": st.none() | st.integers(-(10**13), 10**13),
        "l": st.none() | st.lists(st.floats(allow_nan=False, allow_infinity=False)),
        "more": JSON_VALUES,
    },
)


ODD_RECORDS = st.dictionaries(st.sampled_from(["i", "s", "l"]), JSON_VALUES)
ODD = [b"", b"{", b"}", b'{"i":1}{"i":2}', b'{"s":"\xff"}', b"\n", b' {"i":1}\n', b'{"s":{}', b"[]"]
JSON_PAYLOADS = (
    PLAIN_RECORDS.map(lambda record: json.dumps(record, ensure_ascii=False).encode())
    | ODD_RECORDS.map(lambda record: json.dumps(record, indent=1).encode())
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.sampled_from(ODD)
)


@given(st.lists(st.none() | JSON_PAYLOADS, max_size=12))
def test_many_json_objects_at_a_time_are_what_they_are_one_by_one(
    payloads: list[bytes | None],
) -> None:
    info = JsonSchema(object, definition=PLAIN).schema_info
    together, errors = decoded(info, payloads)
    alone = [decoded(info, [payload]) for payload in payloads]
    assert together == [values[0] for values, _ in alone]
    assert set(errors) == {row for row, (_, wrong) in enumerate(alone) if wrong}


def test_only_the_columns_that_are_wanted_are_made() -> None:
    avro = AvroSchema[Any](object, definition=DEFINITION)
    assert decoded(avro.schema_info, [avro.encode(AVRO_FULL)], ["kind", "i"])[0] == [
        {"kind": "A", "i": 1}
    ]
    as_json = JsonSchema(object, definition=DEFINITION).schema_info
    assert decoded(as_json, [b'{"i": 1, "kind": 5}'], ["i"])[0] == [{"i": 1}]
    with pytest.raises(ValueError, match=r"no fields \['x'\]"):
        codec_of(as_json, ["x"])


def test_avro_is_read_by_the_schema_that_it_was_written_with() -> None:
    def record(*fields: dict[str, Any], name: str = "R") -> SchemaInfo:
        definition = {"type": "record", "name": name, "fields": fields}
        return AvroSchema[Any](object, definition=definition).schema_info

    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    old = record({"name": "gone", "type": "string"}, at, name="Old")
    new = record(at, {"name": "added", "type": "int", "default": 7})
    codec = codec_of(new)
    assert codec.wants(b"\0")
    assert not codec.wants(None)
    codec.learn(b"\0", old)
    codec.learn(b"\1", None)
    codec.learn(b"\2", geminga.StringSchema().schema_info)
    codec.learn(b"\3", SchemaInfo(SchemaType.AVRO, "", b"{}"))
    codec.learn(b"\4", record({"name": "other", "type": "string"}))
    assert not codec.wants(b"\1")
    payload = AvroSchema[Any](object, definition=json.loads(old.definition)).encode(
        {"gone": "x", "at": MOMENT}
    )
    errors: dict[int, str] = {}
    runs = [(2, b"\0"), *[(1, bytes([version])) for version in (1, 2, 3, 4)]]
    column = codec.decode([payload, None, *[payload] * 4], errors, runs)
    assert column.to_pylist() == [{"at": MOMENT, "added": 7}, *[None] * 5]
    assert sorted(errors) == [2, 3, 4, 5]
    assert "not there any more" in errors[2]
    assert "of type STRING" in errors[3]
    assert "of no use" in errors[4]


def test_pairs_are_a_key_and_a_value() -> None:
    order = AvroSchema[Any](object, definition={**DEFINITION, "fields": DEFINITION["fields"][:2]})
    schema = KeyValueSchema(geminga.StringSchema(), order)
    info = schema.schema_info
    fields = payload_fields(info)
    assert fields == pa.schema(
        [("key", pa.string()), ("value", pa.struct([("i", pa.int32()), ("s", pa.string())]))]
    )
    pair = ("k", {"i": 1, "s": None})
    payloads = [schema.encode(pair), schema.encode((None, None)), None, b"\0", join(b"k", b"")]
    values, errors = decoded(info, payloads)
    assert values == [
        {"key": "k", "value": {"i": 1, "s": None}},
        {"key": None, "value": None},
        None,
        None,
        None,
    ]
    assert sorted(errors) == [3, 4]
    codec = codec_of(info)
    assert codec.wants(b"\1")
    codec.learn(b"\1", info)
    assert not codec.wants(b"\1")
    assert codec.decode(payloads[:1], {}, [(1, b"\1")]).to_pylist() == values[:1]
    codec.learn(b"\2", None)
    assert codec.decode(payloads[:1], errors := {}, [(1, b"\2")]).to_pylist() == [None]
    assert list(errors) == [0]


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({"type": "string"}, "no record"),
        ({"type": "record", "name": "R"}, "no 'fields'"),
        ({"fields": [{"name": "x", "type": "Unknown"}]}, "no type of Avro"),
        ({"fields": [{"name": "next", "type": ["null", "R"]}]}, "holds itself"),
        ({"fields": [{"name": "x", "type": {"items": "int"}}]}, "no Avro schema"),
        ({"fields": [{"name": "x", "type": {**DECIMAL, "precision": 50}}]}, "50 digits"),
    ],
)
def test_a_definition_that_has_no_columns_is_refused(
    definition: dict[str, Any], reason: str
) -> None:
    whole = {"type": "record", "name": "R", **definition}
    for kind in (SchemaType.JSON, SchemaType.AVRO):
        with pytest.raises(ValueError, match=reason):
            payload_fields(SchemaInfo(kind, "", json.dumps(whole).encode()))


def test_payloads_of_a_schema_that_needs_a_class_are_bytes() -> None:
    for kind in (SchemaType.PROTOBUF, SchemaType.PROTOBUF_NATIVE):
        assert payload_fields(SchemaInfo(kind)) == pa.schema([("value", pa.binary())])
