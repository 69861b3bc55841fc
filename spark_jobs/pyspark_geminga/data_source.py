"""The data source that Spark finds by the name ``pulsar``: makes readers and writers of options."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_geminga.source.batch_reader import BatchReader, FilteringBatchReader
from pyspark_geminga.source.decisions.options import SourceOptions
from pyspark_geminga.source.row_schema import RowSchema
from pyspark_geminga.source.stream_reader import StreamReader


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
        return RowSchema.of_topics(options).columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read. Raises ``InvalidOption``."""
        options = SourceOptions.of(self.options, is_streaming=False)
        # The class decides whether Spark offers filters at all, see there.
        kind = FilteringBatchReader if options.pushes_filters else BatchReader
        return kind(options, RowSchema.of_user(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read. Raises ``InvalidOption``."""
        # All options are checked here, in the process that plans: an error reaches the user before
        # any task runs.
        options = SourceOptions.of(self.options, is_streaming=True)
        return StreamReader(options, RowSchema.of_user(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """A batch write."""
        from pyspark_geminga.sink import batch_writer  # noqa: PLC0415  # readers do without

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """A streaming write."""
        from pyspark_geminga.sink import stream_writer  # noqa: PLC0415  # readers do without

        return stream_writer(self.options, schema, overwrite=overwrite)
