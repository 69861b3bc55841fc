"""Avro schemas as a tree: what a definition says, or why it is none. Pure.

Facts: "Schema Declaration" of the Avro 1.11 specification, and what ``Schema.Parser`` of its Java
library takes, which Pulsar's brokers use. Definitions come from clients, so that their size, their
depth and the work that they cause are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from geminga_broker.schemas.errors import InvalidSchema

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "enum", "fixed"})
# Types within types. A recursive schema names itself and is not deep; each level takes three of the
# interpreter's thousand frames.
DEPTH_MAX = 64

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# What a type, and a field, may say beyond which everything is a property.
_RESERVED = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_RESERVED_OF_ENUM = _RESERVED | {"default"}
_RESERVED_OF_FIELD = frozenset(("default", "doc", "name", "order", "type", "aliases"))


class _NoDefault:
    """A default that is not there, where null would be one."""


NO_DEFAULT = _NoDefault()


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record; ``default`` is JSON, or ``NO_DEFAULT``."""

    name: str
    type: AvroType
    default: object = NO_DEFAULT
    aliases: tuple[str, ...] = ()
    order: str = "ascending"
    properties: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(slots=True, eq=False)
class AvroType:
    """A type; ``kind`` says which of the fields below have a meaning. Recursive types make cycles.

    ``name`` and ``aliases`` are full names; ``inner`` is what an array or a map holds.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: dict[str, AvroField] = field(default_factory=dict[str, AvroField])
    symbols: tuple[str, ...] = ()
    size: int = 0
    inner: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    properties: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def item(self) -> AvroType:
        """What an array or a map holds."""
        assert self.inner is not None
        return self.inner

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind


def parse_avro(definition: bytes) -> AvroType:
    """The type that ``definition`` describes. Raises ``InvalidSchema``."""
    try:
        described: object = json.loads(definition.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"the definition is not JSON: {error}") from None
    return _Parser().type(described, namespace="", depth=0)


class _Parser:
    """Parses one definition: types that have a name may be used by it from then on."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type(self, described: object, namespace: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"types lie within types more than {DEPTH_MAX} deep")
        match described:
            case str():
                return self._by_name(described, namespace)
            case list():
                return self._union(described, namespace, depth)
            case dict() if "type" in described:
                return self._described(described, described["type"], namespace, depth)
            case _:
                raise InvalidSchema(f"no type is described by {_shown(described)}")

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        known = self._named.get(_full_name(name, namespace)) or self._named.get(name)
        if known is None:
            raise InvalidSchema(f'"{name}" is not a defined name')
        return known

    def _union(self, described: list[Any], namespace: str, depth: int) -> AvroType:
        branches = tuple(self.type(each, namespace, depth + 1) for each in described)
        names: set[str] = set()
        for each in branches:
            if each.kind == "union":
                raise InvalidSchema("a union is directly within a union")
            if str(each) in names:
                raise InvalidSchema(f"a union has two branches of type {each}")
            names.add(str(each))
        return AvroType("union", branches=branches)

    def _described(
        self, described: dict[str, Any], kind: object, namespace: str, depth: int
    ) -> AvroType:
        if not isinstance(kind, str):  # as {"type": {"type": "string"}}
            return self.type(kind, namespace, depth + 1)
        if kind in PRIMITIVES:
            return AvroType(kind, properties=_others(described, _RESERVED))
        if kind in NAMED or kind == "error":
            return self._named_type(described, kind, namespace, depth)
        if kind in {"array", "map"}:
            inside = described.get("items" if kind == "array" else "values")
            if inside is None:
                raise InvalidSchema(f"a type {kind} does not say of what")
            inner = self.type(inside, namespace, depth + 1)
            return AvroType(kind, inner=inner, properties=_others(described, _RESERVED))
        if kind in self._named or _full_name(kind, namespace) in self._named:
            return self._by_name(kind, namespace)
        raise InvalidSchema(f'"{kind}" is not a type')

    def _named_type(
        self, described: dict[str, Any], kind: str, namespace: str, depth: int
    ) -> AvroType:
        own = described.get("namespace")
        name = _full_name(_name(described), own if isinstance(own, str) else namespace)
        if name in self._named:
            raise InvalidSchema(f'the name "{name}" is defined twice')
        inside = name.rpartition(".")[0]
        reserved = _RESERVED_OF_ENUM if kind == "enum" else _RESERVED
        found = self._named[name] = AvroType(
            "record" if kind == "error" else kind,
            name,
            tuple(_full_name(each, inside) for each in _texts(described.get("aliases", []))),
            properties=_others(described, reserved),
        )
        match kind:
            case "enum":
                found.symbols = _symbols(described, name)
            case "fixed":
                size = described.get("size")
                if not isinstance(size, int) or not 0 <= size <= INT_MAX:
                    raise InvalidSchema(f"the fixed {name} has no size")
                found.size = size
            case _:
                fields = described.get("fields")
                if not isinstance(fields, list):
                    raise InvalidSchema(f"the record {name} has no fields")
                for each in fields:
                    self._add_field(found, each, inside, depth)
        return found

    def _add_field(self, record: AvroType, described: object, namespace: str, depth: int) -> None:
        if not isinstance(described, dict) or "type" not in described:
            raise InvalidSchema(f"a field of {record.name} has no type")
        name = _name(described)
        if name in record.fields:
            raise InvalidSchema(f'the record {record.name} has two fields "{name}"')
        record.fields[name] = AvroField(
            name,
            self.type(described["type"], namespace, depth + 1),
            described.get("default", NO_DEFAULT),
            _texts(described.get("aliases", [])),
            str(described.get("order", "ascending")).lower(),
            _others(described, _RESERVED_OF_FIELD),
        )


