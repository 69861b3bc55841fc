"""Avro's binary form: as the reference library writes and reads it."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.schemas.avro_binary import decode_avro, encode_avro
from geminga_broker.schemas.rules.avro import parse_avro
from geminga_protocol.errors import WireError

EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": "string"},
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B", "C"]}},
        {"name": "list", "type": {"type": "array", "items": "int"}},
        {"name": "map", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "next", "type": ["null", "Everything"], "default": None},
    ],
}
KIND = parse_avro(json.dumps(EVERYTHING).encode())
FAST: Any = fastavro.parse_schema(EVERYTHING)

FIELDS: dict[str, Any] = {
    "flag": st.booleans(),
    "small": st.integers(-(2**31), 2**31 - 1),
    "large": st.integers(-(2**63), 2**63 - 1),
    "single": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "raw": st.binary(max_size=200),
    "text": st.text(max_size=50),
    "fixed": st.binary(min_size=3, max_size=3),
    "kind": st.sampled_from("ABC"),
    "list": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=70),
    "map": st.dictionaries(st.text(max_size=5), st.none() | st.integers(-9, 9), max_size=5),
}
values = st.recursive(st.none(), lambda inner: st.fixed_dictionaries(FIELDS | {"next": inner}))
records = st.fixed_dictionaries(FIELDS | {"next": values})


@given(records)
def test_it_is_what_the_reference_library_writes(value: dict[str, Any]) -> None:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, FAST, value)
    assert encode_avro(KIND, value) == written.getvalue()
    assert decode_avro(KIND, written.getvalue()) == value


@given(records, st.integers(0, 300), st.binary(max_size=20))
def test_a_stream_that_is_cut_or_damaged_gives_wire_errors_and_nothing_else(
    value: dict[str, Any], at: int, garbage: bytes
) -> None:
    written = encode_avro(KIND, value)
    if at < len(written):
        with pytest.raises(WireError):
            decode_avro(KIND, written[:at])
    with pytest.raises(WireError):
        decode_avro(KIND, written + b"\0")
    with suppress(WireError):
        decode_avro(KIND, written[:at] + garbage + written[at + len(garbage) :])


def test_items_are_bounded_by_the_bytes_there_are() -> None:
    numbers = parse_avro(b'{"type": "array", "items": "int"}')
    with pytest.raises(WireError, match="in fewer bytes"):
        decode_avro(numbers, b"\xfe\xff\xff\xff\x0f\x02\x00")
    # A block with a negative count says its size, too.
    assert decode_avro(numbers, b"\x03\x04\x02\x04\x00") == [1, 2]


def test_a_value_that_is_too_deep_is_refused() -> None:
    chain = parse_avro(
        b'{"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}'
    )
    assert decode_avro(chain, b"\x02\x02\x00") == {"next": {"next": {"next": None}}}
    with pytest.raises(WireError, match="deep"):
        decode_avro(chain, b"\x02" * 1000 + b"\x00")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ('"int"', 2**31),
        ('"int"', True),
        ('"long"', 2**63),
        ('["null", "int"]', "1"),
        ('{"type": "enum", "name": "K", "symbols": ["A"]}', "B"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}', {}),
        ('{"type": "record", "name": "R", "fields": []}', {"a": 1}),
    ],
)
def test_what_the_schema_has_no_place_for_is_refused(schema: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"is no|has no|is missing"):
        encode_avro(parse_avro(schema.encode()), value)
