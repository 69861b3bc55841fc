"""Avro: records in Avro's binary form, read by the schema that they were written with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Generic, TypeVar

from geminga.errors import MissingExtra
from geminga.schemas.records import Kind, kind_of
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

RecordT = TypeVar("RecordT")


class AvroSchema(Generic[RecordT]):
    """Values are instances of a dataclass or a pydantic model: ``AvroSchema(Order)``. With a
    ``definition``, an Avro record, they are mappings: ``AvroSchema(dict, definition=...)``.

    The types of fields may be ``bool``, ``int``, ``float``, ``str``, ``bytes``, ``datetime``,
    ``date``, ``UUID``, enums, other such classes, and lists, ``dict[str, T]`` and ``T | None`` of
    these; ``AvroType`` chooses another primitive type. ``properties`` are kept in the schema
    registry. Needs ``pip install 'geminga[avro]'``.
    """

    def __init__(
        self,
        record: type[RecordT],
        *,
        definition: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ``TypeError`` for a class of which no definition can be made, ``ValueError`` for
        a definition that Avro does not accept, ``MissingExtra``."""
        self._record = record
        self._kind = kind_of(record) if definition is None else Kind(definition)
        # Parsed, records have their full names; the schema's text has the definition as it is.
        self._parsed = parse(self._kind.definition)
        self.schema_info = SchemaInfo(
            SchemaType.AVRO, "AVRO", json.dumps(self._kind.definition).encode(), properties or {}
        )

    def encode(self, value: RecordT, /) -> bytes:
        """Avro's binary form. Raises ``TypeError``, or ``ValueError`` for a value that does not fit
        the definition."""
        if not isinstance(value, self._record):
            raise TypeError(
                f"the value should be of type {self._record.__name__}, and not "
                f"{type(value).__name__}"
            )
        plain = self._kind.to_avro(value)
        out = io.BytesIO()
        try:
            # Without a header: consumers know the schema by the version in the metadata.
            fastavro().schemaless_writer(out, self._parsed, plain)
        except Exception as wrong:  # the library raises whatever its types do
            raise ValueError(f"the schema has no such value: {wrong!r}") from wrong
        return out.getvalue()

    def decode(self, payload: bytes, /) -> RecordT:
        """The value of a payload that was written with this very schema; raises ``ValueError``."""
        value: RecordT = self._kind.from_avro(decode(payload, self._parsed, self._parsed))
        return value

    def reader_of(self, writer: SchemaInfo, /) -> Callable[[bytes], RecordT]:
        """Return what reads payloads that were written with another schema.

        Records may have other names there, as their classes have in another language. Raises
        ``ValueError`` for a schema that cannot be used; what it returns raises it for a payload
        that this schema cannot read.
        """
        # The usual case needs no second schema, and no resolution of fields.
        if writer.definition == self.schema_info.definition:
            return self.decode
        # Parsed and matched once for each version, and kept by the lambda below.
        written = parse(json.loads(writer.definition))
        read = with_names_of(written, self._parsed)
        from_avro = self._kind.from_avro
        return lambda payload: from_avro(decode(payload, written, read))

    def __repr__(self) -> str:
        return f"AvroSchema({self._record.__name__})"


def fastavro() -> Any:  # noqa: ANN401 - a module without types
    """The library; raises ``MissingExtra``."""
    try:
        import fastavro  # noqa: PLC0415 - only users of Avro have it
    except ImportError as missing:
        raise MissingExtra("Avro schemas", "avro") from missing
    return fastavro


def parse(definition: Any) -> Any:  # noqa: ANN401 - JSON
    """The definition as the library wants it; raises ``ValueError`` if it does not accept it."""
    library = fastavro()
    try:
        return library.parse_schema(definition)
    except Exception as wrong:  # the library raises whatever its types do
        raise ValueError(f"this is no Avro schema: {wrong!r}") from wrong


def decode(payload: bytes, written: Any, read: Any) -> Any:  # noqa: ANN401 - values of Avro
    """What was written with ``written``, as ``read`` has it; raises ``ValueError``."""
    try:
        return fastavro().schemaless_reader(io.BytesIO(payload), written, read)
    except Exception as wrong:  # damaged payloads make the library raise nearly anything
        raise ValueError(f"the payload is none of this schema: {wrong!r}") from wrong


