"""Records of the official client (``pulsar.schema.Record``, or the facade's) as schemas."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

import geminga


def is_record_class(found: object) -> bool:
    """Whether ``found`` is a record class, declared as in the official client."""
    # By its attributes, not by its base: the class may come from the official client, or from the
    # facade.
    return isinstance(found, type) and hasattr(found, "schema") and hasattr(found, "_fields")


class JsonRecords:
    """A schema of records that are encoded as JSON."""

    # Converts dicts, by the definition that the class of records makes of its fields.
    of_dicts: ClassVar[Any] = geminga.JsonSchema

    def __init__(self, record: Any) -> None:  # noqa: ANN401 - a class of the user's
        self._record = record
        # The schema that brokers see is the record's own, as the official client would register it.
        self._inner: Any = self.of_dicts(dict, definition=record.schema())
        self.schema_info: geminga.SchemaInfo = self._inner.schema_info

    def encode(self, value: Any, /) -> bytes:  # noqa: ANN401 - a record
        """Encode a record. Raises ``TypeError`` for a value of another class."""
        # Another record with the same fields could be encoded, and would be a mistake.
        if not isinstance(value, self._record):
            raise TypeError(f"the value is a {self._record.__name__}, not {type(value).__name__}")
        encoded: bytes = self._inner.encode(plain(value))
        return encoded

    def decode(self, payload: bytes, /) -> Any:  # noqa: ANN401 - a record
        """Decode a record. Raises ``ValueError`` for another payload."""
        # The record's constructor makes records of nested dicts, and enums of names.
        return self._record(**self._inner.decode(payload))


class AvroRecords(JsonRecords):
    """A schema of records that are encoded as Avro, and decoded by their writer's schema."""

    # The definition is the same, the encoding and the type of the schema are Avro's.
    of_dicts = geminga.AvroSchema

    def reader_of(self, writer: geminga.SchemaInfo, /) -> Callable[[bytes], Any]:
        """A decoder of payloads that were written with another schema. Raises ``ValueError``."""
        read = self._inner.reader_of(writer)
        return lambda payload: self._record(**read(payload))


def plain(value: Any) -> Any:  # noqa: ANN401 - what records hold
    """Turn a value of a record into what JSON and Avro encode: enums to names, records to dicts."""
    match value:
        case Enum():
            return value.name
        case list():
            return [plain(each) for each in value]
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case _ if is_record_class(type(value)):
            return {name: plain(getattr(value, name)) for name in type(value)._fields}
        case _:
            return value
