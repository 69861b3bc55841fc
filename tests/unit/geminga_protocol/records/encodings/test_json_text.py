"""JSON comes out as Jackson writes it, and only JSON goes in."""

from __future__ import annotations

import json
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.project_files import GOLDEN

from geminga_protocol.records.encodings.json_text import double_text, parse_object, render
from geminga_protocol.records.errors import MalformedRecord

RECORDED = GOLDEN / "records" / "jackson.jsonl"
DOUBLES = [
    line["text"]
    for line in map(json.loads, RECORDED.read_text().splitlines())
    if line["kind"] == "double"
]

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize("text", DOUBLES)
def test_a_number_is_written_as_java_writes_it(text: str) -> None:
    assert double_text(float(text)) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_number_reads_as_itself(number: float) -> None:
    assert float(double_text(number)) == number


@pytest.mark.parametrize(
    ("number", "text"),
    [(nan, '"NaN"'), (inf, '"Infinity"'), (-inf, '"-Infinity"'), (0.0, "0.0"), (-0.0, "-0.0")],
)
def test_special_numbers_are_written_as_java_writes_them(number: float, text: str) -> None:
    assert double_text(number) == text


@given(st.dictionaries(st.text(), documents, max_size=4))
def test_what_was_rendered_parses_to_itself(document: dict[str, object]) -> None:
    text = render(document)
    infinities = json.loads(json.dumps(document), parse_constant=str)
    assert parse_object(text, "test") == infinities


def test_nothing_is_added_and_nothing_escaped_without_need() -> None:
    document = {"ä": [1, 2.5, None], "b": {"c": True, "d": ()}, "e": 'x"\\\n\x01'}
    expected = '{"ä":[1,2.5,null],"b":{"c":true,"d":[]},"e":"x\\"\\\\\\n\\u0001"}'
    assert render(document) == expected.encode()


def test_what_has_no_json_form_is_our_own_mistake() -> None:
    with pytest.raises(TypeError, match="bytes"):
        render({"a": b""})


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"7",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1',
        b"\xff",
        b'{"a":"\\ud800"}',
        b'{"\\udc00":1}',
        b'{"a":' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_json_object_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedRecord, match="thing"):
        parse_object(value, "thing")


def test_an_escaped_pair_is_one_character() -> None:
    assert parse_object(b'{"a":"\\ud83d\\ude00"}', "test") == {"a": "\U0001f600"}
