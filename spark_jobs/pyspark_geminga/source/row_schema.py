"""Which columns a read has: of the topics' schema, or bytes; and metadata, as options say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from geminga import SchemaInfo
from geminga.arrow import CORRUPT, METADATA_FIELDS, payload_fields
from pyspark_geminga._pool import task_client
from pyspark_geminga.errors import ConnectorError, InvalidOption
from pyspark_geminga.source.broker_view import BrokerView, patiently
from pyspark_geminga.source.options import SourceOptions


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The columns that Spark expects, and the topics' schema ``info``, by which payloads become
    columns; without one they are bytes."""

    info: SchemaInfo | None
    columns: StructType

    @classmethod
    def of_topics(cls, options: SourceOptions) -> RowSchema:
        """All columns that the options allow. Raises ``ConnectorError`` or ``ClientError``."""
        info = _topics_schema(options)
        return cls(info, from_arrow_schema(_columns(info, options, are_all=False)))

    @classmethod
    def of_user(cls, columns: StructType, options: SourceOptions) -> RowSchema:
        """The columns that Spark was told, or took from ``of_topics``: no others are read.

        Raises ``InvalidOption`` for a column that there is not, or of another type.
        """
        needs_payload = any(name not in METADATA_FIELDS for name in columns.names)
        info = _topics_schema(options) if needs_payload else None
        known = from_arrow_schema(_columns(info, options, are_all=True))
        types = {field.name: field.dataType.simpleString() for field in known}
        for field in columns:
            if field.name not in types:
                raise InvalidOption(
                    "schema", f"there is no column {field.name!r}, but {', '.join(types)}"
                )
            if field.dataType.simpleString() != types[field.name]:
                raise InvalidOption(
                    "schema",
                    f"column {field.name!r} is {types[field.name]}, "
                    f"and not {field.dataType.simpleString()}",
                )
        return cls(info, columns)

    @property
    def arrow(self) -> pa.Schema:
        """What Spark takes record batches with, to the letter."""
        return to_arrow_schema(self.columns, timezone="UTC")


def _columns(info: SchemaInfo | None, options: SourceOptions, *, are_all: bool) -> pa.Schema:
    """Payload columns, then those of metadata that are chosen, or ``are_all``."""
    payload = options.payload
    try:
        fields = list(payload_fields(info))
    except ValueError as error:
        raise ConnectorError(
            f"the topic's schema cannot be columns: {error}; valueMode=raw reads it as bytes"
        ) from error
    chosen = payload.metadata_columns
    if chosen is None or are_all:
        chosen = tuple(METADATA_FIELDS)
    unknown = [name for name in chosen if name not in METADATA_FIELDS]
    if unknown:
        raise InvalidOption(
            "metadataColumns", f"{', '.join(unknown)}: there are {', '.join(METADATA_FIELDS)}"
        )
    fields += [METADATA_FIELDS[name] for name in chosen]
    if payload.bad_record == "permissive":
        fields.append(CORRUPT)
    return pa.schema(fields)


def _topics_schema(options: SourceOptions) -> SchemaInfo | None:
    """The schema that all topics have, ``None`` for bytes."""
    if options.payload.is_raw:
        return None
    loop = task_client(options.access)
    view = BrokerView(loop.client, options)

    async def ask() -> list[tuple[str, SchemaInfo | None]]:
        names = await view.topics()
        found = await asyncio.gather(*[loop.client.schema(name) for name in names])
        return list(zip(names, found, strict=True))

    found = loop.run(patiently(ask, options.poll_timeout_s))
    if not found:
        return None
    first_topic, first = found[0]
    for topic, info in found[1:]:
        if _meaning(info) != _meaning(first):
            if options.payload.allows_different_schemas:
                return None
            raise ConnectorError(
                f"{first_topic} and {topic} have different schemas: read them apart, or as bytes "
                "with allowDifferentTopicSchemas=true"
            )
    return first


def _meaning(info: SchemaInfo | None) -> object:
    """What two schemas have in common that make the same columns."""
    return None if info is None else (info.type, info.definition)
