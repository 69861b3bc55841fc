"""A cluster, a million events, a stream into Parquet, and charts: ``make spark-demo``.

It ends by itself, leaves only the report, and fails if an event was lost or stored twice.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pyspark_geminga.demo.charts import lines, shown
from pyspark_geminga.demo.pipeline import (
    PARTITIONS,
    Run,
    create_topic,
    running_cluster,
    stream_to_parquet,
)
from pyspark_geminga.demo.questions import QUESTIONS
from pyspark_geminga.demo.report import Section, page
from pyspark_geminga.jobs import _session
from pyspark_geminga.jobs._session import say

EVENTS = 1_200_000


def main(arguments: Sequence[str]) -> int:
    """Run the demo; returns the exit code."""
    parser = _session.job_parser(
        "demo", "Starts a cluster, publishes and streams a million events, and draws a report."
    )
    parser.prog = "python -m pyspark_geminga.demo"
    parser.add_argument(
        "--events",
        type=int,
        default=EVENTS,
        metavar="N",
        help=f"at most so many events (default: {EVENTS:,})",
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("spark-demo.html"),
        metavar="FILE",
        help="the report (default: spark-demo.html)",
    )
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="geminga-spark-demo-") as name:
        directory = Path(name)
        with running_cluster(directory / "cluster") as (service_url, web_url):
            # The demo's own cluster, whatever the command line or the environment name.
            parsed.service_url, parsed.admin_url = service_url, web_url
            # Before the query: a stream asks for its columns when it is planned, and a topic
            # without a schema has one column of bytes.
            create_topic(service_url, web_url)
            with _session.job_session("demo", parsed) as spark:
                # Ends when all events are in files, or when it gives up on some of them, which the
                # report then shows.
                run = stream_to_parquet(spark, parsed, directory)
                say("asking questions of the Parquet files")
                # While the session is open: questions are queries of Spark's.
                report, is_whole = make_report(spark, run)
    parsed.report.write_text(report, encoding="utf-8")
    say(f"the report is {parsed.report.resolve()}")
    if not is_whole:
        say("events were lost or stored twice: the report has the numbers")
    return 0 if is_whole else 1


def make_report(spark: SparkSession, run: Run) -> tuple[str, bool]:
    """The page, and whether every event is stored exactly once."""
    rows = spark.read.parquet(run.output)
    rows.createOrReplaceTempView("lines")
    # Message ids are unique in a topic: a row that was stored twice has the same one.
    stored, distinct = rows.select(f.count("*"), f.count_distinct("__messageId")).first() or (0, 0)
    # Without ``_spark_metadata`` and checksums: these are not ``.parquet``.
    parquet_bytes = sum(file.stat().st_size for file in Path(run.output).rglob("*.parquet"))
    seconds = run.read[-1][0]  # until the last batch was in files
    figures = [
        (shown(run.published), "events published"),
        (shown(distinct), "events stored"),
        (shown(run.published - distinct), "lost"),
        (shown(stored - distinct), "stored twice"),
        (f"{stored / seconds:,.0f}/s", "through broker and stream"),
        (str(len(run.batches)), "micro-batches"),
        (f"{parquet_bytes / 1e6:,.0f} MB", "of Parquet"),
    ]
    # Only the beginning and the end of publishing are known: the line between them is drawn
    # straight.
    published = [(0.0, 0.0), (run.published_s, float(run.published))]
    pipeline = Section(
        "The pipeline",
        "Events that were published, and those that are in files after each micro-batch.",
        lines([("published", published), ("in Parquet", run.read)], "seconds"),
    )
    sections = [pipeline, *(question.asked(spark) for question in QUESTIONS)]
    words = (
        "Each line of the Python source files on this machine went through a Geminga topic "
        f"of {PARTITIONS} partitions, and was streamed into Parquet by Spark."
    )
    is_whole = stored == distinct == run.published
    return page("A million lines of Python", words, figures, sections), is_whole


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