# An example. ``written`` is ``com.shop.Order`` with a field of ``com.shop.Item``, ``read`` is
# ``Order`` with a field of ``Line``. The library would refuse the pair for its names alone. With
# ``com.shop.Order`` as an alias of ``Order``, and ``com.shop.Item`` as one of ``Line``, it reads
# them by their fields.
def with_names_of(written: Any, read: Any) -> Any:  # noqa: ANN401 - what ``parse`` returns
    """The parsed schema ``read``, with the names that its records have in ``written`` as aliases:
    those of the records in the same places.

    The library compares names, which Avro for Java, and with it Pulsar's brokers, do only to choose
    among the records of a union. A name that ``read`` has for a record of its own becomes no alias
    of another record: in a union of both, one would be taken for the other.
    """
    # Aliases are for this writer alone: the parsed schema is shared with other versions.
    read = deepcopy(read)
    theirs, ours = _records_in(written), _records_in(read)
    own_names = {_short(name) for name in ours}
    # Types in the same places of both schemas, beginning with the whole ones.
    pending: list[tuple[Any, Any]] = [(written, read)]
    # Pairs of records that were compared: records may contain themselves.
    seen: set[tuple[str, str]] = set()
    while pending:
        writer, reader = pending.pop()
        writer, reader = _defined(writer, theirs), _defined(reader, ours)
        # A union on the writer's side: any of its branches may be in the payload.
        if isinstance(writer, list):
            pending.extend((branch, reader) for branch in writer)
        elif isinstance(reader, list):
            # Only the branch that will be read: an alias in another one could make the library
            # choose that.
            pending.extend((writer, branch) for branch in _branch_for(writer, reader, ours))
        elif not _are_alike(writer, reader):
            continue
        elif reader["type"] != "record":
            pending.extend((writer[of], reader[of]) for of in ("items", "values") if of in reader)
        elif (names := (writer["name"], reader["name"])) not in seen:
            seen.add(names)
            # The outermost record is in no union, and may have any name.
            if _short(names[0]) not in own_names or reader is read:
                reader["aliases"] = [*reader.get("aliases", ()), names[0]]
            types = {field["name"]: field["type"] for field in writer["fields"]}
            for field in reader["fields"]:
                # A field is found by its name in the writer, or else by the first of its own
                # aliases.
                known = [
                    name for name in (field["name"], *field.get("aliases", ())) if name in types
                ]
                pending.extend((types[name], field["type"]) for name in known[:1])
    return read


def _records_in(parsed: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    """The records of a parsed schema by their full names."""
    found: dict[str, Any] = {}
    pending = [parsed]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending.extend(each)
        elif isinstance(each, dict):
            pending.extend(each[of] for of in ("items", "values") if of in each)
            if each["type"] == "record":
                # A record is defined once and named from then on, so that this ends for a record
                # that contains itself.
                found[each["name"]] = each
                pending.extend(field["type"] for field in each["fields"])
    return found


def _defined(kind: Any, records: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
    """The record that a type names, or the type itself."""
    return records.get(kind, kind) if isinstance(kind, str) else kind


def _short(name: str) -> str:
    """The name without its namespace."""
    return name.rpartition(".")[2]


def _are_alike(writer: Any, reader: Any) -> bool:  # noqa: ANN401 - as above
    return (
        isinstance(writer, dict) and isinstance(reader, dict) and writer["type"] == reader["type"]
    )


def _branch_for(writer: Any, union: list[Any], records: Mapping[str, Any]) -> list[Any]:  # noqa: ANN401
    """The branch of a union by which a type is read, if there is one.

    For a record it is the one of the same name, else the first whose fields were all written or
    have defaults.
    """
    alike = [b for b in (_defined(b, records) for b in union) if _are_alike(writer, b)]
    if alike and writer["type"] == "record":
        fields = {field["name"] for field in writer["fields"]}
        named = [b for b in alike if _short(b["name"]) == _short(writer["name"])]
        alike = named or [
            b for b in alike if all("default" in f or f["name"] in fields for f in b["fields"])
        ]
    return alike[:1]
