"""Avro: records in Avro's binary form, read by the schema they were written with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

from geminga.errors import MissingExtra
from geminga.schemas.records import Kind, kind_of
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

RecordT = TypeVar("RecordT")


class AvroSchema(Generic[RecordT]):
    """Values are of a dataclass or a pydantic model, or, with a ``definition``, mappings.

    ``AvroSchema(Order)`` makes the definition of the class: see ``geminga.schemas.records``.
    ``AvroSchema(dict, definition=...)`` takes one. Needs the extra ``avro`` (fastavro).
    """

    def __init__(
        self,
        record: type[RecordT],
        *,
        definition: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ``TypeError`` for a class of which no definition can be made, ``ValueError`` for
        a definition that is none, ``MissingExtra``."""
        self._record = record
        self._kind: Kind | None = None if definition is not None else kind_of(record)
        self._definition: Any = definition if self._kind is None else self._kind.definition
        self._parsed = parse(self._definition)
        self.schema_info = SchemaInfo(
            SchemaType.AVRO, "AVRO", json.dumps(self._definition).encode(), properties or {}
        )

    def encode(self, value: RecordT, /) -> bytes:
        """Raises ``TypeError``, ``ValueError`` for a value that the definition does not have."""
        if not isinstance(value, self._record):
            raise TypeError(
                f"the value should be of type {self._record.__name__}, and not "
                f"{type(value).__name__}"
            )
        plain = value if self._kind is None else self._kind.to_avro(value)
        return encode(self._parsed, plain)

    def decode(self, payload: bytes, /) -> RecordT:
        """Read what was written with this very schema; raises ``ValueError``."""
        return self._opened(decode(payload, self._parsed, self._parsed))

    def reader_of(self, writer: SchemaInfo, /) -> Callable[[bytes], RecordT]:
        """Reads what was written with another schema. Raises ``ValueError`` for one that is none;
        so does the reader, for what this schema cannot read.

        A record may have another name there: in another language its class has one.
        """
        if writer.definition == self.schema_info.definition:
            return self.decode
        definition = json.loads(writer.definition)
        written, read = parse(definition), self._parsed
        if _is_record(definition) and _is_record(self._definition):
            name = ".".join(filter(None, (definition.get("namespace"), definition["name"])))
            read = parse({**self._definition, "aliases": [name]})
        return lambda payload: self._opened(decode(payload, written, read))

    def _opened(self, plain: Any) -> RecordT:  # noqa: ANN401 - a mapping
        return cast("RecordT", plain if self._kind is None else self._kind.from_avro(plain))

    def __repr__(self) -> str:
        return f"AvroSchema({self._record.__name__})"


def _is_record(definition: object) -> bool:
    return isinstance(definition, dict) and definition.get("type") == "record"


def fastavro() -> Any:  # noqa: ANN401 - a module without types
    """The library; raises ``MissingExtra``."""
    try:
        import fastavro  # noqa: PLC0415 - only who uses Avro has it
    except ImportError as missing:
        raise MissingExtra("Avro schemas", "avro") from missing
    return fastavro


def parse(definition: Any) -> Any:  # noqa: ANN401 - JSON
    """The definition as the library wants it; raises ``ValueError`` for one that is none."""
    library = fastavro()
    try:
        return library.parse_schema(definition)
    except Exception as wrong:  # the library raises whatever its types do
        raise ValueError(f"this is no Avro schema: {wrong!r}") from wrong


def encode(parsed: Any, plain: Any) -> bytes:  # noqa: ANN401 - values of Avro
    """Avro's binary form, without a head; raises ``ValueError``."""
    out = io.BytesIO()
    try:
        fastavro().schemaless_writer(out, parsed, plain)
    except Exception as wrong:  # the library raises whatever its types do
        raise ValueError(f"the schema has no such value: {wrong!r}") from wrong
    return out.getvalue()


def decode(payload: bytes, written: Any, read: Any) -> Any:  # noqa: ANN401 - values of Avro
    """What was written with ``written``, as ``read`` has it; raises ``ValueError``."""
    try:
        return fastavro().schemaless_reader(io.BytesIO(payload), written, read)
    except Exception as wrong:  # damaged payloads make the library raise nearly anything
        raise ValueError(f"the payload is none of this schema: {wrong!r}") from wrong
