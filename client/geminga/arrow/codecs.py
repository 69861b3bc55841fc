"""Payloads of one schema as a column, and columns as payloads.

A codec takes many payloads at a time: a value that cannot be read does no harm to the others.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Any

import pyarrow as pa
import pyarrow.json as arrow_json

from geminga.arrow.kinds import LOCAL_US, TIME, UTC_US, Kind, fields_of, record_of
from geminga.schemas.avro import AvroSchema, fastavro, parse
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

Payloads = Sequence[bytes | None]
# What is wrong with the payloads of some rows.
Errors = MutableMapping[int, str]
# So many rows in a row are of that version of the topic's schema.
VersionRun = tuple[int, bytes | None]

# What Arrow and the libraries of schemas raise for values of the wrong type, size or range.
UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, error)


class Codec(ABC):
    """Reads and writes the payloads of one schema. ``column`` is the type of its column."""

    column: pa.DataType

    @abstractmethod
    def decode(
        self, payloads: Payloads, errors: Errors, versions: Sequence[VersionRun], /
    ) -> pa.Array:
        """The column of payloads; null for those that are, and for those that ``errors`` names."""

    @abstractmethod
    def encode(self, column: pa.Array) -> list[bytes | None]:
        """The payloads of a column; none for a row that is null. Raises ``ValueError``."""


def _column(kind: Kind, values: Sequence[Any], errors: Errors, first: int = 0) -> pa.Array:
    """The column of values as they are stored. Those that do not fit are found by halving."""
    try:
        return kind.from_values(values)
    except UNFIT as wrong:
        if len(values) == 1:
            errors[first] = f"the schema has no such value: {wrong}"
            return pa.nulls(1, kind.column)
    half = len(values) // 2
    halves = (
        _column(kind, values[:half], errors, first),
        _column(kind, values[half:], errors, first + half),
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
        return _column(_TEXT, payloads, errors)

    def encode(self, column: pa.Array) -> list[bytes | None]:
        """UTF-8. Raises ``ValueError`` for what cannot be made text."""
        try:
            return column.cast(pa.string()).cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
        except pa.ArrowException as wrong:
            raise ValueError(f"a column of {column.type} is no text") from wrong


_TEXT = Kind("string", pa.binary(), pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class Primitive:
    """How a value stands in a payload, and which number Arrow makes its value of."""

    form: Struct
    kind: Kind
    # Makes the number of what the form unpacks, and back.
    load: Callable[..., Any] = lambda value: value
    dump: Callable[[Any], tuple[Any, ...]] = lambda value: (value,)


def _number(form: str, kind: pa.DataType) -> Primitive:
    return Primitive(Struct(form), Kind(None, kind, kind, kind))


def _time(
    form: str,
    types: tuple[pa.DataType, pa.DataType, pa.DataType],
    *converts: Callable[..., Any],
) -> Primitive:
    return Primitive(Struct(form), Kind(None, *types), *converts)


_US, _DAY_MS, _DAY_US = 1_000_000, 86_400_000, 86_400_000_000
_INT64 = pa.int64()
# The bytes are those of ``geminga.schemas.primitives``.
PRIMITIVES: Mapping[SchemaType, Primitive] = {
    SchemaType.BOOLEAN: _number(">?", pa.bool_()),
    SchemaType.INT8: _number(">b", pa.int8()),
    SchemaType.INT16: _number(">h", pa.int16()),
    SchemaType.INT32: _number(">i", pa.int32()),
    SchemaType.INT64: _number(">q", pa.int64()),
    SchemaType.FLOAT: _number(">f", pa.float32()),
    SchemaType.DOUBLE: _number(">d", pa.float64()),
    # A day, as Pulsar's connector for Spark has it, though its values have a time of day.
    SchemaType.DATE: _time(">q", (_INT64, pa.timestamp("ms"), pa.date32())),
    SchemaType.TIMESTAMP: _time(">q", (_INT64, pa.timestamp("ms", tz="UTC"), UTC_US)),
    # Java's values have a day more or less.
    SchemaType.TIME: _time(
        ">q",
        (_INT64, pa.time64("us"), TIME),
        lambda ms: ms % _DAY_MS * 1000,
        lambda us: (us // 1000,),
    ),
    SchemaType.INSTANT: _time(
        ">qi",
        (_INT64, UTC_US, UTC_US),
        lambda seconds, ns: seconds * _US + ns // 1000,
        lambda us: (us // _US, us % _US * 1000),
    ),
    SchemaType.LOCAL_DATE: _time(">q", (pa.int32(), pa.date32(), pa.date32())),
    SchemaType.LOCAL_TIME: _time(">q", (_INT64, TIME, TIME)),
    SchemaType.LOCAL_DATE_TIME: _time(
        ">qq",
        (_INT64, LOCAL_US, LOCAL_US),
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
            if payload is not None:
                if len(payload) == size:
                    value = load(*unpack(payload))
                else:
                    errors[row] = f"it should have {size} bytes, and has {len(payload)}"
            values.append(value)
        return _column(self._primitive.kind, values, errors)

    def encode(self, column: pa.Array) -> list[bytes | None]:
        """Bytes. Raises ``ValueError`` for values of another type, or too large."""
        pack, dump = self._primitive.form.pack, self._primitive.dump
        try:
            values = self._primitive.kind.to_values(column)
            return [None if value is None else pack(*dump(value)) for value in values]
        except UNFIT as wrong:
            raise ValueError(f"the column should be of {self.column}: {wrong}") from wrong


class RecordCodec(Codec):
    """Records. ``columns`` are the fields that are wanted, or that there are; all by default."""

    def __init__(self, info: SchemaInfo, columns: Iterable[str] | None = None) -> None:
        """Raises ``ValueError`` for a definition that is none, or for a field that it has not."""
        try:
            self._fields, definition = fields_of(json.loads(info.definition))
        except KeyError as missing:
            raise ValueError(f"the schema's definition has no {missing}") from missing
        names = list(self._fields if columns is None else columns)
        unknown = [name for name in names if name not in self._fields]
        if unknown:
            raise ValueError(f"the schema has no fields {unknown}, but {', '.join(self._fields)}")
        self.required = [
            field["name"]
            for field in definition["fields"]
            if "default" not in field and "null" not in field["type"]
        ]
        """The fields that every record must have."""
        self._kind = record_of({name: self._fields[name] for name in names}, definition)
        self.column = self._kind.column

    def _rows(
        self, loaded: Sequence[Any], convert: Callable[[Any], Any] | None, errors: Errors
    ) -> pa.Array:
        """The column of records as their library has them."""
        if convert is None:
            return _column(self._kind, loaded, errors)
        rows: list[Any] = []
        for row, record in enumerate(loaded):
            try:
                rows.append(None if record is None else convert(record))
            except UNFIT as wrong:
                errors[row] = f"the schema has no such value: {wrong}"
                rows.append(None)
        return _column(self._kind, rows, errors)

    def _values(self, column: pa.Array, convert: Callable[[Any], Any] | None) -> list[Any]:
        try:
            values = self._kind.to_values(column)
            if convert is None:
                return values
            return [None if value is None else convert(value) for value in values]
        except UNFIT as wrong:
            raise ValueError(f"the columns do not fit the schema: {wrong}") from wrong


class JsonCodec(RecordCodec):
    """Records as JSON."""

    def __init__(self, info: SchemaInfo, columns: Iterable[str] | None = None) -> None:
        super().__init__(info, columns)
        self._dump = json.JSONEncoder(
            separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode
        self._is_arrows = self._kind.from_json is None and not _has_map(self._kind.stored)

    def decode(self, payloads: Payloads, errors: Errors, _: Sequence[VersionRun], /) -> pa.Array:
        """Objects; what the schema has no field for is left out, what is missing is null."""
        return self._decode(payloads, errors, 0)

    def _decode(self, payloads: Payloads, errors: Errors, first: int) -> pa.Array:
        """By Arrow, where it can: 4 times as fast. Where it fails, by halves, and one by one."""
        if len(payloads) < 2 or not self._is_arrows:
            mine: dict[int, str] = {}
            rows = self._rows(self._loaded(payloads, mine), self._kind.from_json, mine)
            errors.update({first + row: wrong for row, wrong in mine.items()})
            return rows
        try:
            return self._arrows(payloads)
        except UNFIT:
            half = len(payloads) // 2
            halves = (
                self._decode(payloads[:half], errors, first),
                self._decode(payloads[half:], errors, first + half),
            )
            return pa.concat_arrays(halves)

    def _arrows(self, payloads: Payloads) -> pa.Array:
        lines = b"\n".join([b"{}" if payload is None else payload for payload in payloads])
        lines.decode()  # Arrow does not check that text is UTF-8
        table = arrow_json.read_json(
            pa.BufferReader(lines),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(self._kind.stored)),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(payloads):
            raise ValueError("a payload is no object, or several")
        (stored,) = table.to_struct_array().chunks
        if None in payloads:
            is_null = pa.array([payload is None for payload in payloads])
            stored = pa.StructArray.from_arrays(
                stored.flatten(), fields=list(stored.type), mask=is_null
            )
        return self._kind.from_stored(stored)

    def _loaded(self, payloads: Payloads, errors: Errors) -> list[Any]:
        rows: list[Any] = []
        for row, payload in enumerate(payloads):
            try:
                record = None if payload is None else json.loads(payload)
            except ValueError as wrong:
                errors[row], record = f"it is no JSON: {wrong}", None
            if payload is not None and not isinstance(record, dict):
                errors.setdefault(row, "it is no object")
                record = None
            rows.append(record)
        return rows

    def encode(self, column: pa.Array) -> list[bytes | None]:
        """UTF-8. Raises ``ValueError`` for a value that JSON has not."""
        values = self._values(column, self._kind.to_json)
        return [None if value is None else self._dump(value).encode() for value in values]


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(number).type) for number in range(kind.num_fields))


class AvroCodec(RecordCodec):
    """Records in Avro's binary form."""

    def __init__(self, info: SchemaInfo, columns: Iterable[str] | None = None) -> None:
        super().__init__(info, columns)
        self._schema = AvroSchema[Any](object, definition=self._kind.definition)
        self._parsed = parse(self._kind.definition)
        # How payloads of each version are read; of those that cannot be, what raises why.
        self._readers: dict[bytes | None, Callable[[bytes], Any]] = {None: self._schema.decode}

    def knows(self, version: bytes | None) -> bool:
        """Whether payloads of that version can be decoded, or were given up."""
        return version in self._readers

    def learn(self, version: bytes, writer: SchemaInfo | None) -> None:
        """That is what the version was written with; ``None`` if there is no such version."""
        name = f"its schema, version {version.hex()},"
        if writer is None:
            self._readers[version] = _refusing(f"{name} is not there any more")
        elif writer.type is not SchemaType.AVRO:
            self._readers[version] = _refusing(f"{name} is of type {writer.type.name}")
        else:
            try:
                _, definition = fields_of(json.loads(writer.definition))
                told = SchemaInfo(SchemaType.AVRO, writer.name, json.dumps(definition).encode())
                self._readers[version] = self._schema.reader_of(told)
            except (KeyError, ValueError) as wrong:
                self._readers[version] = _refusing(f"{name} is of no use: {wrong}")

    def decode(
        self, payloads: Payloads, errors: Errors, versions: Sequence[VersionRun], /
    ) -> pa.Array:
        """Records, each read by the schema that it was written with."""
        loaded: list[Any] = []
        for count, version in versions:
            read = self._readers[version]
            for payload in payloads[len(loaded) : len(loaded) + count]:
                record = None
                if payload is not None:
                    try:
                        record = read(payload)
                    except ValueError as wrong:
                        errors[len(loaded)] = str(wrong)
                loaded.append(record)
        return self._rows(loaded, self._kind.from_avro, errors)

    def encode(self, column: pa.Array) -> list[bytes | None]:
        """Avro's binary form. Raises ``ValueError`` for a value that the schema has not."""
        values = self._values(column, self._kind.to_avro)
        out, parsed, write = io.BytesIO(), self._parsed, fastavro().schemaless_writer
        bounds = [0]
        for row, value in enumerate(values):
            if value is not None:
                try:
                    write(out, parsed, value)
                except Exception as wrong:  # the library raises whatever its types do
                    raise ValueError(
                        f"row {row}: the schema has no such value: {wrong!r}"
                    ) from wrong
            bounds.append(out.tell())
        whole = out.getvalue()
        return [
            None if value is None else whole[bounds[row] : bounds[row + 1]]
            for row, value in enumerate(values)
        ]


def _refusing(reason: str) -> Callable[[bytes], Any]:
    def refuse(_: bytes) -> Any:  # noqa: ANN401 - as all that read
        raise ValueError(reason)

    return refuse


def codec_of(info: SchemaInfo | None, columns: Iterable[str] | None = None) -> Codec:
    """The codec of a schema, of a record only those ``columns``; without a schema that of bytes.

    Raises ``ValueError`` for a definition that is none, ``MissingExtra`` for Avro without its
    extra.
    """
    if info is None or info.type is SchemaType.NONE:
        return RawCodec()
    if info.type is SchemaType.STRING:
        return StringCodec()
    if info.type in PRIMITIVES:
        return PrimitiveCodec(PRIMITIVES[info.type])
    if info.type is SchemaType.JSON:
        return JsonCodec(info, columns)
    if info.type is SchemaType.AVRO:
        return AvroCodec(info, columns)
    return RawCodec()  # of Protobuf's messages, say
