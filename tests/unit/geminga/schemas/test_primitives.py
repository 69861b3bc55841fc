"""Proves that single values have the bytes that Pulsar's Java client gives them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from geminga import (
    BoolSchema,
    DateSchema,
    DoubleSchema,
    FloatSchema,
    InstantSchema,
    Int8Schema,
    Int16Schema,
    Int32Schema,
    Int64Schema,
    LocalDateSchema,
    LocalDateTimeSchema,
    LocalTimeSchema,
    Schema,
    SchemaType,
    StringSchema,
    TimeSchema,
    TimestampSchema,
)

MOMENT = datetime(2026, 1, 31, 16, 53, 8, 123456, UTC)
LOCAL = datetime(1970, 1, 2, 0, 0, 1)  # noqa: DTZ001 - it is of no time zone
MOMENT_MS = 1_769_878_388_123

# By Java's: big-endian; dates in milliseconds, local ones in days and nanoseconds.
BYTES: list[tuple[Schema[Any], Any, str]] = [
    (BoolSchema(), True, "01"),
    (BoolSchema(), False, "00"),
    (Int8Schema(), -2, "fe"),
    (Int16Schema(), -2, "fffe"),
    (Int32Schema(), 1 << 20, "00100000"),
    (Int64Schema(), -1, "ff" * 8),
    (FloatSchema(), 1.5, "3fc00000"),
    (DoubleSchema(), -2.0, "c000000000000000"),
    (StringSchema(), "é", "c3a9"),
    (DateSchema(), MOMENT.replace(microsecond=123_000), f"{MOMENT_MS:016x}"),
    (TimestampSchema(), MOMENT.replace(microsecond=123_000), f"{MOMENT_MS:016x}"),
    (TimeSchema(), time(0, 0, 1, 5_000), f"{1_005:016x}"),
    (InstantSchema(), MOMENT, f"{MOMENT_MS // 1000:016x}{123_456_000:08x}"),
    (InstantSchema(), datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC), "ff" * 8 + "1dcd6500"),
    (LocalDateSchema(), date(1970, 1, 11), f"{10:016x}"),
    (LocalDateSchema(), date(1969, 12, 31), "ff" * 8),
    (LocalTimeSchema(), time(1, 0, 0, 1), f"{3_600_000_001_000:016x}"),
    (LocalDateTimeSchema(), LOCAL, f"{1:016x}{1_000_000_000:016x}"),
]


@pytest.mark.parametrize(("schema", "value", "text"), BYTES, ids=lambda each: repr(each)[:30])
def test_a_value_has_javas_bytes(schema: Schema[Any], value: object, text: str) -> None:
    assert schema.encode(value).hex() == text
    assert schema.decode(bytes.fromhex(text)) == value


@pytest.mark.parametrize(
    "schema", [each[0] for each in BYTES if not isinstance(each[0], StringSchema)]
)
@given(payload=some.binary(max_size=20))
def test_any_bytes_are_a_value_or_refused(schema: Schema[Any], payload: bytes) -> None:
    try:
        value = schema.decode(payload)
    except ValueError:
        return
    again = schema.decode(schema.encode(value))
    assert again == value or again != again  # noqa: PLR0124 - not a number


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Int8Schema(), 128),
        (Int64Schema(), 1 << 63),
        (FloatSchema(), 1e300),
        (InstantSchema(), datetime(2026, 1, 1)),  # noqa: DTZ001 - that is what is wrong
        (LocalDateTimeSchema(), MOMENT),
        (StringSchema(), "\ud800"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(schema: Schema[Any], value: object) -> None:
    with pytest.raises(ValueError, match=r"fit|large|zone|surrogates"):
        schema.encode(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Int32Schema(), "1"),
        (Int32Schema(), True),
        (BoolSchema(), 1),
        (StringSchema(), b"a"),
        (LocalDateSchema(), 3),
        (DoubleSchema(), "1"),
    ],
)
def test_a_value_of_another_type_is_refused(schema: Schema[Any], value: object) -> None:
    with pytest.raises(TypeError, match="should be"):
        schema.encode(value)


def test_a_moment_is_the_same_in_each_time_zone() -> None:
    east = MOMENT.astimezone(timezone(timedelta(hours=8)))
    assert InstantSchema().encode(east) == InstantSchema().encode(MOMENT)


def test_what_brokers_are_told() -> None:
    info = Int32Schema().schema_info
    assert info.type is SchemaType.INT32
    assert info.definition == b""
