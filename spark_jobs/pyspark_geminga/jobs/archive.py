"""Topics become Parquet files in a folder for each hour of publishing, exactly once.

Run it from cron: each run goes on where the last one ended. The folder's ``_spark_metadata`` lists
the files that belong to it, and Spark reads only those; a crash may leave other, incomplete files.
``--merge-into`` makes from it, hour by hour, a folder of few and large files that every program can
read without that list.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_geminga.jobs import _session

# The folders of an archive, and of what is made of it:
#
#   OUTPUT/_spark_metadata/N               which files batch N has made
#   OUTPUT/dt=2026-11-22/hour=7/*.parquet  many, as many as batches and tasks
#   MERGED/dt=2026-11-22/hour=7/*.parquet  few, once the hour is over
#
PARTITIONS = ("dt", "hour")
# 2 GB of messages of 1 KB: a file that one task writes, and that readers cut by its row groups.
ROWS_A_FILE = 2_000_000
DESCRIPTION = (
    "Stores topics as Parquet, a folder dt=.../hour=... for each hour (UTC) in which messages were "
    "published, with all metadata of a message: its id, key, times and properties. Each message is "
    "stored once, also after crashes."
)


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns the exit code."""
    parsed = _parse(arguments)
    with _session.job_session("archive", parsed) as spark:
        options = _session.source_options(parsed, valueMode=parsed.value_mode)
        # Spark's file sink is exactly once: a batch's files count when its number is in
        # ``_spark_metadata``, and a repeated batch with a number in there is left out.
        writer = (
            with_hours(_session.read_stream(spark, options))
            .writeStream.format("parquet")
            .option("path", parsed.output)
            .option("compression", parsed.compression)
            # Folders ``dt=2026-11-22/hour=7``, as Hive names them: other engines find the columns
            # again.
            .partitionBy(*PARTITIONS)
        )
        rows = _session.run_stream(writer, parsed)
        _session.say(f"{rows:,} messages were archived in {parsed.output}")
        # A continuous job gets here only after Ctrl-C, which must not start a long merge.
        if parsed.merge_into and not parsed.continuous:
            with _session.told_progress(spark, "merge"):
                hours = merge(spark, parsed.output, parsed.merge_into, parsed.merge_after)
            _session.say(f"{hours} hours were merged into {parsed.merge_into}")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _session.job_parser("archive", DESCRIPTION)
    _session.add_topics(parser, is_range=False)
    _session.add_stream(parser)
    files = parser.add_argument_group("files")
    files.add_argument("--output", required=True, metavar="DIR", help="the folder of the archive")
    files.add_argument(
        "--value-mode",
        # ``raw`` also archives what does not fit the schema, and a topic whose schemas differ.
        choices=("schema", "raw"),
        default="schema",
        help="the payload's columns by the topic's schema (default), or its bytes as they are",
    )
    files.add_argument(
        "--compression", default="zstd", metavar="CODEC", help="of Parquet (default: zstd)"
    )
    files.add_argument(
        "--merge-into",
        metavar="DIR",
        help="another folder, which gets the hours that are over, sorted, in few and large files",
    )
    files.add_argument(
        "--merge-after",
        type=int,
        default=15,
        metavar="MINUTES",
        help="how long after its end an hour is merged (default: 15); one that grows later is "
        "merged again",
    )
    return parser.parse_args(arguments)


def with_hours(rows: DataFrame) -> DataFrame:
    """Rows of the source with the columns ``dt`` and ``hour`` of their publish times."""
    # By publish time and not by event time: only so do hours end, as producers may send old events
    # at any time.
    time = f.col("__publishTime")
    return rows.withColumns({"dt": f.to_date(time), "hour": f.hour(time)})


def merge(spark: SparkSession, archive: str, target: str, after_minutes: int) -> int:
    """Write the hours of the archive that are over into ``target``.

    Hours that ``target`` has with as many rows are left out. An hour's folder is replaced in one
    step. Returns the number of hours that were written.
    """
    try:
        # Lists the files that ``_spark_metadata`` names: what a crash left over is not merged.
        rows = spark.read.parquet(archive)
    except AnalysisException as error:
        if error.getCondition() in {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}:
            return 0  # nothing was archived yet
        raise
    # An hour that is not over yet would be merged again with each run.
    begin = f.to_timestamp("dt") + f.make_interval(hours=f.col("hour"))
    is_over = begin + f.make_interval(hours=f.lit(1), mins=f.lit(after_minutes))
    stored = _rows_by_hour(rows.where(is_over <= f.current_timestamp()))
    try:
        # The target has no such list: each of its folders is whole, as it was replaced as a whole.
        merged = _rows_by_hour(spark.read.parquet(target))
    except AnalysisException as error:
        if error.getCondition() not in {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}:
            raise
        merged = {}
    # Counts tell whether an hour changed: archives only grow. An interrupted run is made up for by
    # the next one, as its hour was replaced as a whole or not at all.
    hours = sorted(hour for hour, count in stored.items() if merged.get(hour) != count)
    # One hour after the other, so that what is sorted at a time does not grow with the archive.
    for date, hour in hours:
        (
            rows.where((f.col("dt") == date) & (f.col("hour") == hour))
            # By ranges: each file has messages of one time, and readers skip files by their bounds.
            .repartitionByRange(-(-stored[date, hour] // ROWS_A_FILE), "__topic", "__publishTime")
            .sortWithinPartitions("__topic", "__publishTime")
            .write.mode("overwrite")
            # Only the folders that get rows are replaced; "static" would delete all other hours.
            .option("partitionOverwriteMode", "dynamic")
            # Whatever the archive has: a merged file is written once and read often.
            .option("compression", "zstd")
            .partitionBy(*PARTITIONS)
            .parquet(target)
        )
    return len(hours)


def _rows_by_hour(rows: DataFrame) -> dict[tuple[object, int], int]:
    # Spark takes the counts from Parquet's footers: no column of the messages is read.
    counted = rows.groupBy(*PARTITIONS).count().collect()
    return {(row["dt"], row["hour"]): row["count"] for row in counted}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
