"""The last message of each key becomes a row of a Parquet snapshot, as a compacted topic has it.

A key is deleted by a message without payload. Messages without a key are counted and left out.
Within a topic the order is that of the log. For a key in several topics or partitions (as after
partitions were added), the message with the latest publish time counts.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

from geminga import MessageId
from pyspark_geminga.jobs import _session

DESCRIPTION = (
    "Writes the last message of each key as a Parquet snapshot: what compaction would leave of the "
    "topic, or of a part of it. A message without payload deletes its key; messages without a key "
    "are left out."
)
# The place of a message in its topic:
#
#   +-----------+----------+-----------------+
#   | ledger id | entry id | batch index + 1 |
#   |   u64     |   u64    |   u32           |
#   +-----------+----------+-----------------+
#
# Bytes that sort as the log does: ledger, entry, index in its batch plus 1, as -1 (no batch) comes
# first. A text, since Spark pickles ``places`` with it where this module is the program.
PLACE = ">QQI"
TEXTS = {"binary", "string"}


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns the exit code."""
    parsed = _parse(arguments)
    with _session.job_session("compact", parsed) as spark:
        options = _session.source_options(parsed, valueMode=parsed.value_mode)
        rows = _session.read_batch(spark, options)
        # Counted while the rows go by: a second read of the topic would cost as much as the first.
        keyless = Observation()
        rows = rows.observe(keyless, f.count_if(f.col("__key").isNull()).alias("messages"))
        with _session.told_progress(spark, "compact"):
            mode = "overwrite" if parsed.overwrite else "errorifexists"
            last_of_keys(rows).write.mode(mode).option("compression", "zstd").parquet(parsed.output)
        # Counted in the snapshot itself: its Parquet footers have the number.
        keys = spark.read.parquet(parsed.output).count()
        _session.say(
            f"the last messages of {keys:,} keys are in {parsed.output}; "
            f"{keyless.get['messages']:,} messages have no key, and are left out"
        )
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _session.job_parser("compact", DESCRIPTION)
    _session.add_topics(parser, is_range=True)
    files = parser.add_argument_group("snapshot")
    files.add_argument("--output", required=True, metavar="DIR", help="its folder")
    # Spark deletes the old snapshot before it writes the new one: readers may find none.
    files.add_argument("--overwrite", action="store_true", help="replace an older one")
    files.add_argument(
        "--value-mode",
        choices=("schema", "raw"),
        default="schema",
        help="the payload's columns by the topic's schema (default), or its bytes as they are",
    )
    return parser.parse_args(arguments)


def last_of_keys(rows: DataFrame) -> DataFrame:
    """The last row of each key that was not deleted, with the columns of the source."""
    columns = rows.columns
    payload = [name for name in columns if not name.startswith("__")]
    keyed = rows.where(f.col("__key").isNotNull())
    # The whole row in one column, so that one aggregate keeps all of its values together: with one
    # aggregate for each column they could come from different messages. Names are quoted, since a
    # dot would be read as a path into a struct.
    whole = f.struct(*(f.col(f"`{name}`") for name in columns)).alias("row")
    # PySpark takes the kind of function from its annotations, which its own types do not know.
    place = arrow_udf(places, "binary")(f.col("__messageId"))  # type: ignore[call-overload]
    # Two steps: places are comparable within a topic only, publish times between topics. ``max_by``
    # aggregates in each task before rows are shuffled: a task sends one row a key.
    last_in_topic = keyed.groupBy("__key", "__topic").agg(f.max_by(whole, place).alias("row"))
    # Producers' clocks decide between topics: nothing better orders messages of two logs.
    last = last_in_topic.groupBy("__key").agg(f.max_by("row", "row.__publishTime").alias("row"))
    # A single column of text or bytes is the payload itself: if it is empty, so is the payload.
    may_be_empty = len(payload) == 1 and rows.schema[payload[0]].dataType.typeName() in TEXTS
    has_payload = [
        f.octet_length(f"row.`{name}`") > 0 if may_be_empty else f.col(f"row.`{name}`").isNotNull()
        for name in payload
    ]
    # A key whose last message is empty is deleted, as in the broker's compaction (upstream:
    # AbstractTwoPhaseCompactor).
    return last.where(reduce(Column.__or__, has_payload)).select("row.*")


def places(message_ids: pa.Array) -> pa.Array:
    """The positions of messages in their topic, as bytes that sort in the order of the log."""
    found: list[bytes] = []
    # The order of the bytes of a protobuf message is not that of its numbers.
    for encoded in message_ids.to_pylist():
        message_id = MessageId.from_bytes(encoded)
        index = message_id.batch_index + 1
        found.append(struct.pack(PLACE, message_id.ledger_id, message_id.entry_id, index))
    return pa.array(found, pa.binary())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
