"""Which columns a read has: those of the topics' schema, or one of bytes; and those of metadata."""

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
from pyspark_geminga.source.decisions.options import SourceOptions


# Where the columns of a read come from:
#
#   schema of the topics -> payload_fields --+
#   METADATA_FIELDS that are chosen ---------+--> columns --> Arrow, as Spark wants it
#   __corrupt, with badRecord=permissive ----+
@dataclass(frozen=True, slots=True)
class RowSchema:
    """The columns of a read, and how payloads become columns."""

    info: SchemaInfo | None  # the topics' schema; None where payloads stay bytes
    columns: StructType  # those that Spark expects: all of them, or fewer

    @classmethod
    def of_topics(cls, options: SourceOptions) -> RowSchema:
        """All columns that the options allow. Raises ``ConnectorError`` or ``ClientError``."""
        info = _topics_schema(options)
        return cls(info, from_arrow_schema(_columns(info, options, are_all=False)))

    @classmethod
    def of_user(cls, columns: StructType, options: SourceOptions) -> RowSchema:
        """The columns that a user gave, or Spark took from ``of_topics``: no others are read.

        Raises ``InvalidOption`` for a column that does not exist, or has another type.
        """
        # A query of metadata alone needs no schema, and works where topics have different ones. The
        # topics are asked again, in another process than the one which told Spark the columns: a
        # schema that changed in between is refused below, not misread.
        needs_payload = any(name not in METADATA_FIELDS for name in columns.names)
        info = _topics_schema(options) if needs_payload else None
        known = from_arrow_schema(_columns(info, options, are_all=True))
        # Compared by name and as texts: whether a column may be null does not matter.
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
        """The Arrow schema that Spark expects record batches to have exactly."""
        return to_arrow_schema(self.columns, timezone="UTC")


def _columns(info: SchemaInfo | None, options: SourceOptions, *, are_all: bool) -> pa.Schema:
    """Columns of the payload, then those of metadata that the options choose; with ``are_all``
    every one of metadata, since a user may name columns that the options leave out."""
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
        # Last, and only where it is used: a row has either it or the columns of the payload.
        fields.append(CORRUPT)
    return pa.schema(fields)


def _topics_schema(options: SourceOptions) -> SchemaInfo | None:
    """The schema that all topics have, ``None`` for bytes."""
    if options.payload.is_raw:
        return None
    loop = task_client(options.access)
    view = BrokerView(loop.client, options)

    # Names and schemas are asked for together: a retry looks topics up again.
    async def ask() -> list[tuple[str, SchemaInfo | None]]:
        names = await view.topics()
        found = await asyncio.gather(*[loop.client.schema(name) for name in names])
        return list(zip(names, found, strict=True))

    found = loop.run(patiently(ask, options.poll_timeout_s))
    # A pattern may match nothing yet: the rows are bytes until the query is started again.
    if not found:
        return None

    def meaning(info: SchemaInfo | None) -> object:
        # Name, version and properties of a schema change no column.
        return None if info is None else (info.type, info.definition)

    first_topic, first = found[0]
    for topic, info in found[1:]:
        if meaning(info) != meaning(first):
            # Bytes are what all of them have in common.
            if options.payload.allows_different_schemas:
                return None
            raise ConnectorError(
                f"{first_topic} and {topic} have different schemas: read them apart, or as bytes "
                "with allowDifferentTopicSchemas=true"
            )
    return first
