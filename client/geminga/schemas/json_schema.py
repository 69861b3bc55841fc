"""JSON: records as text, with a definition that Pulsar compares by Avro's rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from geminga.schemas.records import json_definition, kind_of
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

RecordT = TypeVar("RecordT")


class JsonSchema(Generic[RecordT]):
    """Values are of a dataclass or a pydantic model, or, with a ``definition``, what JSON has.

    ``JsonSchema(Order)`` makes the definition of the class: see ``geminga.schemas.records``.
    ``JsonSchema(dict, definition=...)`` takes one in Avro's form; values are not held against it.
    """

    def __init__(
        self,
        record: type[RecordT],
        *,
        definition: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ``TypeError`` for a class of which no definition can be made."""
        self._record = record
        self._kind = None if definition is not None else kind_of(record)
        self._is_model = hasattr(record, "model_validate_json")
        made = definition if self._kind is None else json_definition(self._kind.definition)
        self.schema_info = SchemaInfo(
            SchemaType.JSON, "JSON", json.dumps(made).encode(), properties or {}
        )

    def encode(self, value: RecordT, /) -> bytes:
        """UTF-8. Raises ``TypeError``, ``ValueError``."""
        if not isinstance(value, self._record):
            raise TypeError(
                f"the value should be of type {self._record.__name__}, and not "
                f"{type(value).__name__}"
            )
        if self._is_model:
            return cast("Any", value).model_dump_json().encode()  # type: ignore[no-any-return]
        plain = value if self._kind is None else self._kind.to_json(value)
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()

    def decode(self, payload: bytes, /) -> RecordT:
        """Raises ``ValueError`` for what is no JSON, or no such record."""
        if self._is_model:
            return cast("Any", self._record).model_validate_json(payload)  # type: ignore[no-any-return]
        plain = json.loads(payload)
        return cast("RecordT", plain if self._kind is None else self._kind.from_json(plain))

    def __repr__(self) -> str:
        return f"JsonSchema({self._record.__name__})"
