"""What tasks do: read one part of a topic, as Arrow record batches of the query's schema."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from geminga import LogPosition
from geminga.arrow import read_batches
from pyspark_geminga._pool import task_client
from pyspark_geminga.errors import DataLost
from pyspark_geminga.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads of a topic: from ``start`` up to but not at ``end``.

    ``holds_start`` says that the planner saw the entry at the start: a topic that begins later when
    the task runs has lost it.
    """

    topic: str
    start: LogPosition
    end: LogPosition
    holds_start: bool = False


def read_part(
    part: InputPartition, options: SourceOptions, columns: tuple[str, ...]
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
        columns=columns,
        batch_rows=options.payload.batch_rows,
        batch_bytes=options.payload.batch_bytes,
        timeout_s=options.poll_timeout_s,
    )
    is_checked = False
    try:
        for batch in loop.iterate(batches):
            if not is_checked:
                _check_start(part, batches.first_position, options)
                is_checked = True
            yield batch
        if not is_checked:
            _check_start(part, batches.first_position, options)
    finally:
        loop.run(batches.aclose())


def _check_start(part: Part, first: LogPosition | None, options: SourceOptions) -> None:
    """Entries may be trimmed between planning and reading."""
    if not part.holds_start or (first is not None and first.ledger_id == part.start.ledger_id):
        return
    if options.fails_on_data_loss:
        raise DataLost(part.topic, tuple(part.start), first)
    log.warning(
        "messages were deleted before they were read",
        extra={"topic": part.topic, "wanted": tuple(part.start), "available": first},
    )
