"""Classes as records: their Avro definition, and their values as JSON and Avro have them.

A record is a dataclass or a pydantic model; its fields, and what is in them, may be of these types:

==========================  =============================================
bool, int, float            ``boolean``, ``long``, ``double``
str, bytes                  ``string``, ``bytes``
``datetime``, ``date``      ``timestamp-micros``, ``date`` (Avro only)
``UUID``                    ``uuid``
an ``Enum``                 ``enum`` of its members' names
a dataclass, a model        ``record``
``list[T]``, ``T | None``   ``array``, union with ``null``
``dict[str, T]``            ``map``
==========================  =============================================

``Annotated[int, AvroType("int")]`` names another of Avro's primitive types. A field with a default
has it in the definition, so that messages from before it are read with it; an optional field
without one defaults to null.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

Convert = Callable[[Any], Any]

PRIMITIVES: Mapping[type, str] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
}


@dataclass(frozen=True, slots=True)
class AvroType:
    """Names a primitive type of Avro by its ``name``: ``Annotated[int, AvroType("int")]``."""

    name: str


@dataclass(frozen=True, slots=True)
class Kind:
    """What a type is in Avro, and how its values become those of JSON and Avro, and come back."""

    definition: Any
    to_json: Convert
    from_json: Convert
    to_avro: Convert
    from_avro: Convert


def kind_of(hint: Any) -> Kind:  # noqa: ANN401 - any type
    """The kind of a record's class, or of a type that fields may have.

    Raises ``TypeError`` naming a type that is none of these.
    """
    return _Kinds().of(hint, str(hint))


def _same(value: Any) -> Any:  # noqa: ANN401 - any value
    return value


def _plain(definition: Any) -> Kind:  # noqa: ANN401 - JSON
    return Kind(definition, _same, _same, _same, _same)


class _Kinds:
    """Makes kinds, each record and enum defined once and named from then on, as Avro wants it."""

    def __init__(self) -> None:
        self._made: dict[type, Kind] = {}

    def of(self, hint: Any, where: str) -> Kind:  # noqa: ANN401 - any type
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            named = [each.name for each in arguments[1:] if isinstance(each, AvroType)]
            return _plain(named[0]) if named else self.of(arguments[0], where)
        if origin is list:
            return self._list(self.of(arguments[0], f"{where}[]"))
        if origin is dict and arguments[0] is str:
            return self._map(self.of(arguments[1], f"{where}[]"))
        if origin in (Union, types.UnionType):
            rest = [each for each in arguments if each is not type(None)]
            if len(rest) == 1 and len(arguments) == 2:
                return self._optional(self.of(rest[0], where))
        if isinstance(hint, type):
            if hint in self._made:  # by its name from the second time on
                made = self._made[hint]
                return dataclasses.replace(made, definition=hint.__name__)
            if (single := self._single(hint, where)) is not None:
                return single
        raise TypeError(f"{where} is of type {hint}, which no schema can be made of")

    def _single(self, hint: type, where: str) -> Kind | None:
        if hint in PRIMITIVES:
            return _BYTES if hint is bytes else _plain(PRIMITIVES[hint])
        if hint in _LOGICAL:
            return _LOGICAL[hint]
        if issubclass(hint, Enum):
            made = _enum(hint)
            self._made[hint] = made
            return made
        if dataclasses.is_dataclass(hint):
            return self._record(hint, where)
        if hasattr(hint, "model_validate_json"):
            return self._model(hint, where)
        return None

    def _model(self, hint: Any, where: str) -> Kind:  # noqa: ANN401 - a class of pydantic's
        """A pydantic model: it validates and dumps itself."""
        definition: dict[str, Any] = {"type": "record", "name": hint.__name__, "fields": []}
        made = Kind(
            definition,
            lambda value: value.model_dump(mode="json"),
            hint.model_validate,
            lambda value: value.model_dump(mode="python"),
            hint.model_validate,
        )
        self._made[hint] = made
        for name, field in hint.model_fields.items():
            kind = self.of(field.annotation, f"{where}.{name}")
            described: dict[str, Any] = {"name": name, "type": kind.definition}
            if not field.is_required():
                value = field.get_default(call_default_factory=True)
                described["default"] = kind.to_json(value)
            elif isinstance(kind.definition, list):
                described["default"] = None
            definition["fields"].append(_branched(described))
        return made

    def _record(self, hint: type, where: str) -> Kind:
        fields: dict[str, Kind] = {}
        definition: dict[str, Any] = {"type": "record", "name": hint.__name__, "fields": []}
        record = _Record(hint, fields)
        made = Kind(definition, record.to_json, record.from_json, record.to_avro, record.from_avro)
        self._made[hint] = made
        hints = get_type_hints(hint, include_extras=True)
        for field in dataclasses.fields(hint):
            kind = self.of(hints[field.name], f"{where}.{field.name}")
            fields[field.name] = kind
            described = _field(field, kind)
            definition["fields"].append(described)
            if described.get("default", kind) is None and _is_wanted(field):
                record.absent[field.name] = None
        return made

    def _list(self, items: Kind) -> Kind:
        def each(convert: Convert) -> Convert:
            return _same if convert is _same else lambda values: [convert(v) for v in values]

        return Kind({"type": "array", "items": items.definition}, *map(each, _converts(items)))

    def _map(self, values: Kind) -> Kind:
        def each(convert: Convert) -> Convert:
            if convert is _same:
                return _same
            return lambda mapping: {key: convert(value) for key, value in mapping.items()}

        return Kind({"type": "map", "values": values.definition}, *map(each, _converts(values)))

    def _optional(self, kind: Kind) -> Kind:
        def each(convert: Convert) -> Convert:
            if convert is _same:
                return _same
            return lambda value: None if value is None else convert(value)

        return Kind(["null", kind.definition], *map(each, _converts(kind)))


def _converts(kind: Kind) -> tuple[Convert, Convert, Convert, Convert]:
    return kind.to_json, kind.from_json, kind.to_avro, kind.from_avro


class _Record:
    """Instances of a dataclass as mappings, and back; fields that are missing have defaults."""

    def __init__(self, hint: type, fields: Mapping[str, Kind]) -> None:
        self._class = hint
        self._fields = fields
        self.absent: dict[str, None] = {}
        """Fields that are null where they are missing, though the class wants them."""

    def to_json(self, value: Any) -> Any:  # noqa: ANN401 - an instance, as JSON
        return {name: kind.to_json(getattr(value, name)) for name, kind in self._fields.items()}

    def to_avro(self, value: Any) -> Any:  # noqa: ANN401 - as above
        return {name: kind.to_avro(getattr(value, name)) for name, kind in self._fields.items()}

    def from_json(self, mapping: Any) -> Any:  # noqa: ANN401 - as above
        if not isinstance(mapping, dict):
            name = self._class.__name__
            raise ValueError(f"a {name} should be an object: {mapping!r:.100}")  # noqa: TRY004
        return self._made(
            {n: k.from_json(mapping[n]) for n, k in self._fields.items() if n in mapping}
        )

    def from_avro(self, mapping: Any) -> Any:  # noqa: ANN401 - as above
        return self._made(
            {n: k.from_avro(mapping[n]) for n, k in self._fields.items() if n in mapping}
        )

    def _made(self, values: dict[str, Any]) -> Any:  # noqa: ANN401 - an instance
        try:
            return self._class(**{**self.absent, **values})
        except TypeError as wrong:
            raise ValueError(f"these are no fields of a {self._class.__name__}: {wrong}") from wrong


def _is_wanted(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _field(field: dataclasses.Field[Any], kind: Kind) -> dict[str, Any]:
    made: dict[str, Any] = {"name": field.name, "type": kind.definition}
    if field.default is not dataclasses.MISSING:
        made["default"] = kind.to_json(field.default)
    elif field.default_factory is not dataclasses.MISSING:
        made["default"] = kind.to_json(field.default_factory())
    elif isinstance(kind.definition, list):
        made["default"] = None
    return _branched(made)


def _branched(field: dict[str, Any]) -> dict[str, Any]:
    """The field with its union in order: a default is of the first branch."""
    if isinstance(field["type"], list) and field.get("default") is not None:
        field["type"] = field["type"][::-1]
    return field


def _enum(hint: type[Enum]) -> Kind:
    def member(name: Any) -> Enum:  # noqa: ANN401 - a name, if it is right
        try:
            return hint[name]
        except KeyError:
            raise ValueError(f"{name!r} is no {hint.__name__}") from None

    definition = {"type": "enum", "name": hint.__name__, "symbols": [each.name for each in hint]}
    return Kind(definition, lambda e: e.name, member, lambda e: e.name, member)


# Text of JSON holds bytes letter by letter (ISO 8859-1), as Avro's JSON does.
_BYTES = Kind("bytes", lambda b: b.decode("latin-1"), lambda s: s.encode("latin-1"), _same, _same)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# JSON has these as text of ISO 8601, and so does their definition there: see ``json_definition``.
_LOGICAL: Mapping[type, Kind] = {
    datetime: Kind(
        {"type": "long", "logicalType": "timestamp-micros"},
        datetime.isoformat,
        _moment,
        _same,
        _same,
    ),
    date: Kind(
        {"type": "int", "logicalType": "date"}, date.isoformat, date.fromisoformat, _same, _same
    ),
    UUID: Kind({"type": "string", "logicalType": "uuid"}, str, UUID, str, lambda u: UUID(str(u))),
}


def json_definition(definition: Any) -> Any:  # noqa: ANN401 - JSON
    """The definition for JSON: what JSON has as text is a string there."""
    if isinstance(definition, list):
        return [json_definition(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    if "logicalType" in definition:
        return "string"
    return {name: json_definition(value) for name, value in definition.items()}
