"""Avro's types as Arrow's, for the definitions of AVRO and JSON schemas.

==============================  =================================================================
null in a union                 the column may be null (all of them may, for messages without value)
boolean, int, long, ...         bool, int32, int64, float, double, string, binary; enum: string
date; time-millis, -micros      date32; time64[ns]
timestamp-millis, -micros       timestamp[us, UTC]; local-timestamp-...: timestamp[us]
decimal                         decimal128
record, array, map              struct, list, map
union of int and long           int64; of float and double: double
another union                   struct of member0, member1, ...: one of them is not null
==============================  =================================================================

These are the types of Pulsar's connector for Spark, which are those of Spark's own for Avro. A
record that contains itself has no type in Arrow.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

# Makes one value of another.
Convert = Callable[[Any], Any]
Definition = Any  # JSON

UTC_US, LOCAL_US = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
# Of Arrow's decimal128, and of Spark's decimals.
DECIMAL_DIGITS_MAX = 38


# The way of a value from a payload to a table; writing goes the other way round:
#
#    payload ─ Avro library, json ─▶ Python's value ─ from_avro, from_json ─▶ what Arrow takes
#    ─ pa.array ─▶ stored ─ cast ─▶ unit ─ cast, digits may be lost ─▶ column
#
# For a time of milliseconds these are int64, timestamp[ms], timestamp[us].
@dataclass(frozen=True, slots=True)
class Kind:
    """What one type of Avro is in Arrow."""

    # As the Avro library is given it. Dates and times are plain numbers there: Arrow makes dates
    # and times of these, many at a time.
    definition: Definition
    # Three types of Arrow: of the plain numbers, with the resolution of the definition, and of
    # columns in tables. Most are alike.
    stored: pa.DataType
    unit: pa.DataType
    column: pa.DataType
    # Make of JSON's and Avro's values those that Arrow takes, and back; ``None`` where they are the
    # same.
    from_json: Convert | None = None
    to_json: Convert | None = None
    from_avro: Convert | None = None
    to_avro: Convert | None = None

    def from_stored(self, stored: pa.Array) -> pa.Array:
        """The column of an array of ``stored``."""
        # Most columns: a cast to the same type would copy them.
        if self.stored == self.column:
            return stored
        # Two steps, since Arrow takes a plain number in the resolution of the type that it is cast
        # to. The second one may lose digits: nanoseconds become microseconds.
        return stored.cast(self.unit).cast(self.column, safe=False)

    def to_values(self, column: pa.Array) -> list[Any]:
        """The stored values of a column. Raises ``pa.ArrowException`` for a column of another
        type that cannot be cast."""
        # Columns of other programs: large strings for text, other resolutions of times.
        if column.type != self.column:
            column = column.cast(self.column)
        if self.stored != self.column:
            column = column.cast(self.unit, safe=False).cast(self.stored)
        return column.to_pylist()  # type: ignore[no-any-return]


def fields_of(definition: Definition) -> tuple[dict[str, Kind], Definition]:
    """The kinds of a record's fields, and the record as the Avro library is given it.

    Raises ``ValueError``, also for a definition that is no record.
    """
    if not isinstance(definition, dict) or definition.get("type") != "record":
        raise ValueError(f"this is no record of Avro: {definition!r:.100}")
    kinds = _Kinds()
    whole = kinds.of(definition, "")
    return kinds.outermost, whole.definition


def plain_kind(definition: Definition, kind: pa.DataType) -> Kind:
    """The kind of values that Arrow takes as they are; ``None`` for one that is not Avro's."""
    return Kind(definition, kind, kind, kind)


