"""Topics as Apache Arrow tables: needs the extra ``arrow`` (pyarrow).

async for batch in geminga.arrow.read_batches(client, "orders"):
    ...

Rows have a column for the payload, and columns that say where and when the message was published:
those of Pulsar's connector for Spark, with its names and types.
"""

from __future__ import annotations

from geminga.arrow.columns import METADATA_FIELDS, VALUE
from geminga.arrow.encoding import PayloadEncoder, PayloadKind, payload_schema
from geminga.arrow.reading import RecordBatches, read_batches, read_table

__all__ = [
    "METADATA_FIELDS",
    "VALUE",
    "PayloadEncoder",
    "PayloadKind",
    "RecordBatches",
    "payload_schema",
    "read_batches",
    "read_table",
]
