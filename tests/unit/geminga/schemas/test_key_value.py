"""Proves how pairs of keys and values are laid out, and described to brokers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from geminga import Int32Schema, KeyValueSchema, SchemaInfo, SchemaType, StringSchema
from geminga.schemas.key_value import join, parts_of, split

PAIR = KeyValueSchema(StringSchema(), Int32Schema())


def test_a_pair_in_one_payload() -> None:
    payload = PAIR.encode(("ab", 5))
    assert payload.hex() == "00000002" + "6162" + "00000004" + "00000005"
    assert PAIR.decode(payload) == ("ab", 5)


@pytest.mark.parametrize("pair", [(None, 5), ("ab", None), (None, None)])
def test_either_may_be_null(pair: tuple[str | None, int | None]) -> None:
    assert PAIR.decode(PAIR.encode(pair)) == pair
    assert PAIR.decode_parts(*PAIR.encode_parts(pair)) == pair


def test_what_brokers_are_told() -> None:
    info = KeyValueSchema(StringSchema(), Int32Schema(), "SEPARATED").schema_info
    assert info.type is SchemaType.KEY_VALUE
    assert split(info.definition) == (b"", b"")
    assert info.properties["kv.encoding.type"] == "SEPARATED"
    assert info.properties["key.schema.type"] == "STRING"
    assert info.properties["value.schema.name"] == "INT32"
    assert json.loads(info.properties["value.schema.properties"]) == {}


@pytest.mark.parametrize("said", [{"key.schema.type": "BYTES", "key.schema.name": "Bytes"}, {}])
def test_a_part_of_bytes_is_known_by_upstreams_name_or_by_none(said: dict[str, str]) -> None:
    others = {"value.schema.type": "INT32", "value.schema.name": "INT32"}
    info = SchemaInfo(SchemaType.KEY_VALUE, "KeyValue", join(b"", b""), said | others)
    assert [part.type for part in parts_of(info)] == [SchemaType.NONE, SchemaType.INT32]


def test_a_part_of_an_unknown_type_is_refused() -> None:
    said = {"key.schema.type": "STRING", "value.schema.type": "RUNES"}
    info = SchemaInfo(SchemaType.KEY_VALUE, "KeyValue", join(b"", b""), said)
    with pytest.raises(ValueError, match="what its value is"):
        parts_of(info)


@given(key=some.none() | some.binary(), value=some.none() | some.binary())
def test_what_is_joined_is_split(key: bytes | None, value: bytes | None) -> None:
    assert split(join(key, value)) == (key, value)


@given(payload=some.binary(max_size=30))
def test_any_bytes_are_a_pair_or_refused(payload: bytes) -> None:
    try:
        parts = split(payload)
    except ValueError:
        return
    assert join(*parts) == payload


@pytest.mark.parametrize("value", ["ab", ("ab",), ("ab", 1, 2), ["ab", 1]])
def test_what_is_no_pair_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="tuple"):
        PAIR.encode(value)


def test_an_encoding_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="SIDEWAYS"):
        KeyValueSchema(StringSchema(), Int32Schema(), "SIDEWAYS")
