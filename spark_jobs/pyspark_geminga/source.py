"""The data source that Spark finds by the name ``pulsar``: makes readers and writers of options."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from geminga.arrow import METADATA_FIELDS, VALUE
from pyspark_geminga.batch_reader import BatchReader, FilteringBatchReader
from pyspark_geminga.errors import InvalidOption
from pyspark_geminga.options import SourceOptions
from pyspark_geminga.stream_reader import StreamReader


class DefaultSource(DataSource):
    """``format("pulsar")``: Spark makes one for every read and write, with the user's options."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "pulsar"

    def schema(self) -> StructType:
        """The columns of a read that names none. Raises ``InvalidOption``."""
        # Spark asks in the same way for a stream: its options are those of a batch without an end.
        options = SourceOptions.of(self.options, is_streaming=False)
        return _spark_schema(_fields(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read. Raises ``InvalidOption``."""
        options = SourceOptions.of(self.options, is_streaming=False)
        kind = FilteringBatchReader if options.pushes_filters else BatchReader
        return kind(options, _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read. Raises ``InvalidOption``."""
        options = SourceOptions.of(self.options, is_streaming=True)
        return StreamReader(options, _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """A batch write."""
        from pyspark_geminga.sink import batch_writer  # noqa: PLC0415  # readers do without

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """A streaming write."""
        from pyspark_geminga.sink import stream_writer  # noqa: PLC0415  # readers do without

        return stream_writer(self.options, schema, overwrite=overwrite)


def _fields(options: SourceOptions) -> dict[str, pa.Field]:
    """All columns that there may be, by name."""
    fields = {VALUE.name: VALUE, **METADATA_FIELDS}
    wanted = options.payload.metadata_columns
    if wanted is None:
        return fields
    unknown = [name for name in wanted if name not in METADATA_FIELDS]
    if unknown:
        raise InvalidOption(
            "metadataColumns", f"{', '.join(unknown)}: there are {', '.join(METADATA_FIELDS)}"
        )
    return {VALUE.name: VALUE, **{name: METADATA_FIELDS[name] for name in wanted}}


def _spark_schema(fields: dict[str, pa.Field]) -> StructType:
    return from_arrow_schema(pa.schema(list(fields.values())))


def _columns(schema: StructType) -> tuple[str, ...]:
    """The columns to read: those of a schema that the user gave are all that is read.

    Raises ``InvalidOption`` for a column that there is not, or of another type.
    """
    known = {field.name: field for field in _spark_schema({VALUE.name: VALUE, **METADATA_FIELDS})}
    for field in schema.fields:
        if field.name not in known:
            raise InvalidOption(
                "schema", f"there is no column {field.name!r}, but {', '.join(known)}"
            )
        if field.dataType != known[field.name].dataType:
            raise InvalidOption(
                "schema",
                f"column {field.name!r} is {known[field.name].dataType.simpleString()}, "
                f"and not {field.dataType.simpleString()}",
            )
    return tuple(schema.names)
