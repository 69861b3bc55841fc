"""What all jobs have in common: options, the Spark session, and progress messages.

A job writes messages to standard error; standard output is for its result. It does not catch
exceptions of Spark's: their traces tell which task failed, and why.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_geminga.java_home import use_java

URL_VARIABLE = "GEMINGA_SERVICE_URL"
ADMIN_VARIABLE = "GEMINGA_ADMIN_URL"
# Where ``geminga standalone`` listens unless it is told otherwise, as Pulsar's standalone does.
DEFAULT_URL = "pulsar://localhost:6650"
DEFAULT_ADMIN_URL = "http://localhost:8080"
# Long enough for a log that people read, short enough to see that a job is alive.
PROGRESS_INTERVAL_S = 5.0
# Set by spark-submit for the Python program that it starts.
GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"


def job_parser(name: str, description: str, *, has_session: bool = True) -> argparse.ArgumentParser:
    """A parser with the options of all jobs: where the cluster is, and settings of Spark."""
    parser = argparse.ArgumentParser(
        prog=f"python -m pyspark_geminga.jobs.{name}",
        description=description,
        allow_abbrev=False,
    )
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument(
        "--service-url",
        default=os.environ.get(URL_VARIABLE, DEFAULT_URL),
        metavar="URL",
        help=f"the brokers (default: {DEFAULT_URL}; variable {URL_VARIABLE})",
    )
    cluster.add_argument(
        "--admin-url",
        default=os.environ.get(ADMIN_VARIABLE, DEFAULT_ADMIN_URL),
        metavar="URL",
        help="their REST side, which lists what topics store; without it ('') only partitions are "
        f"read in parallel (default: {DEFAULT_ADMIN_URL}; variable {ADMIN_VARIABLE})",
    )
    add_pairs(
        cluster,
        "--option",
        "any other option of format('pulsar'), such as pulsar.client.authParams=token:...",
    )
    if not has_session:
        return parser
    spark = parser.add_argument_group("Spark")
    spark.add_argument(
        "--master",
        metavar="MASTER",
        help="where it runs (default: the master of spark-submit, or else all cores of this "
        "machine)",
    )
    add_pairs(spark, "--conf", "a setting of Spark's")
    return parser


def add_topics(
    parser: argparse.ArgumentParser, *, is_range: bool, or_archive: bool = False
) -> None:
    """Add the options for topics, and where reading begins.

    With ``is_range`` also where it ends; with ``or_archive`` also the choice to read an archive.
    """
    topics = parser.add_argument_group("what is read")
    # Spark cannot read topics and a pattern in one source: a job that wants both is run twice.
    chosen = topics.add_mutually_exclusive_group(required=True)
    chosen.add_argument(
        "--topic", action="append", metavar="TOPIC", help="a topic; may be repeated"
    )
    chosen.add_argument(
        "--topics-pattern",
        metavar="REGEX",
        help="all topics of a namespace whose names match, such as persistent://public/default/.*",
    )
    if or_archive:
        chosen.add_argument("--archive", metavar="DIR", help="what the job archive stored there")
    times = "milliseconds since 1970 or ISO 8601, by publish time"
    topics.add_argument(
        "--starting-offsets",
        metavar="OFFSETS",
        help="earliest (default), latest, or a JSON of positions",
    )
    topics.add_argument("--starting-time", metavar="TIME", help=f"the first instant: {times}")
    if is_range:
        topics.add_argument(
            "--ending-offsets", metavar="OFFSETS", help="latest (default), or a JSON of positions"
        )
        topics.add_argument("--ending-time", metavar="TIME", help="the first instant not read")


def add_stream(parser: argparse.ArgumentParser, *, batch: str | None = None) -> None:
    """Add the options of a stream, which ends behind what is stored, or runs until it is stopped.

    ``batch`` is the help of ``--batch``, for jobs that can read a batch instead.
    """
    stream = parser.add_argument_group("stream")
    # A stream without a checkpoint would begin anew with each run, and store everything again.
    kind = stream.add_mutually_exclusive_group(required=True)
    if batch is not None:
        kind.add_argument("--batch", action="store_true", help=batch)
    kind.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="where Spark stores how far it has read; the next run goes on there",
    )
    stream.add_argument(
        "--continuous",
        metavar="INTERVAL",
        help="run until stopped, a batch each interval, such as '1 minute'; without it the job "
        "reads what is stored and ends",
    )
    stream.add_argument(
        "--subscription",
        metavar="NAME",
        help="a subscription that follows the query, whose backlog holds what it has not read; "
        "without one, messages that the topic's retention does not keep may be deleted unread",
    )
    # Spark hands a source one limit a batch: the source refuses both for the same reason.
    limit = stream.add_mutually_exclusive_group()
    limit.add_argument(
        "--max-rows-per-trigger", type=_positive, metavar="N", help="at most so many rows a batch"
    )
    limit.add_argument(
        "--max-bytes-per-trigger", type=_positive, metavar="N", help="at most so many bytes a batch"
    )


def cluster_options(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of ``format("pulsar")`` for the cluster, and those of ``--option``."""
    options = {"service.url": arguments.service_url}
    if arguments.admin_url:
        options["admin.url"] = arguments.admin_url
    # What the user says by ``--option`` comes last, and wins.
    return options | dict(arguments.option)