# Spark's type of times has nanoseconds.
_TIME_US, TIME = pa.time64("us"), pa.time64("ns")
_PRIMITIVES: Mapping[str, Kind] = {
    "null": plain_kind("null", pa.null()),
    "boolean": plain_kind("boolean", pa.bool_()),
    "int": plain_kind("int", pa.int32()),
    "long": plain_kind("long", pa.int64()),
    "float": plain_kind("float", pa.float32()),
    "double": plain_kind("double", pa.float64()),
    "string": plain_kind("string", pa.string()),
    # JSON has no bytes: Java's clients write them in Base64.
    "bytes": replace(
        plain_kind("bytes", pa.binary()),
        from_json=lambda text: base64.b64decode(text, validate=True),
        to_json=lambda content: base64.b64encode(content).decode(),
    ),
}
_LOGICAL: Mapping[tuple[str, str], Kind] = {
    ("int", "date"): Kind("int", pa.int32(), pa.date32(), pa.date32()),
    ("int", "time-millis"): Kind("int", pa.int32(), pa.time32("ms"), TIME),
    ("long", "time-micros"): Kind("long", pa.int64(), _TIME_US, TIME),
    ("long", "timestamp-millis"): Kind("long", pa.int64(), pa.timestamp("ms", tz="UTC"), UTC_US),
    ("long", "timestamp-micros"): Kind("long", pa.int64(), UTC_US, UTC_US),
    ("long", "timestamp-nanos"): Kind("long", pa.int64(), pa.timestamp("ns", tz="UTC"), UTC_US),
    ("long", "local-timestamp-millis"): Kind("long", pa.int64(), pa.timestamp("ms"), LOCAL_US),
    ("long", "local-timestamp-micros"): Kind("long", pa.int64(), LOCAL_US, LOCAL_US),
    ("long", "local-timestamp-nanos"): Kind("long", pa.int64(), pa.timestamp("ns"), LOCAL_US),
}
# Unions of numbers, all of which one type holds.
_WIDER: Mapping[frozenset[str], str] = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}


