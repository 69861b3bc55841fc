"""Classes as records: their Avro definition, and their values in JSON and Avro.

A record is a dataclass or a pydantic model. Its fields, and what is in them, may be of these types:

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

``Annotated[int, AvroType("int")]`` names another of Avro's primitive types. The default of a field
is in the definition, so that messages that were written before the field existed are read with it;
an optional field without a default has null.
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

# Makes one value of another.
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
    """Chooses the primitive type of Avro for a field, by its ``name``.

    ``count: Annotated[int, AvroType("int")]`` has 32 bits, where ``int`` alone is Avro's ``long``.
    """

    name: str


def _same(value: Any) -> Any:  # noqa: ANN401 - any value
    return value


# A value goes through four converters, two for each encoding. ``_same`` stands for "takes it as it
# is", so that a container can see that its items need no conversion (``_wrapped``).
@dataclass(frozen=True, slots=True)
class Kind:
    """What one type of Python is in a schema."""

    # In Avro's definition of the record.
    definition: Any
    # Make of a value what Python's ``json`` and the Avro library take, and back; by default these
    # take the value as it is.
    to_json: Convert = _same
    from_json: Convert = _same
    to_avro: Convert = _same
    from_avro: Convert = _same


def kind_of(hint: Any) -> Kind:  # noqa: ANN401 - any type
    """The kind of a record's class, or of a type that fields may have.

    Raises ``TypeError`` that names a type which is none of these.
    """
    return _Kinds().of(hint, str(hint))


def _wrapped(kind: Kind, definition: Any, wrap: Callable[[Convert], Convert]) -> Kind:  # noqa: ANN401 - JSON
    """The kind of a container: ``wrap`` makes its converters of those of its items."""
    converts = (kind.to_json, kind.from_json, kind.to_avro, kind.from_avro)
    # Most items are the same everywhere, and then their containers are, too: nothing is copied.
    return Kind(definition, *[_same if convert is _same else wrap(convert) for convert in converts])


@dataclass(slots=True, eq=False)
class _Kinds:
    """Makes kinds. Avro wants each record and enum defined once, and named from then on."""

    # Records and enums that were defined, or are being defined: a record may contain itself.
    made: dict[type, Kind] = dataclasses.field(default_factory=dict[type, Kind])

    def of(self, hint: Any, where: str) -> Kind:  # noqa: ANN401 - any type
        """The kind of a type; ``where`` says in errors which field has it."""
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            named = [each.name for each in arguments[1:] if isinstance(each, AvroType)]
            return Kind(named[0]) if named else self.of(arguments[0], where)
        if origin is list:
            items = self.of(arguments[0], f"{where}[]")
            definition = {"type": "array", "items": items.definition}
            return _wrapped(items, definition, lambda each: lambda list_: [each(v) for v in list_])
        if origin is dict and arguments[0] is str:
            values = self.of(arguments[1], f"{where}[]")
            definition = {"type": "map", "values": values.definition}
            return _wrapped(
                values, definition, lambda each: lambda map_: {k: each(v) for k, v in map_.items()}
            )
        if origin in (Union, types.UnionType):
            rest = [each for each in arguments if each is not type(None)]
            # Any other union is refused below.
            if len(rest) == 1 and len(arguments) == 2:
                kind = self.of(rest[0], where)
                return _wrapped(
                    kind,
                    ["null", kind.definition],
                    lambda convert: lambda value: None if value is None else convert(value),
                )
        if isinstance(hint, type):
            if hint in self.made:  # by its name from the second time on
                made = self.made[hint]
                return dataclasses.replace(made, definition=hint.__name__)
            if (single := self._single(hint, where)) is not None:
                return single
        raise TypeError(f"{where} is of type {hint}, which no schema can be made of")

    def _single(self, hint: type, where: str) -> Kind | None:
        """The kind of a class that is no container; ``None`` for one that no schema has."""
        if hint in PRIMITIVES:
            return _BYTES if hint is bytes else Kind(PRIMITIVES[hint])
        if hint in _LOGICAL:
            return _LOGICAL[hint]
        if issubclass(hint, Enum):
            made = self.made[hint] = _enum(hint)
            return made
        if dataclasses.is_dataclass(hint):
            return self._record(hint, where)
        if hasattr(hint, "model_validate_json"):
            return self._model(hint, where)
        return None

    def _model(self, hint: Any, where: str) -> Kind:  # noqa: ANN401 - a class of pydantic's
        """The kind of a pydantic model, which validates and dumps itself."""
        definition: dict[str, Any] = {"type": "record", "name": hint.__name__, "fields": []}
        made = self.made[hint] = Kind(
            definition,
            # The validation of a model converts what its fields need, so that the kinds of fields
            # are used for the definition alone.
            lambda value: value.model_dump(mode="json"),
            hint.model_validate,
            lambda value: value.model_dump(mode="python"),
            hint.model_validate,
        )
        for name, field in hint.model_fields.items():
            kind = self.of(field.annotation, f"{where}.{name}")
            is_required = field.is_required()
            default = _NONE if is_required else field.get_default(call_default_factory=True)
            definition["fields"].append(_described(name, kind, default))
        return made

    def _record(self, hint: type, where: str) -> Kind:
        """The kind of a dataclass."""
        definition: dict[str, Any] = {"type": "record", "name": hint.__name__, "fields": []}
        kinds: dict[str, Kind] = {}
        # Fields that are null where they are missing, though the class has no default for them.
        absent: dict[str, None] = {}

        def make(values: dict[str, Any]) -> Any:  # noqa: ANN401 - an instance
            try:
                return hint(**{**absent, **values})
            except TypeError as wrong:
                raise ValueError(f"these are no fields of a {hint.__name__}: {wrong}") from wrong

        def from_json(mapping: Any) -> Any:  # noqa: ANN401 - an instance
            if not isinstance(mapping, dict):
                raise ValueError(f"a {hint.__name__} should be an object: {mapping!r:.100}")  # noqa: TRY004
            return make({n: k.from_json(mapping[n]) for n, k in kinds.items() if n in mapping})

        # Before its fields, whose types may name the record; they are filled in below.
        made = self.made[hint] = Kind(
            definition,
            lambda value: {n: k.to_json(getattr(value, n)) for n, k in kinds.items()},
            from_json,
            lambda value: {n: k.to_avro(getattr(value, n)) for n, k in kinds.items()},
            lambda mapping: make(
                {n: k.from_avro(mapping[n]) for n, k in kinds.items() if n in mapping}
            ),
        )
        hints = get_type_hints(hint, include_extras=True)
        for field in dataclasses.fields(hint):
            # The converters above see it, since they look into the same dict when they are called.
            kind = kinds[field.name] = self.of(hints[field.name], f"{where}.{field.name}")
            default: object = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            definition["fields"].append(_described(field.name, kind, default))
            # Optional without a default, so that Avro has null for it; the class would refuse to be
            # made without the argument.
            if default is _NONE and isinstance(kind.definition, list):
                absent[field.name] = None
        return made


# A field has no default.
_NONE = dataclasses.MISSING


def _described(name: str, kind: Kind, default: object) -> dict[str, Any]:
    """The definition of a field; without a ``default``, an optional one has null."""
    made: dict[str, Any] = {"name": name, "type": kind.definition}
    if default is not _NONE:
        made["default"] = kind.to_json(default)
    elif isinstance(kind.definition, list):
        made["default"] = None
    # Avro takes a default for one of the first branch of a union.
    if isinstance(kind.definition, list) and made["default"] is not None:
        made["type"] = kind.definition[::-1]
    return made


# Members by their names, and not by their values, which may be of any type.
def _enum(hint: type[Enum]) -> Kind:
    def member(name: Any) -> Enum:  # noqa: ANN401 - a name, if it is right
        try:
            return hint[name]
        except KeyError:
            raise ValueError(f"{name!r} is no {hint.__name__}") from None

    definition = {"type": "enum", "name": hint.__name__, "symbols": [each.name for each in hint]}
    return Kind(definition, lambda e: e.name, member, lambda e: e.name, member)


# Bytes are text in JSON, a letter for each (ISO 8859-1), as in Avro's JSON.
_BYTES = Kind("bytes", lambda b: b.decode("latin-1"), lambda s: s.encode("latin-1"))


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# In JSON these are text (ISO 8601), and their definition says so: see ``json_definition``.
_LOGICAL: Mapping[type, Kind] = {
    datetime: Kind(
        {"type": "long", "logicalType": "timestamp-micros"}, datetime.isoformat, _moment
    ),
    date: Kind({"type": "int", "logicalType": "date"}, date.isoformat, date.fromisoformat),
    UUID: Kind({"type": "string", "logicalType": "uuid"}, str, UUID, str, lambda u: UUID(str(u))),
}


def json_definition(definition: Any) -> Any:  # noqa: ANN401 - JSON
    """The definition of the same record for a JSON schema: logical types are strings there."""
    if isinstance(definition, list):
        return [json_definition(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    if "logicalType" in definition:
        return "string"
    return {name: json_definition(value) for name, value in definition.items()}
