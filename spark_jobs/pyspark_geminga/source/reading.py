"""What tasks do: read one part of a topic, as Arrow record batches of the query's schema."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from geminga import LogPosition, PrivateKeys
from geminga.arrow import RecordBatches, read_batches
from pyspark_geminga._pool import ClientLoop, task_client
from pyspark_geminga.access import pems_of
from pyspark_geminga.errors import DataLost
from pyspark_geminga.log_layout import LogLayout
from pyspark_geminga.rest import AdminClient
from pyspark_geminga.source.broker_view import patiently
from pyspark_geminga.source.filters import KEY
from pyspark_geminga.source.options import SourceOptions
from pyspark_geminga.source.row_schema import RowSchema

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads of a topic: from ``start`` up to but not at ``end``.

    ``holds_start`` says that the planner knows the entry at the start to be stored, ``is_known``
    that it saw the ledgers.
    """

    topic: str
    start: LogPosition
    end: LogPosition
    is_known: bool = False
    holds_start: bool = False

    @classmethod
    def of(
        cls,
        topic: str,
        start: LogPosition,
        end: LogPosition,
        layout: LogLayout,
        *,
        has_come: LogPosition | None = None,
    ) -> Part:
        """The part of a log that the planner sees as ``layout``, and of which that entry came."""
        holds_start = start == has_come or layout.holds(start)
        return cls(topic, start, end, bool(layout.ledgers), holds_start)


def read_part(
    part: InputPartition,
    options: SourceOptions,
    rows: RowSchema,
    keys: frozenset[bytes | None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of ``part``, only those with one of ``keys`` if there are some: filters on a column
    come only where rows have it. Raises ``DataLost``, ``TimeoutError`` or ``ClientError``."""
    if not isinstance(part, Part):
        return  # what Spark makes of no parts at all
    loop = task_client(options.access)
    # Read by each task: files of keys are on the executors, and never in what Spark pickles.
    pems = pems_of(options.payload.private_keys)
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
        decryption=PrivateKeys(pems) if pems else None,
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
                is_missing = _lacks_start(part, batches)
                _check(loop, part, options, batches.first_position, is_missing=is_missing)
                is_first = False
            if keys is not None:
                # Before Spark gets the rows: handing them over costs as much as making them.
                wanted_keys = pa.array(list(keys), pa.binary())
                has_key = pc.call_function(
                    "is_in", [batch.column(KEY)], pc.SetLookupOptions(wanted_keys)
                )
                batch = batch.filter(has_key)  # noqa: PLW2901  # fewer rows of it
                if not batch.num_rows:
                    continue
            yield batch if is_same else batch.cast(wanted)
        is_missing = part.is_known and batches.next_position[:2] != part.end[:2]
        is_missing = is_missing or _lacks_start(part, batches)
        _check(loop, part, options, batches.first_position, is_missing=is_missing)
    finally:
        loop.run(batches.aclose())


def _lacks_start(part: Part, batches: RecordBatches) -> bool:
    """Was the entry at the start there when the batch was planned, and did not come?"""
    first = batches.first_position
    return part.holds_start and (first is None or first[:2] != part.start[:2])


def _check(
    loop: ClientLoop,
    part: Part,
    options: SourceOptions,
    first: LogPosition | None,
    *,
    is_missing: bool,
) -> None:
    """Where entries are missing at an end of the part, ask whether they are deleted: they may be
    such that no reader gets (markers), or the ledger ended. Without a REST side only an entry at
    the start that came to the planner, and comes no more, is known to be deleted.
    """
    if not is_missing:
        return
    available = None if first is None else tuple(first)
    if part.is_known and options.access.admin_url is not None:
        admin = AdminClient(options.access)
        try:
            ask = partial(admin.layouts, part.topic, 0)
            layout = loop.run(patiently(ask, options.poll_timeout_s))[part.topic]
        finally:
            admin.close()
        if layout is not None and not layout.is_lost(part.start) and part.end <= layout.end:
            return
        available = None if layout is None else tuple(layout.first)
    if options.fails_on_data_loss:
        raise DataLost(part.topic, tuple(part.start), available)
    log.warning(
        "messages were deleted before they were read",
        extra={"topic": part.topic, "wanted": tuple(part.start), "available": available},
    )
