"""Records of the official client (``pulsar.schema.Record``, or the facade's) as schemas."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import geminga


def is_record_class(found: object) -> bool:
    """Whether it is a class of records that are declared as in the official client."""
    return isinstance(found, type) and hasattr(found, "schema") and hasattr(found, "_fields")


class JsonRecords:
    """Records as JSON."""

    def __init__(self, record: Any) -> None:  # noqa: ANN401 - a class of the user's
        self._record = record
        self._inner: Any = geminga.JsonSchema(dict, definition=record.schema())
        self.schema_info: geminga.SchemaInfo = self._inner.schema_info

    def encode(self, value: Any, /) -> bytes:  # noqa: ANN401 - a record
        """Raises ``TypeError`` for what is no such record."""
        if not isinstance(value, self._record):
            raise TypeError(f"the value is a {self._record.__name__}, not {type(value).__name__}")
        encoded: bytes = self._inner.encode(plain(value))
        return encoded

    def decode(self, payload: bytes, /) -> Any:  # noqa: ANN401 - a record
        """Raises ``ValueError`` for what is no such record."""
        return self._made(self._inner.decode(payload))

    def _made(self, fields: Any) -> Any:  # noqa: ANN401 - a record
        return self._record(**fields)


class AvroRecords(JsonRecords):
    """Records as Avro, read by the schema that they were written with."""

    def __init__(self, record: Any) -> None:  # noqa: ANN401 - a class of the user's
        super().__init__(record)
        self._inner = geminga.AvroSchema(dict, definition=record.schema())
        self.schema_info = self._inner.schema_info

    def reader_of(self, writer: geminga.SchemaInfo, /) -> Callable[[bytes], Any]:
        """Reads what was written with another schema. Raises ``ValueError``."""
        read = self._inner.reader_of(writer)
        return lambda payload: self._made(read(payload))


def plain(value: Any) -> Any:  # noqa: ANN401 - what records hold
    """What JSON and Avro have for a value of a record."""
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
