"""What the demo runs: a cluster, a program that publishes, and a stream into Parquet."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pyspark_geminga.demo import events
from pyspark_geminga.demo.charts import Point
from pyspark_geminga.jobs import _session
from pyspark_geminga.jobs._session import say

TOPIC = "persistent://public/default/python-source"
PARTITIONS = 4
# A batch of about two seconds on two cores: long enough for its fixed costs to be small, and short
# enough for a chart with many points.
ROWS_A_BATCH = 200_000
# From the last event's publishing until it is in a file; a batch takes seconds.
DRAIN_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 60.0


# What runs at the same time:
#
#   demo.events -> topic of PARTITIONS -> stream -> Parquet files
#    (a process)     (the cluster)     (this process and Spark's)
@contextmanager
def running_cluster(data: Path) -> Generator[tuple[str, str]]:
    """A standalone on free ports, with the addresses of its brokers and of their REST side."""
    say("starting a cluster: ZooKeeper, a bookie, a broker")
    # Port 0: the system chooses a free one, and READY tells which.
    ports = (f"--{part}-port=0" for part in ("broker", "web", "bookie", "zookeeper"))
    command = [sys.executable, "-m", "geminga_cli", "standalone", f"--data-dir={data}", *ports]
    with data.with_suffix(".log").open("w") as log:
        # The cluster stops when its standard input is closed: the kernel does that also if this
        # process is killed.
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
        # Reads until the cluster says READY, or ends: then its output does.
        said = next((line.split() for line in process.stdout if line.startswith("READY")), None)
        if said is None:
            raise SystemExit(data.with_suffix(".log").read_text() + "the cluster did not start")
        say(f"the cluster is ready: {said[1]}")
        yield said[1], said[2]
    finally:
        process.stdin.close()
        process.wait(STOP_TIMEOUT_S)


def create_topic(service_url: str, web_url: str) -> None:
    """Create the partitioned topic with its schema, which the stream needs when it is planned."""
    command = ["admin", "--admin-url", web_url, "topics", "create-partitioned-topic"]
    subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-m", "geminga_cli", *command, TOPIC, "--partitions", str(PARTITIONS)],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=STOP_TIMEOUT_S,
    )
    asyncio.run(events.publish(service_url, TOPIC, 0))  # a producer registers its schema


@dataclass(slots=True)
class Run:
    """What the stream did: its batches, and how many events there were to read."""

    output: str  # the folder of the Parquet files
    batches: dict[int, StreamingQueryProgress] = field(
        default_factory=dict[int, StreamingQueryProgress]
    )
    begun_s: float = 0.0  # when publishing began
    # After each batch: seconds since the beginning, and the rows of all batches so far.
    read: list[Point] = field(default_factory=lambda: [(0.0, 0.0)])
    published_s: float = 0.0  # how long publishing took
    published: int = 0

    @property
    def rows(self) -> int:
        """How many rows the batches so far had."""
        return sum(batch.numInputRows for batch in self.batches.values())

    def note(self, progress: Sequence[StreamingQueryProgress]) -> None:
        """Add the batches that are new, and print a line for each."""
        for batch in progress:
            # The list has the newest hundred batches, at each call again.
            if batch.numInputRows and batch.batchId not in self.batches:
                self.batches[batch.batchId] = batch
                self.read.append((time.monotonic() - self.begun_s, float(self.rows)))
                say(_session.described(batch))


def stream_to_parquet(spark: SparkSession, parsed: argparse.Namespace, directory: Path) -> Run:
    """Publish and read at the same time; ends when everything that was published is in files."""
    run = Run(str(directory / "lines"))
    options = _session.cluster_options(parsed) | {
        "topic": TOPIC,
        "startingOffsets": "earliest",
        "maxRowsPerTrigger": str(ROWS_A_BATCH),
        # Brokers delete topics that have no subscription, nor clients for a minute.
        "predefinedSubscription": "spark-demo",
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
        deadline_s = None  # until the publisher has ended
        while deadline_s is None or run.rows < run.published:
            # Returns whether the query ended within a second, and raises if it failed.
            if query.awaitTermination(1):
                raise SystemExit("the stream ended before everything was read")
            run.note(query.recentProgress)
            if deadline_s is None and publisher.poll() is not None:
                assert publisher.stdout is not None
                if publisher.returncode:
                    raise SystemExit("the events could not be published: the reason is above")
                # It has ended, so that its only line is complete.
                run.published = int(publisher.stdout.read())
                run.published_s = time.monotonic() - run.begun_s
                # The publisher waits for receipts: everything it counted is stored, and must come.
                deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
                say(f"{run.published:,} events were published in {run.published_s:.0f} s")
            if deadline_s is not None and time.monotonic() > deadline_s:
                say("events are missing: giving up")
                break
    query.stop()
    return run
