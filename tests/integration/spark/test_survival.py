"""Proves that a stream loses and repeats nothing when what it stands on is killed in its midst."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.spark.jvm import python_workers
from tests.integration.waiting import eventually

import geminga.sync

# Entries of ten: a batch of the stream has five of them.
MESSAGES = 1_500
TOPIC = "public/default/survivors"


class Stream:
    """A query into Parquet, which is started again on its checkpoint each time that it failed."""

    def __init__(self, spark: SparkSession, cluster: StandaloneProcess, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._options = {
            "service.url": cluster.service_url,
            "admin.url": cluster.web_url,
            "topic": TOPIC,
            "startingOffsets": "earliest",
            "maxRowsPerTrigger": "50",
            "predefinedSubscription": "survivor",
        }
        self._query = self._start()

    def _start(self) -> StreamingQuery:
        rows = self._spark.readStream.format("pulsar").options(**self._options).load()
        writer = rows.select("value").writeStream.format("parquet").trigger(availableNow=True)
        checkpoint = str(self._directory / "checkpoint")
        return writer.option("checkpointLocation", checkpoint).start(str(self._directory / "rows"))

    def batches(self) -> int:
        """How many are done."""
        self.is_over()
        commits = self._directory / "checkpoint" / "commits"
        return len(list(commits.glob("[0-9]*"))) if commits.exists() else 0

    def is_over(self) -> bool:
        """Has it read everything?"""
        if self._query.exception() is not None:
            self._query = self._start()
        return not self._query.isActive

    def numbers(self) -> list[int]:
        rows = self._spark.read.parquet(str(self._directory / "rows")).collect()
        return sorted(int(bytes(row.value)) for row in rows)


@pytest.mark.full
def test_a_stream_survives_its_workers_the_bookie_and_the_broker(
    spark: SparkSession, harmed: StandaloneProcess, tmp_path: Path
) -> None:
    path = f"/admin/v2/persistent/{TOPIC}/partitions"
    status, _ = rest(harmed.web_url, "PUT", path, 2)
    assert status < 300
    batching = geminga.Batching(messages_max=10, delay_s=600)  # full batches only, however slow
    with (
        geminga.sync.connect(harmed.service_url) as client,
        client.consumer(TOPIC, "holder"),
        client.producer(TOPIC, batching=batching) as producer,
    ):
        for number in range(MESSAGES):
            producer.send_nowait(b"%d" % number)
    stream = Stream(spark, harmed, tmp_path)
    kills: tuple[Callable[[], object], ...] = (
        lambda: kill_all(python_workers(spark)),
        lambda: harmed.kill_part("bookie"),
        lambda: harmed.kill_part("broker"),
    )
    for kill in kills:
        eventually(stream.batches, (stream.batches() + 2).__le__, timeout_s=200)
        assert not stream.is_over()
        kill()
    eventually(stream.is_over, bool, timeout_s=200)
    assert stream.numbers() == list(range(MESSAGES))


def kill_all(pids: Sequence[int]) -> None:
    assert pids
    for pid in pids:
        with suppress(ProcessLookupError):  # a daemon takes its workers along
            os.kill(pid, signal.SIGKILL)
