"""Topics as Apache Arrow tables: needs ``pip install 'geminga[arrow]'`` (pyarrow).

```python
schema = await client.schema("orders")
async for batch in geminga.arrow.read_batches(client, "orders", schema=schema):
    print(batch.num_rows)
```

``read_batches`` and ``read_table`` read a range of one topic or partition. Rows have columns for
the payload (``payload_fields``), and columns that say where and when the message was published
(``METADATA_FIELDS``); both have the names and types of Pulsar's connector for Spark.
``PayloadEncoder`` and ``payload_schema`` go the other way, from columns to messages.

- ``VALUE``: the column of payloads that are no records.
- ``CORRUPT``: the column of payloads that could not be read, with ``bad_records="permissive"``.
- ``BadRecords``, ``PayloadKind``: the words that ``read_batches`` and ``payload_schema`` take.
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
