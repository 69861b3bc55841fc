"""Parses Avro schemas into a tree of types, and compares such trees. Pure.

Facts: "Schema Declaration" of the Avro 1.11 specification, and what ``Schema.Parser`` of its Java
library accepts, which Pulsar's brokers use. Definitions come from clients, so that their size,
their depth and the work that they cause are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from geminga_broker.schemas.errors import InvalidSchema

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "enum", "fixed"})
# How deep types may lie within types. A recursive schema names itself and is not deep. Each level
# takes three of the interpreter's thousand frames.
DEPTH_MAX = 64

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# The members of a type, and of a field, that have a meaning; all others are properties. As in
# ``Schema.SCHEMA_RESERVED`` and its like of the Java library. What is in none of them counts for
# the equality of schemas.
_RESERVED = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_RESERVED_OF_ENUM = _RESERVED | {"default"}
_RESERVED_OF_FIELD = frozenset(("default", "doc", "name", "order", "type", "aliases"))


class _NoDefault:
    """The absence of a default: None is the default null."""


NO_DEFAULT = _NoDefault()


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    # As in JSON.
    default: object = NO_DEFAULT
    aliases: tuple[str, ...] = ()
    # How Avro sorts by the field; it counts for the equality of schemas.
    order: str = "ascending"
    properties: Mapping[str, object] = field(default_factory=dict[str, object])


# A record Tree whose field ``left`` is a union of null and Tree:
#
#     record Tree ──field left──▶ union ──branches──▶ null
#         ▲                                  └──────▶ Tree, the very object at the beginning
#         └────────────────────────────────────────────┘
#
# Compared by identity (``eq=False``): comparing by value would never end in such a cycle.
@dataclass(slots=True, eq=False)
class AvroType:
    """A type; ``kind`` says which of the members below have a meaning. Recursive types make
    cycles."""

    kind: str
    # Full names of records, enums and fixed.
    name: str = ""
    aliases: tuple[str, ...] = ()
    # Of a record, by name and in order.
    fields: dict[str, AvroField] = field(default_factory=dict[str, AvroField])
    # Of an enum.
    symbols: tuple[str, ...] = ()
    # Of a fixed, in bytes.
    size: int = 0
    # The type of the items of an array, or of the values of a map.
    inner: AvroType | None = None
    # Of a union.
    branches: tuple[AvroType, ...] = ()
    properties: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def item(self) -> AvroType:
        """The type of the items of an array, or of the values of a map."""
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


@dataclass(slots=True, eq=False)
class _Parser:
    """Parses one definition."""

    # Types by full name: from its declaration on, a name stands for its type.
    _named: dict[str, AvroType] = field(default_factory=dict[str, AvroType], init=False)

    def type(self, described: object, namespace: str, depth: int) -> AvroType:
        """Parse a type that lies in ``namespace``, within ``depth`` others."""
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"types lie within types more than {DEPTH_MAX} deep")
        match described:
            case str():
                return self._by_name(described, namespace)
            case list():
                branches = tuple(self.type(each, namespace, depth + 1) for each in described)
                names: set[str] = set()
                for each in branches:
                    if each.kind == "union":
                        raise InvalidSchema("a union is directly within a union")
                    # Two arrays, two maps and two of a primitive are refused; named types may be
                    # several, with different names.
                    if str(each) in names:
                        raise InvalidSchema(f"a union has two branches of type {each}")
                    names.add(str(each))
                return AvroType("union", branches=branches)
            case dict() if "type" in described:
                return self._described(described, described["type"], namespace, depth)
            case _:
                raise InvalidSchema(f"no type is described by {_shown(described)}")

    def _by_name(self, name: str, namespace: str) -> AvroType:
        """The primitive, or the type declared before, that ``name`` stands for."""
        if name in PRIMITIVES:
            return AvroType(name)
        # A name without a namespace is one of the enclosing namespace, or a full name. Types are
        # declared before they are used: there is one pass, from left to right.
        known = self._named.get(_full_name(name, namespace)) or self._named.get(name)
        if known is None:
            raise InvalidSchema(f'"{name}" is not a defined name')
        return known

    def _described(
        self, described: dict[str, Any], kind: object, namespace: str, depth: int
    ) -> AvroType:
        """Parse a JSON object whose member "type" is ``kind``."""
        # A type may be wrapped: {"type": {"type": "string"}}. The members beside "type" are dropped
        # then.
        if not isinstance(kind, str):
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
        # A declared name in the place of a kind: {"type": "Tree"}.
        if kind in self._named or _full_name(kind, namespace) in self._named:
            return self._by_name(kind, namespace)
        raise InvalidSchema(f'"{kind}" is not a type')

    def _named_type(
        self, described: dict[str, Any], kind: str, namespace: str, depth: int
    ) -> AvroType:
        """Parse a record, an enum or a fixed."""
        own = described.get("namespace")
        name = _full_name(_name(described), own if isinstance(own, str) else namespace)
        if name in self._named:
            raise InvalidSchema(f'the name "{name}" is defined twice')
        # The namespace of the names within it. A name with dots brings its namespace along, and
        # hands it to what lies inside.
        inside = name.rpartition(".")[0]
        reserved = _RESERVED_OF_ENUM if kind == "enum" else _RESERVED
        # Known by its name before its fields are parsed: they may be of this very type. ``fields``
        # is filled below: until then the record is known, and incomplete.
        found = self._named[name] = AvroType(
            "record" if kind == "error" else kind,
            name,
            tuple(_full_name(each, inside) for each in _texts(described.get("aliases", []))),
            properties=_others(described, reserved),
        )
        match kind:
            case "enum":
                found.symbols = symbols = _texts(described.get("symbols"))
                if len(set(symbols)) < len(symbols):
                    raise InvalidSchema(f"the enum {name} has a symbol twice")
                # Of enums only since Avro 1.9: what a reader takes for a symbol that it does not
                # know.
                default = described.get("default")
                if default is not None and default not in symbols:
                    raise InvalidSchema(f"the default of the enum {name} is none of its symbols")
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
        """Parse a field of ``record``."""
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


def _name(described: Mapping[str, object]) -> str:
    """The name of a type or a field: parts of letters (of any script, as in Java's parser), digits
    and underscores, none with a digit first."""
    name = described.get("name")
    if not isinstance(name, str) or not all(
        part and not part[0].isdigit() and part.replace("_", "a").isalnum()
        for part in name.split(".")
    ):
        raise InvalidSchema(f"{_shown(name)} is not a name")
    return name


def _full_name(name: str, namespace: str) -> str:
    # A dotted name has its own namespace, whatever lies around it.
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _texts(value: object) -> tuple[str, ...]:
    """A JSON list of strings: aliases or symbols."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidSchema(f"{_shown(value)} is not a list of names")
    return tuple(value)


def _others(described: Mapping[str, object], reserved: frozenset[str]) -> dict[str, object]:
    """The properties: members that Avro gives no meaning."""
    return {key: value for key, value in described.items() if key not in reserved}


def _shown(value: object) -> str:
    """JSON for an error text, shortened: clients send definitions of any size."""
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


# Equality


def same_schema(one: AvroType, other: AvroType) -> bool:
    """Whether both types are equal as by Java's ``Schema.equals``: documentation and aliases do not
    count, all properties do."""
    return _form(one, set()) == _form(other, set())


def _form(kind: AvroType, seen: set[str]) -> object:
    """A value that is equal for equal types; a named type is described in it once."""
    # At its second mention the name is enough, so that recursive types end. Both trees are walked
    # in one order: the first mention of a name lies at the same place in both, or they differ
    # there.
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
                # As text, because 1, 1.0 and true are equal in Python, and different defaults.
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
    """The first default of a field that is not a value of its type; "" if there is none."""
    for kind in all_types(schema):
        for each in kind.fields.values():
            if each.default is not NO_DEFAULT and not fits(each.default, each.type):
                return (
                    f"invalid default for field {kind.name}.{each.name}: "
                    f"{_shown(each.default)} is not a {each.type}"
                )
    return ""


def all_types(schema: AvroType) -> Iterator[AvroType]:
    """Yield ``schema`` and every type within it, each once."""
    # Without recursion: the tree may have cycles, and be deep.
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        kind = waiting.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        yield kind
        waiting += (each.type for each in kind.fields.values())
        waiting += kind.branches
        waiting += [] if kind.inner is None else [kind.inner]


def fits(default: object, kind: AvroType) -> bool:
    """Whether the JSON of a default is a value of a type; for a union, of its first branch."""
    match kind.kind:
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "int" | "long":
            greatest = INT_MAX if kind.kind == "int" else LONG_MAX
            return (
                isinstance(default, int)
                and not isinstance(default, bool)  # Python's booleans are integers
                and -greatest - 1 <= default <= greatest
            )
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
            # Each field is given, or has a default of its own, which is checked by itself. Members
            # that the record does not have are passed over, as in Java.
            return isinstance(default, dict) and all(
                fits(default[each.name], each.type)
                if each.name in default
                else each.default is not NO_DEFAULT
                for each in kind.fields.values()
            )
