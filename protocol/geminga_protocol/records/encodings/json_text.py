"""JSON as Jackson writes it for Pulsar: no spaces, no escapes for Unicode, numbers as in Java.

A record that Geminga reads and writes back is byte for byte what it was, so that comparing, caching
and compare-and-set by content work as they do between Java brokers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite, isnan
from types import NoneType
from typing import Any, NoReturn

from geminga_protocol.records.errors import MalformedRecord

# A Java double from the first to below the second is written without an exponent.
_PLAIN_DOUBLE_MIN = 1e-3
_PLAIN_DOUBLE_LIMIT = 1e7


def parse_object(value: bytes, record: str) -> dict[str, object]:
    """The members of a JSON object; ``record`` names it in errors. Raises ``MalformedRecord``."""
    try:
        text = value.decode()
        # Python's reader would accept NaN and Infinity without quotes, which Java brokers do not.
        document = json.loads(text, parse_constant=_refuse_constant)
        # An escape can stand for half a surrogate pair, which cannot be encoded as UTF-8 later.
        if "\\u" in text:
            # Only to see whether it can be written.
            render(document)
    except (ValueError, RecursionError) as error:
        raise MalformedRecord(record, str(error)) from error
    if not isinstance(document, dict):
        raise MalformedRecord(record, "the JSON is no object")
    return document


def render(document: object) -> bytes:
    """A document of None, bool, int, float, str, sequences and mappings, as Jackson writes it."""
    return _text(document).encode()


def double_text(number: float) -> str:
    """A number as ``Double.toString`` writes it; a number that is not finite as a quoted word."""
    # In this range Python's ``repr`` writes what Java does: 100.0, 0.001. Zero has a sign in both.
    if number == 0 or _PLAIN_DOUBLE_MIN <= abs(number) < _PLAIN_DOUBLE_LIMIT:
        return repr(number)
    if not isfinite(number):
        return '"NaN"' if isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'
    text = repr(number)
    # Python and Java agree on the digits, the fewest that name the number, but not on the form of
    # the exponent: Python's 1.5e+17 is Java's 1.5E17.
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *others = map(str, digits)
    # ``exponent`` is that of the last digit; Java's counts from the first.
    return f"{'-' * sign}{first}.{''.join(others) or '0'}E{exponent + len(others)}"


def _text(value: object) -> str:
    write = _WRITERS.get(type(value))
    if write is not None:
        return write(value)
    match value:
        case Mapping():
            return _object_text(value)
        case list() | tuple():
            return _array_text(value)
        case int():  # a member of an ``IntEnum``
            return str(int(value))
        case str():
            return encode_basestring(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def _object_text(members: Mapping[str, object]) -> str:
    # The order of members is kept: Jackson writes fields in the order of their declaration.
    texts = [f"{encode_basestring(name)}:{_text(member)}" for name, member in members.items()]
    return f"{{{','.join(texts)}}}"


def _array_text(items: Sequence[object]) -> str:
    return f"[{','.join(map(_text, items))}]"


# By the exact type, because a broker's load report has 10,000 values: ``match`` takes three times
# as long to find the right case.
_WRITERS: Mapping[type, Callable[[Any], str]] = {
    NoneType: lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: int.__repr__,
    float: double_text,
    str: encode_basestring,
    dict: _object_text,
    list: _array_text,
    tuple: _array_text,
}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