@dataclass(slots=True, eq=False)
class _Kinds:
    """Makes kinds of a definition, which defines a named type once and names it from then on."""

    # By full names, with namespaces.
    named: dict[str, Kind] = field(default_factory=dict[str, Kind])
    # The records around the type that is being made: none may contain itself.
    open: set[str] = field(default_factory=set[str])
    # The fields of the record that was made last: in the end that is the outermost one.
    outermost: dict[str, Kind] = field(default_factory=dict[str, Kind])

    def of(self, definition: Definition, namespace: str) -> Kind:
        """The kind of a definition in this namespace. Raises ``ValueError``."""
        if isinstance(definition, str):
            return self._by_name(definition, namespace)
        if isinstance(definition, list):
            return self._union(definition, namespace)
        if not isinstance(definition, dict) or "type" not in definition:
            raise ValueError(f"this is no Avro schema: {definition!r:.100}")
        kind = definition["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._named_type(definition, namespace)
        if kind == "array":
            return _list_of(self.of(definition["items"], namespace))
        if kind == "map":
            return _map_of(self.of(definition["values"], namespace))
        if isinstance(kind, str) and (kind, definition.get("logicalType")) in _LOGICAL:
            return _LOGICAL[kind, definition["logicalType"]]
        if kind == "bytes" and definition.get("logicalType") == "decimal":
            return _decimal(definition, definition)
        return self.of(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> Kind:
        """The kind of a primitive type, or of a type that was defined before."""
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        # A short name means the type in the namespace around it, or else one without a namespace.
        for full in (f"{namespace}.{name}", name):
            if full in self.open:
                raise ValueError(f"the record {name} holds itself, which no table can")
            if full in self.named:
                # Only the definition is replaced: the library is told the name, while Arrow gets
                # the whole type in each place.
                return replace(self.named[full], definition=full.removeprefix("."))
        raise ValueError(f"{name!r} is no type of Avro, and the schema defines none of this name")

    def _named_type(self, definition: Mapping[str, Any], namespace: str) -> Kind:
        """Define an enum, a fixed number of bytes, or a record."""
        name = str(definition.get("name", ""))
        namespace = str(definition.get("namespace", namespace))
        full = name if "." in name else f"{namespace}.{name}"
        if definition["type"] == "enum":
            made = Kind(dict(definition), pa.string(), pa.string(), pa.string())
        elif definition["type"] == "fixed":
            plain = {each: definition[each] for each in ("type", "name", "size")}
            if namespace:
                plain["namespace"] = namespace
            made = replace(_PRIMITIVES["bytes"], definition=plain)
            if definition.get("logicalType") == "decimal":
                made = _decimal(definition, {**definition, **plain})
        else:
            # Taken out again below; a field that names the record in between would need a column
            # within itself.
            self.open.add(full)
            kinds: dict[str, Kind] = {}
            fields: list[Mapping[str, Any]] = []
            for told in definition["fields"]:
                kind = kinds[told["name"]] = self.of(told["type"], full.rpartition(".")[0])
                fields.append({**told, "type": kind.definition})
            self.outermost = kinds
            made = record_of(kinds, {**definition, "fields": fields})
            self.open.remove(full)
        # Only now: within the definition itself the name is that of an open record.
        self.named[full] = made
        return made

    def _union(self, definitions: Sequence[Definition], namespace: str) -> Kind:
        """The kind of a union: of its only member, of a wider number, or a struct of members."""
        kinds = [self.of(each, namespace) for each in definitions]
        members = [kind for kind in kinds if kind.definition != "null"]
        if not members:
            made = _PRIMITIVES["null"]
        elif len(members) == 1:
            made = members[0]
        else:
            names = [kind.definition for kind in members if isinstance(kind.definition, str)]
            # Only plain numbers: a date is an int too, and has another column.
            wider = _WIDER.get(frozenset(names)) if len(names) == len(members) else None
            if wider is not None and all(kind.stored == kind.column for kind in members):
                made = _PRIMITIVES[wider]
            else:
                made = _members(members)
        # Null needs no type of its own: every type of Arrow has it, and containers leave null
        # values to no converter.
        return replace(made, definition=[kind.definition for kind in kinds])


def record_of(kinds: Mapping[str, Kind], definition: Definition) -> Kind:
    """The kind of a record with fields of these kinds."""

    def convert_fields(converts: Mapping[str, Convert], record: Any) -> Any:  # noqa: ANN401 - a mapping, if it is right
        if not isinstance(record, dict):
            raise TypeError(f"a record should be an object: {record!r:.100}")
        converted = {
            name: convert(value)
            for name, convert in converts.items()
            if (value := record.get(name)) is not None
        }
        # Fields that the kinds do not name stay: Arrow leaves out what its struct does not have.
        return {**record, **converted}

    # Only the fields that need it are converted, and no record is copied where none does.
    from_json = {name: kind.from_json for name, kind in kinds.items() if kind.from_json}
    to_json = {name: kind.to_json for name, kind in kinds.items() if kind.to_json}
    from_avro = {name: kind.from_avro for name, kind in kinds.items() if kind.from_avro}
    to_avro = {name: kind.to_avro for name, kind in kinds.items() if kind.to_avro}
    return Kind(
        definition,
        pa.struct([(name, kind.stored) for name, kind in kinds.items()]),
        pa.struct([(name, kind.unit) for name, kind in kinds.items()]),
        pa.struct([(name, kind.column) for name, kind in kinds.items()]),
        partial(convert_fields, from_json) if from_json else None,
        partial(convert_fields, to_json) if to_json else None,
        partial(convert_fields, from_avro) if from_avro else None,
        partial(convert_fields, to_avro) if to_avro else None,
    )


def _list_of(items: Kind) -> Kind:
    """The kind of an array: its converters convert each item that is not null."""

    def each(convert: Convert | None) -> Convert | None:
        if convert is None:
            return None
        return lambda values: [None if v is None else convert(v) for v in values]

    return Kind(
        {"type": "array", "items": items.definition},
        pa.list_(items.stored),
        pa.list_(items.unit),
        pa.list_(items.column),
        *map(each, (items.from_json, items.to_json, items.from_avro, items.to_avro)),
    )


def _map_of(values: Kind) -> Kind:
    """The kind of a map: its converters convert each value that is not null."""

    def load(convert: Convert | None) -> Convert | None:
        if convert is None:
            return None
        return lambda m: {k: None if v is None else convert(v) for k, v in m.items()}

    def dump(convert: Convert | None) -> Convert:
        if convert is None:
            return dict  # Arrow has pairs, JSON and Avro want a mapping
        return lambda pairs: {k: None if v is None else convert(v) for k, v in pairs}

    return Kind(
        {"type": "map", "values": values.definition},
        pa.map_(pa.string(), values.stored),
        pa.map_(pa.string(), values.unit),
        pa.map_(pa.string(), values.column),
        load(values.from_json),
        dump(values.to_json),
        load(values.from_avro),
        dump(values.to_avro),
    )


def _decimal(definition: Mapping[str, Any], told: Definition) -> Kind:
    """The kind of a decimal, which the Avro library is given as ``told``."""
    # Avro's default for the scale is 0; it has none for the precision.
    digits, scale = int(definition.get("precision", 0)), int(definition.get("scale", 0))
    if not 0 < digits <= DECIMAL_DIGITS_MAX:
        raise ValueError(f"a decimal of {digits} digits has no type: 1 to {DECIMAL_DIGITS_MAX}")
    kind = pa.decimal128(digits, scale)
    return Kind(told, kind, kind, kind, from_json=lambda text: Decimal(str(text)), to_json=str)


def _members(kinds: Sequence[Kind]) -> Kind:
    """The kind of a union of several types: a struct, in which the member of a value's type has the
    value and all others are null."""
    names = [f"member{number}" for number in range(len(kinds))]
    # Tried in the order of the union: the first member that takes the value has it.
    tests = [_accepts(kind) for kind in kinds]

    # From a value to the struct, and back; each member has one of the ``converts``.
    def to_member(converts: Sequence[Convert | None], value: Any) -> Any:  # noqa: ANN401 - of any branch
        for name, accepts, convert in zip(names, tests, converts, strict=True):
            if accepts(value):
                return {name: value if convert is None else convert(value)}
        raise ValueError(f"{value!r:.100} is of none of the types of its union")

    def from_member(converts: Sequence[Convert | None], members: Mapping[str, Any]) -> Any:  # noqa: ANN401
        for name, convert in zip(names, converts, strict=True):
            if (value := members.get(name)) is not None:
                return value if convert is None else convert(value)
        return None

    fields = dict(zip(names, kinds, strict=True))
    return replace(
        record_of(fields, None),
        from_json=partial(to_member, [kind.from_json for kind in kinds]),
        to_json=partial(from_member, [kind.to_json for kind in kinds]),
        from_avro=partial(to_member, [kind.from_avro for kind in kinds]),
        to_avro=partial(from_member, [kind.to_avro for kind in kinds]),
    )


def _accepts(kind: Kind) -> Callable[[Any], bool]:
    """A test whether a value, of JSON or of the Avro library, is of this member of a union."""
    stored = kind.stored
    # Before numbers: in Python a boolean is an int.
    if pa.types.is_boolean(stored):
        return lambda value: isinstance(value, bool)
    if pa.types.is_integer(stored):
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    # JSON has one kind of number, so that 1 may be meant as 1.0.
    if pa.types.is_floating(stored):
        return lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_string(stored):
        symbols = kind.definition.get("symbols") if isinstance(kind.definition, dict) else None
        return lambda value: isinstance(value, str) and (symbols is None or value in symbols)
    # In JSON bytes are text, and decimals text or numbers.
    if pa.types.is_binary(stored) or pa.types.is_decimal(stored):
        return lambda value: isinstance(value, bytes | str | Decimal | float)
    if pa.types.is_struct(stored):
        # A record has no mark of its type in JSON: a value with a field that this record lacks is
        # of another one.
        names = {field.name for field in stored}
        return lambda value: isinstance(value, dict) and names.issuperset(value)
    if pa.types.is_map(stored):
        return lambda value: isinstance(value, dict)
    return lambda value: isinstance(value, list)
