"""Topics as Apache Arrow tables: needs the extra ``arrow`` (pyarrow).

async for batch in geminga.arrow.read_batches(client, "orders"):
    ...

Rows have a column for the payload, and columns that say where and when the message was published:
those of Pulsar's connector for Spark, with its names and types.
"""

from __future__ import annotations

from geminga.arrow.columns import METADATA_FIELDS
from geminga.arrow.encoding import PayloadEncoder, PayloadKind, payload_schema
from geminga.arrow.payloads import VALUE, payload_fields
from geminga.arrow.record_batches import RecordBatches, read_batches, read_table
from geminga.arrow.rows import CORRUPT, BadRecords

__all__ = [
    "CORRUPT",
    "METADATA_FIELDS",
    "VALUE",
    "BadRecords",
    "PayloadEncoder",
    "PayloadKind",
    "RecordBatches",
    "payload_fields",
    "payload_schema",
    "read_batches",
    "read_table",
]
