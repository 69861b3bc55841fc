"""Protobuf's text form is written as Java writes it and parsed strictly."""

from __future__ import annotations

import pytest

from geminga_protocol.records.encodings.text_records import parse_text, render_text, text_of_bytes
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.managed_ledgers_pb2 import KeyValue


def test_a_message_is_a_field_a_line_in_ascii() -> None:
    text = render_text(KeyValue(key='a\t"', value="ü"))
    assert text == 'key: "a\\t\\""\nvalue: "\\303\\274"\n'
    assert parse_text(KeyValue, text, "pair") == KeyValue(key='a\t"', value="ü")


NO_ESCAPE = r'key: "\ " value: "b"'


@pytest.mark.parametrize(
    "text", ["", 'key: "a"\n', "key: 7", "other: 1", "{", 'key: "\\377"', NO_ESCAPE]
)
def test_what_is_no_such_message_is_refused(text: str) -> None:
    with pytest.raises(MalformedRecord, match="pair"):
        parse_text(KeyValue, text, "pair")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(MalformedRecord):
        text_of_bytes(b"\xff", "pair")
