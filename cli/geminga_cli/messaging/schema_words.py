"""Schemas as the command line names them, and values as it writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from geminga import AvroSchema, BytesSchema, JsonSchema, Schema, StringSchema
from geminga_cli.admin.errors import InvalidUse


@dataclass(frozen=True, slots=True)
class WrittenSchema:
    """A schema, and how its values are read from what a person wrote.

    ``read`` raises ``ValueError``.
    """

    schema: Schema[Any]
    read: Callable[[bytes], Any]


def written_schema(words: str) -> WrittenSchema:
    """``bytes``, ``string``, ``json:DEFINITION`` or ``avro:DEFINITION``.

    A definition is Avro's, in JSON; values of both are written as JSON. Raises ``InvalidUse``,
    ``MissingExtra``.
    """
    kind, _, definition = words.partition(":")
    if words == "bytes":
        return WrittenSchema(BytesSchema(), bytes)
    if words == "string":
        return WrittenSchema(StringSchema(), lambda body: body.decode())
    if kind not in ("json", "avro") or not definition:
        raise InvalidUse(
            f"{words!r} is no schema: bytes, string, json:DEFINITION or avro:DEFINITION"
        )
    try:
        parsed: Mapping[str, Any] = json.loads(definition)
        if kind == "json":
            return WrittenSchema(JsonSchema(object, definition=parsed), json.loads)
        return WrittenSchema(AvroSchema(object, definition=parsed), json.loads)
    except (ValueError, TypeError) as error:
        raise InvalidUse(f"the definition of the {kind} schema cannot be used: {error}") from None
