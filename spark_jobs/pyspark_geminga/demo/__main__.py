"""A cluster, a million events, a stream into Parquet, and charts: ``make spark-demo``.

It ends by itself, leaves nothing but the report, and fails if an event was lost or stored twice.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pyspark_geminga.demo import events
from pyspark_geminga.demo.charts import Point, bars, histogram, lines, shown
from pyspark_geminga.demo.report import Section, page
from pyspark_geminga.jobs import _session
from pyspark_geminga.jobs._session import say

TOPIC = "persistent://public/default/python-source"
PARTITIONS = 4
EVENTS = 1_200_000
# A batch of about two seconds on two cores: long enough to be cheap, short enough to be watched.
ROWS_A_BATCH = 200_000
# From the last event's publishing until it is in a file; a batch takes seconds.
DRAIN_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 60.0
# Length limits that tools and guides of style ask for.
STYLES = ((79, "79"), (88, "88"), (100, "100"), (120, "120"))


def main(arguments: Sequence[str]) -> int:
    """Run the demo; returns the exit code."""
    parser = _session.job_parser("demo", "Runs a tour by itself, and draws what it found.")
    parser.prog = "python -m pyspark_geminga.demo"
    parser.add_argument(
        "--events", type=int, default=EVENTS, metavar="N", help=f"at most (default: {EVENTS:,})"
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
            parsed.service_url, parsed.admin_url = service_url, web_url
            create_topic(service_url, web_url)
            with _session.job_session("demo", parsed) as spark:
                run = stream_to_parquet(spark, parsed, directory)
                say("asking questions of the Parquet files")
                report, is_whole = make_report(spark, run)
    parsed.report.write_text(report, encoding="utf-8")
    say(f"the report is {parsed.report.resolve()}")
    if not is_whole:
        say("events were lost or stored twice: the report has the numbers")
    return 0 if is_whole else 1


@contextmanager
def running_cluster(data: Path) -> Generator[tuple[str, str]]:
    """A standalone on free ports, with the addresses of its brokers and of their REST side."""
    say("starting a cluster: ZooKeeper, a bookie, a broker")
    ports = (f"--{part}-port=0" for part in ("broker", "web", "bookie", "zookeeper"))
    command = [sys.executable, "-m", "geminga_cli", "standalone", f"--data-dir={data}", *ports]
    with data.with_suffix(".log").open("w") as log:
        # It stops when we end, however we end: the kernel closes its standard input then.
        process = subprocess.Popen(  # noqa: S603 - our own words
            [*command, "--stop-with-input"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = next((line.split() for line in process.stdout if line.startswith("READY")), None)
        if said is None:
            raise SystemExit(data.with_suffix(".log").read_text() + "the cluster did not start")
        say(f"the cluster is ready: {said[1]}")
        yield said[1], said[2]
    finally:
        process.stdin.close()
        process.wait(STOP_TIMEOUT_S)


def create_topic(service_url: str, web_url: str) -> None:
    """A partitioned topic that has its schema before anything reads it."""
    command = ["admin", "--admin-url", web_url, "topics", "create-partitioned-topic"]
    subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-m", "geminga_cli", *command, TOPIC, "--partitions", str(PARTITIONS)],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=STOP_TIMEOUT_S,
    )
    asyncio.run(events.publish(service_url, TOPIC, 0))


class Run:
    """What the stream did: its batches, and how many events there were to read."""

    def __init__(self, output: Path) -> None:
        self.output = str(output)
        self.batches: dict[int, StreamingQueryProgress] = {}
        self.begun_s = time.monotonic()
        # Cumulated, by seconds since the begin.
        self.read: list[Point] = [(0.0, 0.0)]
        self.published_s = 0.0
        self.published = 0

    @property
    def rows(self) -> int:
        """How many rows the batches so far had."""
        return sum(batch.numInputRows for batch in self.batches.values())

    def note(self, progress: Sequence[StreamingQueryProgress]) -> None:
        """Take up the batches that are new, and say each."""
        for batch in progress:
            if batch.numInputRows and batch.batchId not in self.batches:
                self.batches[batch.batchId] = batch
                self.read.append((time.monotonic() - self.begun_s, float(self.rows)))
                say(_session.described(batch))


def stream_to_parquet(spark: SparkSession, parsed: argparse.Namespace, directory: Path) -> Run:
    """Publish and read at the same time; ends when everything that was published is in files."""
    run = Run(directory / "lines")
    options = _session.cluster_options(parsed) | {
        "topic": TOPIC,
        "startingOffsets": "earliest",
        "maxRowsPerTrigger": str(ROWS_A_BATCH),
    }
    query = (
        _session.read_stream(spark, options)
        .writeStream.format("parquet")
        .option("path", run.output)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    say(f"publishing {parsed.events:,} lines of this machine's Python sources, and streaming them")
    command = [sys.executable, "-m", "pyspark_geminga.demo.events", "--topic", TOPIC]
    run.begun_s = time.monotonic()
    with subprocess.Popen(  # noqa: S603 - our own words
        [*command, "--service-url", parsed.service_url, "--count", str(parsed.events)],
        stdout=subprocess.PIPE,
        text=True,
    ) as publisher:
        deadline_s = None
        while deadline_s is None or run.rows < run.published:
            if query.awaitTermination(1):
                raise SystemExit("the stream ended before everything was read")
            run.note(query.recentProgress)
            if deadline_s is None and publisher.poll() is not None:
                assert publisher.stdout is not None
                if publisher.returncode:
                    raise SystemExit("the events could not be published: the reason is above")
                run.published = int(publisher.stdout.read())
                run.published_s = time.monotonic() - run.begun_s
                deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
                say(f"{run.published:,} events were published in {run.published_s:.0f} s")
            if deadline_s is not None and time.monotonic() > deadline_s:
                say("events are missing: giving up")
                break
    query.stop()
    return run


def make_report(spark: SparkSession, run: Run) -> tuple[str, bool]:
    """The page, and whether every event is stored exactly once."""
    rows = spark.read.parquet(run.output)
    rows.createOrReplaceTempView("lines")
    stored, distinct = rows.select(f.count("*"), f.count_distinct("__messageId")).first() or (0, 0)
    parquet_bytes = sum(file.stat().st_size for file in Path(run.output).rglob("*.parquet"))
    seconds = run.read[-1][0]
    figures = [
        (shown(run.published), "events published"),
        (shown(distinct), "events stored"),
        (shown(run.published - distinct), "lost"),
        (shown(stored - distinct), "stored twice"),
        (f"{stored / seconds:,.0f}/s", "through broker and stream"),
        (str(len(run.batches)), "micro-batches"),
        (f"{parquet_bytes / 1e6:,.0f} MB", "of Parquet"),
    ]
    sections = [_pipeline(run), *_code(spark)]
    words = (
        "Each line of the Python source files on this machine went through a Geminga topic "
        f"of {PARTITIONS} partitions, and was streamed into Parquet by Spark."
    )
    is_whole = stored == distinct == run.published
    return page("A million lines of Python", words, figures, sections), is_whole


def _pipeline(run: Run) -> Section:
    published = [(0.0, 0.0), (run.published_s, float(run.published))]
    return Section(
        "The pipeline",
        "Events that were published, and those that are in files after each micro-batch.",
        lines([("published", published), ("in Parquet", run.read)], "seconds"),
    )


def _code(spark: SparkSession) -> list[Section]:
    def asked(query: str) -> list[tuple[str, float]]:
        return [(str(row[0]), float(row[1])) for row in spark.sql(query).collect()]

    lengths = asked(
        "select length, count(*) from lines where length between 1 and 140 "
        "group by length order by length"
    )
    indents = asked(
        "select indent, count(*) from lines where kind not in ('blank', 'text') and indent <= 40 "
        "group by indent order by indent"
    )
    return [
        Section(
            "How long lines are",
            "Lines that are not empty, by their length. The dashed lines are the limits that "
            "guides of style and formatters ask for: many lines end just before one.",
            histogram([(int(x), int(y)) for x, y in lengths], "characters", STYLES),
        ),
        Section(
            "How deep they stand",
            "Spaces before the code. Four a level; what lies between continues a line above.",
            histogram([(int(x), int(y)) for x, y in indents], "spaces"),
        ),
        Section(
            "What they are",
            "Texts are those in three quotes, most of them documentation.",
            bars(asked("select kind, count(*) n from lines group by kind order by n desc")),
        ),
        Section(
            "Words that begin a line",
            "Of code, without its keywords' arguments: what Python programs are made of.",
            bars(
                asked(
                    "select word, count(*) n from lines where word is not null "
                    "group by word order by n desc limit 25"
                )
            ),
        ),
        Section(
            "The largest packages",
            "Lines that were read of each; those that come with Python are marked.",
            bars(
                asked(
                    "select concat(package, if(is_standard, ' (std)', '')) p, count(*) n "
                    "from lines group by p order by n desc limit 20"
                )
            ),
        ),
        Section(
            "Who explains most",
            "Comments and texts in a hundred lines that are not blank, of packages with 5,000.",
            bars(
                asked(
                    "select package, 100 * avg(if(kind in ('comment', 'text'), 1, 0)) share "
                    "from lines where kind != 'blank' group by package having count(*) >= 5000 "
                    "order by share desc limit 20"
                ),
                " %",
            ),
        ),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
