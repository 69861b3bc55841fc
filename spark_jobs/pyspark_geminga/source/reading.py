"""What tasks do: read one part of a topic, as Arrow record batches of the query's schema."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from geminga import LogPosition
from geminga.arrow import RecordBatches, read_batches
from pyspark_geminga._pool import ClientLoop, task_client
from pyspark_geminga.errors import DataLost
from pyspark_geminga.log_layout import LogLayout
from pyspark_geminga.rest import AdminClient
from pyspark_geminga.source.broker_view import patiently
from pyspark_geminga.source.options import SourceOptions
from pyspark_geminga.source.row_schema import RowSchema

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads of a topic: from ``start`` up to but not at ``end``.

    ``holds_start`` says that the planner saw the entry at the start, ``is_known`` that it saw the
    ledgers at all.
    """

    topic: str
    start: LogPosition
    end: LogPosition
    is_known: bool = False
    holds_start: bool = False

    @classmethod
    def of(cls, topic: str, start: LogPosition, end: LogPosition, layout: LogLayout) -> Part:
        """The part of a log that the planner sees as ``layout``."""
        return cls(topic, start, end, bool(layout.ledgers), layout.holds(start))


def read_part(
    part: InputPartition, options: SourceOptions, rows: RowSchema
) -> Iterator[pa.RecordBatch]:
    """The rows of ``part``. Raises ``DataLost``, ``TimeoutError`` or ``ClientError``."""
    if not isinstance(part, Part):
        return  # what Spark makes of no parts at all
    loop = task_client(options.access)
    batches = read_batches(
        loop.client,
        part.topic,
        part.start,
        part.end,
        schema=rows.info,
        columns=rows.columns.names,
        bad_records=options.payload.bad_record,
        batch_rows=options.payload.batch_rows,
        batch_bytes=options.payload.batch_bytes,
        timeout_s=options.poll_timeout_s,
    )
    # Spark's types have less of a say than Arrow's (in which parts may be null): a cast copies
    # nothing for that.
    wanted = rows.arrow
    is_same = batches.schema.equals(wanted)
    is_first = True
    try:
        for batch in loop.iterate(batches):
            if is_first:
                _check(loop, part, options, is_missing=_lacks_start(part, batches))
                is_first = False
            yield batch if is_same else batch.cast(wanted)
        is_missing = batches.next_position[:2] != part.end[:2] or _lacks_start(part, batches)
        _check(loop, part, options, is_missing=is_missing)
    finally:
        loop.run(batches.aclose())


def _lacks_start(part: Part, batches: RecordBatches) -> bool:
    """Was the entry at the start there when the batch was planned, and did not come?"""
    first = batches.first_position
    return part.holds_start and (first is None or first[:2] != part.start[:2])


def _check(loop: ClientLoop, part: Part, options: SourceOptions, *, is_missing: bool) -> None:
    """Where entries are missing at an end of the part, ask whether they are deleted: they may be
    such that no reader gets (markers), or the ledger ended. Without a REST side it stays unknown.
    """
    if not is_missing or not part.is_known or options.access.admin_url is None:
        return
    admin = AdminClient(options.access)
    try:
        found = loop.run(patiently(lambda: admin.layouts(part.topic, 0), options.poll_timeout_s))
    finally:
        admin.close()
    layout = found[part.topic]
    if layout is not None and not layout.is_lost(part.start) and part.end <= layout.end:
        return
    available = None if layout is None else layout.first
    if options.fails_on_data_loss:
        raise DataLost(part.topic, tuple(part.start), available)
    log.warning(
        "messages were deleted before they were read",
        extra={"topic": part.topic, "wanted": tuple(part.start), "available": available},
    )