def _symbols(described: Mapping[str, Any], name: str) -> tuple[str, ...]:
    symbols = _texts(described.get("symbols"))
    if len(set(symbols)) < len(symbols):
        raise InvalidSchema(f"the enum {name} has a symbol twice")
    default = described.get("default")
    if default is not None and default not in symbols:
        raise InvalidSchema(f"the default of the enum {name} is none of its symbols")
    return symbols


def _name(described: Mapping[str, object]) -> str:
    name = described.get("name")
    if not isinstance(name, str) or not all(map(_is_name, name.split("."))):
        raise InvalidSchema(f"{_shown(name)} is not a name")
    return name


def _is_name(name: str) -> bool:
    """Letters (of any script, as for Java's parser), digits and underscores, no digit first."""
    return bool(name) and not name[0].isdigit() and name.replace("_", "a").isalnum()


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidSchema(f"{_shown(value)} is not a list of names")
    return tuple(value)


def _others(described: Mapping[str, object], reserved: frozenset[str]) -> dict[str, object]:
    return {key: value for key, value in described.items() if key not in reserved}


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


# Equality


def same_schema(one: AvroType, other: AvroType) -> bool:
    """Whether both say the same, as Java's ``Schema.equals``: neither documentation nor aliases
    count, all properties do."""
    return _form(one, set()) == _form(other, set())


def _form(kind: AvroType, seen: set[str]) -> object:
    """A value that is equal for types that are; a named type in it is described once."""
    if kind.name in seen:
        return kind.name
    if kind.name:
        seen.add(kind.name)
    return (
        str(kind),
        tuple(
            (
                each.name,
                _form(each.type, seen),
                "" if each.default is NO_DEFAULT else json.dumps(each.default, sort_keys=True),
                each.order,
                json.dumps(each.properties, sort_keys=True),
            )
            for each in kind.fields.values()
        ),
        kind.symbols,
        kind.size,
        None if kind.inner is None else _form(kind.inner, seen),
        tuple(_form(each, seen) for each in kind.branches),
        json.dumps(kind.properties, sort_keys=True),
    )


# Defaults


def invalid_default(schema: AvroType) -> str:
    """Which default of a field cannot be a value of its type; "" where all can."""
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        kind = waiting.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        for each in kind.fields.values():
            if each.default is not NO_DEFAULT and not fits(each.default, each.type):
                return (
                    f"invalid default for field {kind.name}.{each.name}: "
                    f"{_shown(each.default)} is not a {each.type}"
                )
            waiting.append(each.type)
        waiting += kind.branches
        waiting += [] if kind.inner is None else [kind.inner]
    return ""


def fits(default: object, kind: AvroType) -> bool:
    """Whether JSON, as defaults are written, is a value of a type; of a union, of its first
    branch."""
    match kind.kind:
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "int":
            return _is_integer(default, INT_MAX)
        case "long":
            return _is_integer(default, LONG_MAX)
        case "float" | "double":
            return isinstance(default, int | float) and not isinstance(default, bool)
        case "string" | "bytes" | "fixed":
            return isinstance(default, str)
        case "enum":
            return default in kind.symbols
        case "array":
            return isinstance(default, list) and all(fits(each, kind.item) for each in default)
        case "map":
            return isinstance(default, dict) and all(
                fits(each, kind.item) for each in default.values()
            )
        case "union":
            return bool(kind.branches) and fits(default, kind.branches[0])
        case _:
            return isinstance(default, dict) and _is_record(default, kind)


def _is_record(default: Mapping[str, object], kind: AvroType) -> bool:
    """Each field is given, or has a default of its own, which is judged where it stands."""
    return all(
        fits(default[each.name], each.type)
        if each.name in default
        else each.default is not NO_DEFAULT
        for each in kind.fields.values()
    )


def _is_integer(value: object, greatest: int) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and -greatest - 1 <= value <= greatest
    )
