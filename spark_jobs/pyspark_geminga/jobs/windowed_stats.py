"""Counts, bytes and delays of messages in windows of event time, by topic or by key.

A message's time is its event time, or its publish time if it has none. Its delay is the time from
event to publishing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pyspark_geminga.jobs import _session

DESCRIPTION = (
    "Counts messages in windows of event time, by topic or by key: how many, how many bytes, and "
    "percentiles of the time between event and publishing. Windows are written once, when the "
    "watermark has passed them: the last ones of a stream that pauses wait for later messages. "
    "--batch counts what is stored, and writes all windows."
)
# Approximate ones: Spark keeps a sketch a window instead of all delays.
PERCENTILES = {"delay_p50_ms": 0.5, "delay_p95_ms": 0.95, "delay_p99_ms": 0.99}


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns the exit code."""
    parsed = _parse(arguments)
    with _session.job_session("windowed-stats", parsed) as spark:
        # Only the size of payloads is needed: decoding them would be wasted.
        options = _session.source_options(parsed, valueMode="raw")
        if parsed.batch:
            rows = _session.read_batch(spark, options)
            counted = in_windows(rows, parsed.window, parsed.slide, parsed.by)
            # A batch computes all windows anew, and therefore replaces those of its last run.
            written = counted.write.format("parquet").mode("overwrite")
            if parsed.to_topic:
                written = as_messages(counted).write.format("pulsar").mode("append")
                written = written.options(**_session.sink_options(parsed, parsed.to_topic))
            with _session.told_progress(spark, "windows"):
                written.save(parsed.output)
        else:
            rows = _session.read_stream(spark, options)
            counted = in_windows(rows, parsed.window, parsed.slide, parsed.by, parsed.watermark)
            writer = counted.writeStream.format("parquet").option("path", parsed.output)
            if parsed.to_topic:
                writer = as_messages(counted).writeStream.format("pulsar")
                writer = writer.options(**_session.sink_options(parsed, parsed.to_topic))
            # "append": a window is written once, when no message of it can come any more.
            rows_read = _session.run_stream(writer.outputMode("append"), parsed)
            _session.say(f"{rows_read:,} messages were counted")
    _session.say(f"windows are in {parsed.to_topic or parsed.output}")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _session.job_parser("windowed_stats", DESCRIPTION)
    _session.add_topics(parser, is_range=True)
    _session.add_stream(parser, batch="count what is stored, and write all windows")
    windows = parser.add_argument_group("windows")
    windows.add_argument("--window", default="1 minute", help="how long one is (default: 1 minute)")
    windows.add_argument("--slide", help="how often one begins (default: when the last one ends)")
    windows.add_argument(
        "--watermark",
        default="10 minutes",
        help="how much later than others a message may come (default: 10 minutes)",
    )
    windows.add_argument("--by", choices=("topic", "key"), default="topic", help="default: topic")
    target = parser.add_argument_group("result").add_mutually_exclusive_group(required=True)
    target.add_argument("--output", metavar="DIR", help="a folder of Parquet files")
    target.add_argument(
        "--to-topic", metavar="TOPIC", help="a topic: JSON, with the topic or key as the key"
    )
    return parser.parse_args(arguments)


def in_windows(
    rows: DataFrame, window: str, slide: str | None, by: str, watermark: str | None = None
) -> DataFrame:
    """One row for each window and each topic or key that has messages in it."""
    # A message without an event time has a null delay, which the aggregates leave out.
    published, event = f.col("__publishTime"), f.col("__eventTime")
    # The two times come from different clocks where producers do not set both: a delay may be
    # negative.
    delay_ms = f.unix_millis(published) - f.unix_millis(event)
    # Keys as text: they name rows here, and become keys of messages.
    group = f.col("__topic") if by == "topic" else f.col("__key").cast("string")
    measured = rows.select(
        f.coalesce(event, published).alias("time"),
        group.alias(by),
        f.coalesce(f.octet_length("value"), f.lit(0)).alias("bytes"),
        delay_ms.alias("delay_ms"),
    )
    # A batch has no watermark: all its windows are complete.
    if watermark is not None:
        # A stream's state would grow without end: Spark writes a window, and drops it, once the
        # largest time that it has seen is so much later than the window's end.
        measured = measured.withWatermark("time", watermark)
    columns: list[Column] = [
        f.count("*").alias("messages"),
        f.sum("bytes").alias("bytes"),
        f.max("bytes").alias("bytes_max"),
        *(
            f.percentile_approx("delay_ms", share).alias(name)
            for name, share in PERCENTILES.items()
        ),
        f.max("delay_ms").alias("delay_max_ms"),
    ]
    # With a slide shorter than the window, a message counts in each window that covers it.
    windowed = measured.groupBy(f.window("time", window, slide), by).agg(*columns)
    begin, end = f.col("window.start"), f.col("window.end")
    return windowed.select(begin.alias("start"), end.alias("end"), *windowed.columns[1:])


def as_messages(counted: DataFrame) -> DataFrame:
    """Windows as messages: JSON, keyed by topic or key, with the window's end as event time."""
    # Behind ``start`` and ``end``: the column of topics or keys.
    group = counted.columns[2]
    return counted.select(
        f.to_json(f.struct("*")).alias("value"),
        f.col(group).alias("__key"),
        f.col("end").alias("__eventTime"),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
