"""Payloads that are records, as a column of structs: JSON and Avro."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json as arrow_json

from geminga.arrow.codecs import UNFIT, Codec, Errors, Payloads, VersionRun, column_of
from geminga.arrow.kinds import fields_of, record_of
from geminga.consumers.incoming.values import VERSIONS_KEPT_MAX
from geminga.schemas.avro import AvroSchema, fastavro, parse
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType


class RecordCodec(Codec):
    """Reads the ``columns`` that are wanted, or writes those that are given; by default all fields
    of the record."""

    def __init__(self, info: SchemaInfo, columns: Iterable[str] | None = None) -> None:
        """Raises ``ValueError`` for a definition that cannot be used, or a field that it does not
        have."""
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
        # The definition stays whole: Avro's payloads can only be read from the first field to the
        # last.
        self._kind = record_of({name: self._fields[name] for name in names}, definition)
        self.column = self._kind.column

    def _rows(
        self, loaded: Sequence[Any], convert: Callable[[Any], Any] | None, errors: Errors
    ) -> pa.Array:
        """The column of records that their library has loaded; ``errors`` gets those that do not
        fit."""
        if convert is None:
            return column_of(self._kind, loaded, errors)
        # One by one, so that a record that cannot be converted costs no other.
        rows: list[Any] = []
        for row, record in enumerate(loaded):
            try:
                rows.append(None if record is None else convert(record))
            except UNFIT as wrong:
                errors[row] = f"the schema has no such value: {wrong}"
                rows.append(None)
        return column_of(self._kind, rows, errors)

    def _values(self, column: pa.Array, convert: Callable[[Any], Any] | None) -> list[Any]:
        """The records of a column, as their library takes them. Raises ``ValueError``."""
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
        # Can Arrow read the records? It leaves values as they are, and reads no maps.
        self._is_arrows = self._kind.from_json is None and not _has_map(self._kind.stored)

    def decode(
        self, payloads: Payloads, errors: Errors, _: Sequence[VersionRun] = (), /, first: int = 0
    ) -> pa.Array:
        """Objects; values for which the schema has no field are left out, missing ones are null.

        ``first`` is the row of the first payload.
        """
        # By Arrow, where it can read them: 4 times as fast. Where it fails, it fails for all, and
        # they are read in halves, down to single ones by Python's ``json``.
        if len(payloads) < 2 or not self._is_arrows:
            mine: dict[int, str] = {}
            loaded: list[Any] = []
            for row, payload in enumerate(payloads):
                try:
                    record = None if payload is None else json.loads(payload)
                except ValueError as wrong:
                    mine[row], record = f"it is no JSON: {wrong}", None
                if payload is not None and not isinstance(record, dict):
                    mine.setdefault(row, "it is no object")
                    record = None
                loaded.append(record)
            # Its rows are counted from 0, those of all payloads from ``first`` on.
            rows = self._rows(loaded, self._kind.from_json, mine)
            errors.update({first + row: wrong for row, wrong in mine.items()})
            return rows
        try:
            return self._arrows(payloads)
        except UNFIT:
            half = len(payloads) // 2
            halves = (
                self.decode(payloads[:half], errors, first=first),
                self.decode(payloads[half:], errors, first=first + half),
            )
            return pa.concat_arrays(halves)

    def _arrows(self, payloads: Payloads) -> pa.Array:
        """Read all payloads by Arrow, which raises for any that it cannot read."""
        objects = [b"{}" if payload is None else payload.strip() for payload in payloads]
        # Each is at least one object. If there are as many rows as payloads, each is just one.
        if not all(each[:1] == b"{" and each[-1:] == b"}" for each in objects):
            raise ValueError("a payload is no object")
        # An object of several lines stays one object (``newlines_in_values``), so that the number
        # of lines says nothing; that of rows is compared below.
        lines = b"\n".join(objects)
        lines.decode()  # Arrow does not check that text is UTF-8
        table = arrow_json.read_json(
            pa.BufferReader(lines),
            # One block, or an object could be cut where a block ends.
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(self._kind.stored)),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        # Two objects in one payload would shift all rows behind it.
        if table.num_rows != len(payloads):
            raise ValueError("a payload is several objects")
        (stored,) = table.to_struct_array().chunks
        # Null payloads were read as empty objects, to keep their places.
        if None in payloads:
            is_null = pa.array([payload is None for payload in payloads])
            stored = pa.StructArray.from_arrays(
                stored.flatten(), fields=list(stored.type), mask=is_null
            )
        return self._kind.from_stored(stored)

    def encode(self, column: pa.Array) -> list[bytes | None]:
        """JSON in UTF-8. Raises ``ValueError`` for a value that JSON does not have."""
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
        # What reads payloads of each version, or raises why they cannot be read.
        self._readers: dict[bytes | None, Callable[[bytes], Any]] = {None: self._schema.decode}

    def wants(self, version: bytes | None, /) -> bool:
        """Must this version be learned before payloads of it can be read?"""
        return version not in self._readers

    def learn(self, version: bytes, writer: SchemaInfo | None, /) -> None:
        """Learn how payloads of a version are read, or why they cannot be."""
        # Dicts keep their order: the version that was learned first goes. The one of key ``None``
        # stays.
        if len(self._readers) > VERSIONS_KEPT_MAX:
            del self._readers[next(version for version in self._readers if version is not None)]
        name = f"its schema, version {version.hex()},"
        if writer is None:
            self._readers[version] = _refusing(f"{name} is not there any more")
        elif writer.type is not SchemaType.AVRO:
            self._readers[version] = _refusing(f"{name} is of type {writer.type.name}")
        else:
            try:
                _, definition = fields_of(json.loads(writer.definition))
                # In the form of ``fields_of``, as the reader's own: both sides then have dates and
                # times as plain numbers.
                told = SchemaInfo(SchemaType.AVRO, writer.name, json.dumps(definition).encode())
                self._readers[version] = self._schema.reader_of(told)
            except (KeyError, ValueError) as wrong:
                self._readers[version] = _refusing(f"{name} is of no use: {wrong}")

    def decode(
        self, payloads: Payloads, errors: Errors, versions: Sequence[VersionRun], /
    ) -> pa.Array:
        """Records, each read by the schema that it was written with."""
        loaded: list[Any] = []
        # The runs cover all payloads, and each version was learned before: the owner asks ``wants``
        # for every entry.
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
        """Avro's binary form. Raises ``ValueError`` for a value that does not fit the schema."""
        values = self._values(column, self._kind.to_avro)
        # All into one stream, which is cut afterwards: a stream for each row would cost more.
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
            # For a null row, too, which then has no bytes.
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