def sink_options(arguments: argparse.Namespace, topic: str) -> dict[str, str]:
    """The options of a writer: where the cluster is, who connects, and the topic."""
    # Not all of ``--option``: the sink refuses those of the source, as unknown.
    options = cluster_options(arguments)
    is_ours = ("service.url", "admin.url", "pulsar.")
    kept = {name: value for name, value in options.items() if name.startswith(is_ours)}
    return kept | {"topic": topic}


def source_options(arguments: argparse.Namespace, **more: str) -> dict[str, str]:
    """The options of a reader, out of those of all groups; ``--option`` overrides the others."""
    given = vars(arguments)  # not every job has every group of options
    topics = arguments.topic
    options = {
        "topics": ",".join(topics) if topics else None,
        "topicsPattern": arguments.topics_pattern,
        "startingTime": arguments.starting_time,
        # A stream of the data source starts at the latest message by default, but a job must not
        # skip what was published before its first run.
        "startingOffsets": arguments.starting_offsets
        or (None if arguments.starting_time else "earliest"),
        "endingOffsets": given.get("ending_offsets"),
        "endingTime": given.get("ending_time"),
        "maxRowsPerTrigger": given.get("max_rows_per_trigger"),
        "predefinedSubscription": given.get("subscription"),
        "maxBytesPerTrigger": given.get("max_bytes_per_trigger"),
    }
    given_options = {name: str(value) for name, value in options.items() if value is not None}
    return given_options | more | cluster_options(arguments)


@contextmanager
def job_session(name: str, arguments: argparse.Namespace) -> Generator[SparkSession]:
    """The session of this process, which stays open; or a new one for this job."""
    # Tests and notebooks have a session already. A process has one Spark context, and stopping it
    # would end their other queries.
    running = SparkSession.getActiveSession()
    if running is not None:
        # Dates are those of UTC: an archive must not depend on the machine that writes it.
        running.conf.set("spark.sql.session.timeZone", "UTC")
        yield running
        return
    # Where settings come from; each line overrides those above it:
    #
    #   Spark's own defaults and spark-defaults.conf
    #   what this function chooses
    #   --master and --conf of the command line
    settings = {"spark.sql.session.timeZone": "UTC"}
    # spark-submit has chosen the Java, the Python and the addresses for the jobs that it starts.
    if GATEWAY_VARIABLE not in os.environ:
        use_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings["spark.ui.enabled"] = "false"
        settings["spark.ui.showConsoleProgress"] = "false"  # ``told_progress`` prints it instead
        # Warnings of Spark's start (no Hadoop library, the address) are not about the job.
        settings["spark.log.level"] = "ERROR"
        # Otherwise Spark binds to the address that this machine's name resolves to, which may not
        # be reachable, as in containers.
        if (arguments.master or "local").startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            settings |= dict.fromkeys(
                ("spark.driver.host", "spark.driver.bindAddress"), "127.0.0.1"
            )
    builder = SparkSession.builder.appName(f"geminga-{name}")
    # Without a master Spark takes the one in its configuration, or of spark-submit.
    if arguments.master:
        builder = builder.master(arguments.master)
    # ``--conf`` comes last, and overrides what was chosen above.
    for setting, value in (settings | dict(arguments.conf)).items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def say(words: str) -> None:
    """Print a line for people."""
    print(words, file=sys.stderr, flush=True)


