"""Proves that protobuf's errors become ours, missing required fields among them."""

from __future__ import annotations

import pytest

from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import KeyValue, Schema
from geminga_protocol.pulsar.messages.protobuf import missing_fields, parse_message


def test_a_complete_message_is_parsed() -> None:
    pair = KeyValue(key="k", value="v")
    assert parse_message(KeyValue, pair.SerializeToString()) == pair


@pytest.mark.parametrize("encoded", [b"\xff", b"\x0a\x05k", b"\x0a\x01k"])
def test_garbage_and_missing_fields_are_wire_errors(encoded: bytes) -> None:
    with pytest.raises(WireError, match="KeyValue"):
        parse_message(KeyValue, encoded)


def test_missing_fields_are_named_with_their_place() -> None:
    schema = Schema(name="n", type=Schema.Json, properties=[KeyValue(key="k")])
    assert missing_fields(schema) == ("schema_data", "properties[0].value")


def test_text_that_is_not_utf8_is_a_wire_error_however_deep() -> None:
    schema = Schema(
        name="n",
        schema_data=b"\xff",
        type=Schema.Json,
        properties=[KeyValue(key="k", value="TEXT")],
    )
    encoded = schema.SerializeToString()
    assert parse_message(Schema, encoded) == schema
    with pytest.raises(WireError, match=r"KeyValue\.value is not UTF-8"):
        parse_message(Schema, encoded.replace(b"TEXT", b"\xff\xff\xff\xff"))
