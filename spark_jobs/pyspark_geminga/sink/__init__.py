"""The sink: ``df.write.format("pulsar")`` and ``df.writeStream.format("pulsar")``.

``options`` are what users choose; ``rows`` turns columns into payloads and metadata; ``routing``
and ``cutting`` decide, purely, to which topic and in which entries rows go; ``task_writer`` sends
them; ``deduplication`` checks that topics drop repeats; ``writers`` has what Spark calls.

At-least-once by default; exactly-once with ``semantics=dedup`` and topics that deduplicate. For
that, a task that is repeated must send the same rows in the same entries under the same sequence
ids: nothing here may depend on time, chance or the order in which rows arrive.
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
