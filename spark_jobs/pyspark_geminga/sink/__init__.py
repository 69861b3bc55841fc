"""The sink: ``df.write.format("pulsar")`` and ``df.writeStream.format("pulsar")``.

``options`` are what users choose, ``rows`` says which columns are what; ``cutting`` and ``routing``
decide which entries rows are stored in and where, ``task_writer`` stores them, ``writers`` is what
Spark calls. At-least-once by default; exactly-once where topics deduplicate.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from pyspark_geminga.errors import InvalidOption
from pyspark_geminga.sink.writers import BatchWriter, StreamWriter, WritePlan

__all__ = ["batch_writer", "stream_writer"]


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """For ``DataSource.writer``. Raises ``ConnectorError`` or ``ClientError``."""
    if overwrite:
        raise InvalidOption("mode", "overwrite is not possible: topics only grow; use append")
    return BatchWriter(WritePlan.of(options, schema, is_streaming=False))


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> StreamWriter:
    """For ``DataSource.streamWriter``. Raises ``ConnectorError`` or ``ClientError``."""
    if overwrite:
        raise InvalidOption("outputMode", "complete is not possible: topics only grow; use append")
    return StreamWriter(WritePlan.of(options, schema, is_streaming=True))