def read_stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """A stream of topics."""
    return spark.readStream.format("pulsar").options(**options).load()


def read_batch(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """What topics store."""
    return spark.read.format("pulsar").options(**options).load()


def run_stream(writer: DataStreamWriter, arguments: argparse.Namespace) -> int:
    """Run the query that ``writer`` describes until it ends, and print a line for each batch.

    Returns how many rows were read. Raises ``StreamingQueryException``. Ctrl-C ends the query; the
    next run repeats a batch that it interrupted.
    """
    (rows,) = run_streams({arguments.checkpoint: writer}, arguments)
    return rows


def run_streams(
    writers: Mapping[str, DataStreamWriter], arguments: argparse.Namespace
) -> list[int]:
    """Run several queries concurrently, by their checkpoints, as ``run_stream`` does; if one fails,
    all are stopped. Returns the rows of each."""
    # Everything that is stored when the query starts, in as many batches as the limits make of it.
    trigger: dict[str, Any] = {"availableNow": True}
    if arguments.continuous:
        # Spark parses the interval, and names it in its error: "1 minute", "30 seconds".
        trigger = {"processingTime": arguments.continuous}
    # Queries start one after the other: Spark finds no data source while another lookup runs.
    queries = [
        writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        for checkpoint, writer in writers.items()
    ]
    # By query: rows so far, and the newest batch that was counted. Spark keeps the progress of a
    # hundred batches, so rows are added up while the queries run.
    rows, last = [0] * len(queries), [-1] * len(queries)
    try:
        is_over = False
        while not is_over:
            # A second for each query: the loop also has to look at the progress of those that run.
            ended = [
                query.awaitTermination(1) for query in queries
            ]  # each raises if its query failed
            # A continuous query never ends by itself; with availableNow each ends behind what was
            # stored when it began.
            is_over = all(ended)
            for number, query in enumerate(queries):
                for progress in query.recentProgress:
                    # Spark also reports an idle query, again and again with the same batch.
                    if progress.batchId > last[number] and progress.numInputRows:
                        rows[number] += progress.numInputRows
                        last[number] = progress.batchId
                        say(described(progress))
    except KeyboardInterrupt:
        say("stopping")  # which is a regular end of a continuous job
    finally:
        for query in queries:
            # A query that failed raises here what awaitTermination has raised already.
            with suppress(PySparkException):
                query.stop()
    return rows


def described(progress: StreamingQueryProgress) -> str:
    """A line on one batch."""
    return (
        f"batch {progress.batchId}: {progress.numInputRows:,} rows in "
        f"{progress.batchDuration / 1000:.1f} s ({progress.processedRowsPerSecond:,.0f}/s)"
    )


@contextmanager
def told_progress(spark: SparkSession, work: str) -> Generator[None]:
    """Print every few seconds how many tasks of the running stages are done."""
    is_over = threading.Event()

    def tell() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not is_over.wait(PROGRESS_INTERVAL_S):
            for stage in tracker.getActiveStageIds():
                facts = tracker.getStageInfo(stage)
                if facts is not None:
                    done, tasks = facts.numCompletedTasks, facts.numTasks
                    say(f"{work}: stage {stage}, {done} of {tasks} tasks done")

    # A daemon: a job that fails must not wait for the next line.
    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def add_pairs(to: argparse.ArgumentParser | argparse._ArgumentGroup, name: str, what: str) -> None:
    """Add an option that is given as ``NAME=VALUE``, and may be repeated; ``what`` is its help."""
    to.add_argument(
        name,
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=VALUE",
        help=f"{what}; may be repeated",
    )


def _pair(text: str) -> Sequence[str]:
    # The first "=" separates: values such as SQL or authParams may have more of them.
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _positive(text: str) -> int:
    # A text that is no number raises ``ValueError``, which argparse reports as a wrong command
    # line, too.
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number
