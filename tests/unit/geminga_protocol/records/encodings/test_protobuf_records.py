"""Messages are parsed strictly: required fields are there and texts are UTF-8."""

from __future__ import annotations

import pytest

from geminga_protocol.records.encodings.protobuf_records import parse_message, text_of, texts_of
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.managed_ledgers_pb2 import KeyValue


def test_a_whole_message_is_parsed() -> None:
    message = KeyValue(key="k", value="ü")
    assert parse_message(KeyValue, message.SerializeToString(), "pair") == message


def test_a_missing_required_field_is_noticed() -> None:
    with pytest.raises(MalformedRecord, match="not a pair record: a required field is missing"):
        parse_message(KeyValue, b"\x0a\x01k", "pair")


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(MalformedRecord):
        parse_message(KeyValue, b"\xff", "pair")


def test_text_that_is_not_utf8_is_refused() -> None:
    message = parse_message(KeyValue, b"\x0a\x01\xff\x12\x01a", "pair")
    with pytest.raises(MalformedRecord, match="UTF-8"):
        text_of(message.key, "pair")
    assert text_of(message.value, "pair") == "a"
    with pytest.raises(MalformedRecord):
        texts_of([message.value, message.key], "pair")
