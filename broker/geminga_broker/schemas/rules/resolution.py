"""Whether a reader's Avro schema can read what a writer's schema wrote, and if not, why. Pure.

The rules are "Schema Resolution" of Avro's specification as implemented by its Java library 1.11,
whose ``SchemaValidator`` Pulsar's brokers use. It differs from the specification in these points:

- records are compared by their fields, whatever their names; enums and fixed by name as well;
- an enum may lose symbols: only a message with one of these could not be read;
- in a reader's union, a record without a namesake is read by the first record that has all fields;
- two unions of the same types in the same order fit, whatever is inside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_broker.schemas.errors import InvalidSchema
from geminga_broker.schemas.rules.avro import NO_DEFAULT, AvroType, all_types, fits

# Pairs of types that are compared, which takes some milliseconds. Usual schemas have hundreds;
# unions of thousands of records can only be meant to keep the broker busy.
STEPS_MAX = 20_000

# Branches of a union that a refusal names.
BRANCHES_SHOWN_MAX = 10

# Which types of a reader read which type of a writer.
_PROMOTIONS: dict[str, tuple[str, ...]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}

Pair = tuple[int, int]
"""The ids of a reader's and a writer's type: recursive types cannot be compared by value."""


def reading_problem(reader: AvroType, writer: AvroType) -> str:
    """Why ``reader`` cannot read what ``writer`` wrote: the field and the rule; "" if it can.

    Raises ``InvalidSchema`` for schemas that would take too long to compare.
    """
    resolution = _Resolution()
    # Only the reader's aliases count: it is the one that knows under which names its types were
    # written.
    for kind in all_types(reader):
        for alias in kind.aliases:
            resolution.names[alias] = kind.name
        for each in kind.fields.values():
            for alias in each.aliases:
                resolution.field_names.setdefault(kind.name, {})[alias] = each.name
    return resolution.problem(reader, writer, "")


@dataclass(slots=True, eq=False)
class _Resolution:
    """Compares one writer with one reader."""

    # The reader's aliases give types and fields of the writer new names: by old name, and by record
    # and old name.
    names: dict[str, str] = field(default_factory=dict[str, str])
    field_names: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    # Problems of pairs of records; "" for pairs that fit, or are being compared: a recursive type
    # meets itself again. A pair that is found not to fit ends the whole comparison at once, so that
    # a "" which was supposed is never left wrong.
    _records: dict[Pair, str] = field(default_factory=dict[Pair, str], init=False)
    _outlines: dict[Pair, str] = field(default_factory=dict[Pair, str], init=False)
    # How many pairs of types were compared.
    _steps: int = field(default=0, init=False)

    def _step(self) -> None:
        """Count one pair of types; the work on definitions of clients is bounded."""
        # Counts for the whole comparison. Without it, unions of records within unions would take
        # time exponential in their depth.
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise InvalidSchema(
                f"the schemas are too large to be compared: more than {STEPS_MAX} pairs of types"
            )

    def _name(self, writer: AvroType) -> str:
        """The name by which the reader knows a writer's type."""
        return self.names.get(writer.name, writer.name)

    def _fields(self, writer: AvroType) -> dict[str, AvroType]:
        """The types of the writer's fields, by the names by which the reader knows them."""
        renamed = self.field_names.get(self._name(writer), {})
        return {renamed.get(name, name): each.type for name, each in writer.fields.items()}

    def problem(self, reader: AvroType, writer: AvroType, where: str) -> str:
        """Why ``reader`` cannot read what ``writer`` wrote at ``where``, a path of fields."""
        self._step()
        if writer.kind == "union":
            # A shortcut of the Java library (``unionEquiv``), and more than that: equal unions fit
            # even where their branches in detail would not.
            if self._are_same(reader, writer, set()):
                return ""
            # Every branch must be readable: the writer may have used any of them.
            problems = (self.problem(reader, each, where) for each in writer.branches)
            return next(filter(None, problems), "")
        outline = self._outline(reader, writer, where)
        if outline:
            return outline
        if reader.kind == "union":
            at = self._branch(reader, writer)
            assert at is not None  # or the outline would have said so
            return self.problem(reader.branches[at], writer, where)
        match writer.kind:
            case "array" | "map" if reader.kind == writer.kind:
                return self.problem(reader.item, writer.item, f"{where}[]")
            case "record":
                pair = (id(reader), id(writer))
                if pair in self._records:
                    return self._records[pair]
                # Supposed to fit while it is compared: a recursive type comes back to this pair.
                # The fields are compared below; the outline above has made sure that none is
                # missing.
                self._records[pair] = ""
                for name, kind in self._fields(writer).items():
                    # Fields that are not read are skipped, whatever their types.
                    own = reader.fields.get(name)
                    if own is not None:
                        found = self.problem(own.type, kind, _inside(where, reader, name))
                        if found:
                            self._records[pair] = found
                            return found
                return ""
            case _:
                return ""

    def _outline(self, reader: AvroType, writer: AvroType, where: str) -> str:
        """The problem with the types themselves: kinds, names, sizes, fields without a default. The
        types within them are not compared."""
        at = f"field {where}: " if where else ""
        if writer.kind == "union":
            return ""
        if writer.kind == reader.kind:
            if writer.kind in {"enum", "fixed"}:
                name = self._name(writer)
                if name != reader.name:
                    return f"{at}the {writer} is called {reader.name} and has no alias {name}"
                if writer.size != reader.size:
                    return f"{at}the {writer} has {writer.size} bytes, and {reader.size} are read"
            if writer.kind == "record":
                return self._missing_fields(reader, writer, where)
            return ""
        if reader.kind == "union":
            if self._branch(reader, writer) is None:
                branches = ", ".join(map(str, reader.branches[:BRANCHES_SHOWN_MAX]))
                return f"{at}no branch of the union [{branches}] reads {writer}"
            return ""
        if reader.kind in _PROMOTIONS.get(writer.kind, ()):
            return ""
        return f"{at}type {writer} cannot be read as {reader}"

    def _missing_fields(self, reader: AvroType, writer: AvroType, where: str) -> str:
        """The problem with a field that is read but was not written."""
        pair = (id(reader), id(writer))
        if pair not in self._outlines:
            self._step()
            written = self._fields(writer)
            self._outlines[pair] = ""
            for name, own in reader.fields.items():
                if name in written:
                    continue
                which = f"field {_inside(where, reader, name)}"
                if own.default is NO_DEFAULT:
                    self._outlines[pair] = f"{which} is read, is not written, and has no default"
                    break
                if not fits(own.default, own.type):
                    self._outlines[pair] = (
                        f"{which} is not written, and its default is no {own.type}"
                    )
                    break
        return self._outlines[pair]

    def _branch(self, reader: AvroType, writer: AvroType) -> int | None:
        """The index of the branch of a reader's union that reads a writer's type, which is no
        union."""
        # A branch of the same name is best, then a record that looks alike, then a promotion. No
        # answer depends on what lies within the branches, except for the fields of records.
        alike: int | None = None
        for at, each in enumerate(reader.branches):
            self._step()
            if each.kind != writer.kind:
                continue
            name = self._name(writer)
            if not each.name or each.name == name:
                return at
            if writer.kind == "record" and self._looks_alike(each, writer):
                # Of these the last one with the same short name, else the first. As
                # ``Resolver.ReaderUnion`` of the Java library decides it.
                is_namesake = each.short_name == name.rpartition(".")[2]
                alike = at if alike is None or is_namesake else alike
        if alike is not None:
            return alike
        promotions = _PROMOTIONS.get(writer.kind, ())
        kinds = (at for at, each in enumerate(reader.branches) if each.kind in promotions)
        return next(kinds, None)

    def _looks_alike(self, reader: AvroType, writer: AvroType) -> bool:
        """Whether a record can read another one, as far as its fields' types themselves tell."""
        if self._missing_fields(reader, writer, ""):
            return False
        written = self._fields(writer)
        pairs = ((own.type, written.get(name)) for name, own in reader.fields.items())
        return not any(
            self._outline(own, kind, "")
            for own, kind in pairs
            # Without records in unions, which would ask this question again.
            if kind is not None and not (own.kind == "union" and kind.kind == "record")
        )

    def _are_same(self, reader: AvroType, writer: AvroType, seen: set[Pair]) -> bool:
        """Whether two types are the same, except for the namespaces of names."""
        self._step()
        if reader.kind != writer.kind:
            return False
        if writer.name and self._name(writer).rpartition(".")[2] != reader.short_name:
            return False
        match writer.kind:
            case "array" | "map":
                return self._are_same(reader.item, writer.item, seen)
            case "union":
                return len(reader.branches) == len(writer.branches) and all(
                    self._are_same(own, other, seen)
                    for own, other in zip(reader.branches, writer.branches, strict=True)
                )
            case "record":
                pair = (id(reader), id(writer))
                if pair in seen:
                    return True
                # A pair that is being compared counts as the same, as in ``problem``.
                seen.add(pair)
                written = self._fields(writer)
                return list(reader.fields) == list(written) and all(
                    self._are_same(own.type, written[name], seen)
                    for name, own in reader.fields.items()
                )
            case _:
                return (reader.size, reader.symbols) == (writer.size, writer.symbols)


def _inside(where: str, record: AvroType, name: str) -> str:
    """The path of the field ``name`` of a record that lies at ``where``."""
    return f"{where}.{name}" if where else f"{record.short_name}.{name}"
