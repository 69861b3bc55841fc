"""JSON as Pulsar's Jackson writes it: no spaces, characters as they are, numbers as Java's.

Records that went through Geminga come out byte for byte as they went in, so that comparing,
caching and compare-and-set by content work as they do between Java brokers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite, isnan
from typing import NoReturn

from geminga_protocol.records.errors import MalformedRecord

# Between these a Java double is written without an exponent.
_PLAIN_DOUBLE_MIN = 1e-3
_PLAIN_DOUBLE_LIMIT = 1e7


def parse_object(value: bytes, record: str) -> dict[str, object]:
    """The members of a JSON object; ``record`` names it in errors. Raises ``MalformedRecord``."""
    try:
        text = value.decode()
        document = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:
            render(document)  # an escape can stand for half a character, which UTF-8 has not
    except (ValueError, RecursionError) as error:
        raise MalformedRecord(record, str(error)) from error
    if not isinstance(document, dict):
        raise MalformedRecord(record, "the JSON is no object")
    return document


def render(document: object) -> bytes:
    """A document of None, bool, int, float, str, sequences and mappings, as Jackson writes it."""
    pieces: list[str] = []
    _render(document, pieces)
    return "".join(pieces).encode()


def double_text(number: float) -> str:
    """A number as ``Double.toString`` has it; what is not finite becomes a quoted word."""
    if not isfinite(number):
        return '"NaN"' if isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'
    text = repr(number)
    if number == 0 or _PLAIN_DOUBLE_MIN <= abs(number) < _PLAIN_DOUBLE_LIMIT:
        return text
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *others = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(others) or '0'}E{exponent + len(others)}"


def _render(value: object, pieces: list[str]) -> None:
    match value:
        case None:
            pieces.append("null")
        case bool():
            pieces.append("true" if value else "false")
        case int():
            pieces.append(str(value))
        case float():
            pieces.append(double_text(value))
        case str():
            pieces.append(encode_basestring(value))
        case Mapping():
            pieces.append("{")
            for index, (name, member) in enumerate(value.items()):
                pieces.append(f"{',' if index else ''}{encode_basestring(name)}:")
                _render(member, pieces)
            pieces.append("}")
        case list() | tuple():
            pieces.append("[")
            for index, item in enumerate(value):
                if index:
                    pieces.append(",")
                _render(item, pieces)
            pieces.append("]")
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
