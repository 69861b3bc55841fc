"""Payloads of one schema as a column, and columns as payloads: bytes, text, numbers and times.

A codec takes many payloads at a time, and reports those that cannot be read beside the column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Any

import pyarrow as pa

from geminga.arrow.kinds import LOCAL_US, TIME, UTC_US, Kind, plain_kind
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

Payloads = Sequence[bytes | None]
# Why payloads cannot be read, by their rows.
Errors = MutableMapping[int, str]
# How many rows follow each other that have this version of the topic's schema.
VersionRun = tuple[int, bytes | None]

# What Arrow and the libraries of schemas raise for values of the wrong type, size or range.
UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, error)


# ``decode`` never raises for a payload: a bad one is null in the column and has a reason in
# ``errors``, so that all columns of a batch keep the same rows. What becomes of it is decided where
# rows are made (``BadRecords``). ``encode`` raises, since its columns come from a program that can
# mend them.
class Codec(ABC):
    """Reads and writes the payloads of one schema."""

    # The type of the column.
    column: pa.DataType

    @abstractmethod
    def decode(
        self, payloads: Payloads, errors: Errors, versions: Sequence[VersionRun], /
    ) -> pa.Array:
        """The column of these payloads. Null payloads are null in it, and so are those that cannot
        be read, for which ``errors`` gets the reason."""

    def wants(self, _: bytes | None, /) -> bool:
        """Must this version of the schema be learned before payloads of it can be read?"""
        return False

    def learn(self, version: bytes, writer: SchemaInfo | None, /) -> None:  # noqa: B027 - most need not
        """Learn the schema of a version; ``None`` if there is no such version."""

    @abstractmethod
    def encode(self, column: pa.Array) -> list[bytes | None]:
        """The payloads of a column, ``None`` for a null row. Raises ``ValueError``."""


def column_of(kind: Kind, values: Sequence[Any], errors: Errors, first: int = 0) -> pa.Array:
    """The column of stored values. Values that do not fit are null, with a reason in ``errors``,
    by their rows from ``first`` on."""
    # Arrow converts all values at once, or none: those that do not fit are found by halving.
    try:
        return kind.from_stored(pa.array(values, kind.stored))
    except UNFIT as wrong:
        # One bad value among many costs about three conversions of all of them: each level fails
        # for a half of what the level above it failed for, and converts the other half.
        if len(values) == 1:
            errors[first] = f"the schema has no such value: {wrong}"
            return pa.nulls(1, kind.column)
    half = len(values) // 2
    halves = (
        column_of(kind, values[:half], errors, first),
        column_of(kind, values[half:], errors, first + half),
    )
    return pa.concat_arrays(halves)


class RawCodec(Codec):
    """Payloads as they are."""

    column = pa.binary()

    def decode(self, payloads: Payloads, _: Errors, __: Sequence[VersionRun], /) -> pa.Array:
        """Payloads as they are."""
        return pa.array(payloads, pa.binary())

    def encode(self, column: pa.Array) -> list[bytes | None]:
        """Bytes, or text as UTF-8. Raises ``ValueError`` for a column of another type."""
        if column.type != pa.binary():
            try:
                column = column.cast(pa.binary())
            except pa.ArrowException as wrong:
                raise ValueError(f"a column of {column.type} is no payload by itself") from wrong
        return column.to_pylist()  # type: ignore[no-any-return]


class StringCodec(Codec):
    """Text in UTF-8."""

    column = pa.string()

    def decode(self, payloads: Payloads, errors: Errors, _: Sequence[VersionRun], /) -> pa.Array:
        """Text; that it is UTF-8 is checked."""
        return column_of(_TEXT, payloads, errors)

    def encode(self, column: pa.Array) -> list[bytes | None]:
        """UTF-8. Raises ``ValueError`` for what cannot be made text."""
        try:
            # First to text: numbers and dates get their usual form.
            return column.cast(pa.string()).cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
        except pa.ArrowException as wrong:
            raise ValueError(f"a column of {column.type} is no text") from wrong


# Stored as bytes: their cast to text checks that they are UTF-8.
_TEXT = Kind("string", pa.binary(), pa.string(), pa.string())


# A value goes through three forms: the bytes of the payload, the number that Arrow takes (``load``,
# ``dump``), and the column's value (``kind``, many at a time).
@dataclass(frozen=True, slots=True)
class Primitive:
    """How a value is stored in a payload, and which number Arrow makes of it."""

    form: Struct
    kind: Kind
    # Make one number of those that the form unpacks, and back.
    load: Callable[..., Any] = lambda value: value
    dump: Callable[[Any], tuple[Any, ...]] = lambda value: (value,)


_US, _DAY_MS, _DAY_US = 1_000_000, 86_400_000, 86_400_000_000
_INT64 = pa.int64()
# The bytes are those of ``geminga.schemas.primitives``.
PRIMITIVES: Mapping[SchemaType, Primitive] = {
    SchemaType.BOOLEAN: Primitive(Struct(">?"), plain_kind(None, pa.bool_())),
    SchemaType.INT8: Primitive(Struct(">b"), plain_kind(None, pa.int8())),
    SchemaType.INT16: Primitive(Struct(">h"), plain_kind(None, pa.int16())),
    SchemaType.INT32: Primitive(Struct(">i"), plain_kind(None, pa.int32())),
    SchemaType.INT64: Primitive(Struct(">q"), plain_kind(None, _INT64)),
    SchemaType.FLOAT: Primitive(Struct(">f"), plain_kind(None, pa.float32())),
    SchemaType.DOUBLE: Primitive(Struct(">d"), plain_kind(None, pa.float64())),
    # A date, as in Pulsar's connector for Spark, though the values have a time of day.
    SchemaType.DATE: Primitive(Struct(">q"), Kind(None, _INT64, pa.timestamp("ms"), pa.date32())),
    SchemaType.TIMESTAMP: Primitive(
        Struct(">q"), Kind(None, _INT64, pa.timestamp("ms", tz="UTC"), UTC_US)
    ),
    # Java's values are points in time: whole days are left out.
    SchemaType.TIME: Primitive(
        Struct(">q"),
        Kind(None, _INT64, pa.time64("us"), TIME),
        lambda ms: ms % _DAY_MS * 1000,
        lambda us: (us // 1000,),
    ),
    SchemaType.INSTANT: Primitive(
        Struct(">qi"),
        Kind(None, _INT64, UTC_US, UTC_US),
        lambda seconds, ns: seconds * _US + ns // 1000,
        lambda us: (us // _US, us % _US * 1000),
    ),
    SchemaType.LOCAL_DATE: Primitive(
        Struct(">q"), Kind(None, pa.int32(), pa.date32(), pa.date32())
    ),
    # Nanoseconds on both sides.
    SchemaType.LOCAL_TIME: Primitive(Struct(">q"), Kind(None, _INT64, TIME, TIME)),
    SchemaType.LOCAL_DATE_TIME: Primitive(
        Struct(">qq"),
        Kind(None, _INT64, LOCAL_US, LOCAL_US),
        lambda day, ns: day * _DAY_US + ns // 1000,
        lambda us: (us // _DAY_US, us % _DAY_US * 1000),
    ),
}


class PrimitiveCodec(Codec):
    """Numbers, dates and times: each has a fixed size."""

    def __init__(self, primitive: Primitive) -> None:
        self.column = primitive.kind.column
        self._primitive = primitive

    def decode(self, payloads: Payloads, errors: Errors, _: Sequence[VersionRun], /) -> pa.Array:
        """Numbers, dates or times."""
        form, load = self._primitive.form, self._primitive.load
        unpack, size = form.unpack, form.size
        values: list[Any] = []
        for row, payload in enumerate(payloads):
            value = None
            # A payload of another size is noted, and null: its row keeps its place.
            if payload is not None:
                if len(payload) == size:
                    value = load(*unpack(payload))
                else:
                    errors[row] = f"it should have {size} bytes, and has {len(payload)}"
            values.append(value)
        return column_of(self._primitive.kind, values, errors)

    def encode(self, column: pa.Array) -> list[bytes | None]:
        """Bytes. Raises ``ValueError`` for values of another type, or too large."""
        pack, dump = self._primitive.form.pack, self._primitive.dump
        # Columns of other programs are cast first, which may fail for one value of many.
        try:
            values = self._primitive.kind.to_values(column)
            return [None if value is None else pack(*dump(value)) for value in values]
        except UNFIT as wrong:
            raise ValueError(f"the column should be of {self.column}: {wrong}") from wrong
