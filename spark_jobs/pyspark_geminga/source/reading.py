"""What tasks do: read one part of a topic, as Arrow record batches of the query's schema.

Between planning and reading, the topic's retention may delete the entries of a part. Readers skip
what is gone without an error, so each task checks both ends of its part (``_check``).
"""

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
from pyspark_geminga.source.decisions.filters import KEY
from pyspark_geminga.source.decisions.options import SourceOptions
from pyspark_geminga.source.row_schema import RowSchema

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads of a topic: from ``start`` up to but not at ``end``."""

    # Picklable, and small: Spark sends one to each task.
    topic: str
    start: LogPosition
    end: LogPosition
    is_known: bool = False  # the planner saw the ledgers of the topic
    holds_start: bool = False  # the planner knew that the entry at the start was stored

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
        """The part of a log with this ``layout``; the planner has read the entry ``has_come``."""
        holds_start = start == has_come or layout.holds(start)
        return cls(topic, start, end, bool(layout.ledgers), holds_start)


# What a task checks, and when:
#
#   first batch -> was the entry at the start read? -> rows go out -> ... -> was the end reached?
#
# A suspicion asks the brokers (``_check``); only their answer, or an entry that the planner had
# seen, makes a loss of it.
def read_part(
    part: InputPartition,
    options: SourceOptions,
    rows: RowSchema,
    keys: frozenset[bytes | None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of ``part``; with ``keys`` only those that have one of them.

    The column of keys is among the rows then: Spark pushes no filter down on a column that the
    query does not read. Raises ``DataLost``, ``TimeoutError`` or ``ClientError``.
    """
    if not isinstance(part, Part):
        return  # Spark calls with a value of its own where the planner made no parts
    loop = task_client(options.access)
    # Each task reads the files of keys on its executor: keys are never in what Spark pickles.
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
    # Arrow's types also say which nested parts may be null, Spark's do not, and Spark wants its own
    # types exactly. A cast that changes only that copies nothing.
    wanted = rows.arrow
    is_same = batches.schema.equals(wanted)
    is_first = True
    try:
        for batch in loop.iterate(batches):
            if is_first:
                # Before the first rows go out: Spark may have written them when the part ends.
                is_missing = _lacks_start(part, batches)
                _check(loop, part, options, batches.first_position, is_missing=is_missing)
                is_first = False
            if keys is not None:
                # Handing a row over to Spark costs as much as decoding it did.
                wanted_keys = pa.array(list(keys), pa.binary())
                has_key = pc.call_function(
                    "is_in", [batch.column(KEY)], pc.SetLookupOptions(wanted_keys)
                )
                batch = batch.filter(has_key)  # noqa: PLW2901  # fewer rows of it
                if not batch.num_rows:
                    continue
            # Spark writes it into its pipe before it asks for the next one: one batch is in memory
            # at a time, besides what the reader has read ahead.
            yield batch if is_same else batch.cast(wanted)
        # With known ledgers the part ends at an entry, so that reading must arrive there. The start
        # is checked again here for a part of which nothing came.
        is_missing = part.is_known and batches.next_position[:2] != part.end[:2]
        is_missing = is_missing or _lacks_start(part, batches)
        _check(loop, part, options, batches.first_position, is_missing=is_missing)
    finally:
        # Also where Spark drops the generator before its end, as for a LIMIT.
        loop.run(batches.aclose())


def _lacks_start(part: Part, batches: RecordBatches) -> bool:
    """Was the entry at the start stored when the batch was planned, but was not read?"""
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
    """Raise ``DataLost``, or log a warning, if entries at an end of the part were deleted.

    ``is_missing`` is a suspicion only: readers do not get some entries (markers), and a position
    may be behind the last entry of its ledger. The REST side tells what was deleted. Without it,
    an entry that the planner has read and this task has not was certainly deleted.
    """
    if not is_missing:
        return
    available = None if first is None else tuple(first)
    if part.is_known and options.access.admin_url is not None:
        # A client for this one question: it is asked only where something may be missing.
        admin = AdminClient(options.access)
        try:
            ask = partial(admin.layouts, part.topic, 0)
            layout = loop.run(patiently(ask, options.poll_timeout_s))[part.topic]
        finally:
            admin.close()
        # Both ends are still within the log: what was missing were entries that readers do not get.
        if layout is not None and not layout.is_lost(part.start) and part.end <= layout.end:
            return
        available = None if layout is None else tuple(layout.first)
    if options.fails_on_data_loss:
        raise DataLost(part.topic, tuple(part.start), available)
    log.warning(
        "messages were deleted before they were read",
        extra={"topic": part.topic, "wanted": tuple(part.start), "available": available},
    )
