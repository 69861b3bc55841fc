"""JSON: records as text, with an Avro definition, by whose rules Pulsar compares them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from geminga.schemas.records import json_definition, kind_of
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType

RecordT = TypeVar("RecordT")


class JsonSchema(Generic[RecordT]):
    """Values are instances of a dataclass or a pydantic model: ``JsonSchema(Order)``. With a
    ``definition``, an Avro record, they are what ``json.loads`` makes: ``JsonSchema(dict,
    definition=...)``; they are not checked against it.

    The types of fields may be those of ``AvroSchema``; times, dates and ``UUID`` are text in JSON,
    and bytes are text with a letter for each. ``properties`` are kept in the schema registry.
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
        # A pydantic model reads, checks and writes its JSON itself.
        self._is_model = hasattr(record, "model_validate_json")
        # Made once: registries compare the text of definitions, which must be the same for every
        # producer of this schema.
        made = definition if self._kind is None else json_definition(self._kind.definition)
        self.schema_info = SchemaInfo(
            SchemaType.JSON, "JSON", json.dumps(made).encode(), properties or {}
        )

    def encode(self, value: RecordT, /) -> bytes:
        """JSON in UTF-8. Raises ``TypeError`` or ``ValueError``."""
        if not isinstance(value, self._record):
            raise TypeError(
                f"the value should be of type {self._record.__name__}, and not "
                f"{type(value).__name__}"
            )
        # A model knows how values of its fields are written.
        if self._is_model:
            return cast("Any", value).model_dump_json().encode()  # type: ignore[no-any-return]
        # With a definition the value is JSON's own: nothing is converted.
        plain = value if self._kind is None else self._kind.to_json(value)
        # Without spaces, and letters as they are: brokers store it, and no person reads it there.
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()

    def decode(self, payload: bytes, /) -> RecordT:
        """The value of a payload; raises ``ValueError`` for one that is no JSON, or no such
        record."""
        if self._is_model:
            return cast("Any", self._record).model_validate_json(payload)  # type: ignore[no-any-return]
        # ``json`` reads UTF-8 by itself, and raises a ``ValueError`` for what is no JSON.
        plain = json.loads(payload)
        return cast("RecordT", plain if self._kind is None else self._kind.from_json(plain))

    def __repr__(self) -> str:
        return f"JsonSchema({self._record.__name__})"
