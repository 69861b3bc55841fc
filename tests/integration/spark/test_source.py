"""Reading topics with Spark from a real cluster: each message exactly once, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.streaming.query import StreamingQuery
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import metric, rest
from tests.integration.waiting import eventually

import geminga.sync
from pyspark_geminga import commit_from_checkpoint

DRIVER = Path(__file__).parent / "streaming_driver.py"
# Longer than anything here takes: a batch goes when it is full, or its producer ends.
BATCH_DELAY_S = 600.0


@pytest.fixture(scope="module")
def client(standalone: StandaloneProcess) -> Generator[geminga.sync.Client]:
    with geminga.sync.connect(standalone.service_url) as client:
        yield client


class Topic:
    """A topic of the shared cluster, to which numbers are published, each once."""

    def __init__(self, client: geminga.sync.Client, cluster: StandaloneProcess, name: str) -> None:
        self.client = client
        self.cluster = cluster
        self.name = name
        self.published = 0

    def publish(self, count: int, *, batch_size: int = 10, name: str | None = None) -> None:
        """The next numbers, in batches of that many, however slow this is; round robin over
        partitions."""
        batching = geminga.Batching(messages_max=batch_size, delay_s=BATCH_DELAY_S)
        with self.client.producer(name or self.name, batching=batching) as producer:
            for number in range(self.published, self.published + count):
                producer.send_nowait(str(number).encode(), key=f"k{number % 7}")
        self.published += count

    def client_now(self) -> int:
        """A time between what was published and what will be, in milliseconds."""
        published = time.time_ns() // 1_000_000
        eventually(lambda: time.time_ns() // 1_000_000, (published + 2).__le__)
        return published + 2

    def admin(self, method: str, what: str, body: object = None) -> Any:
        status, answer = rest(
            self.cluster.web_url, method, f"/admin/v2/persistent/{self.name}{what}", body
        )
        assert status < 300, answer
        return answer

    def options(self, **more: str) -> dict[str, str]:
        at = {"service.url": self.cluster.service_url, "admin.url": self.cluster.web_url}
        return {**at, "topic": self.name, **more}


@pytest.fixture
def topic(
    client: geminga.sync.Client, standalone: StandaloneProcess, geminga_namespace: str
) -> Topic:
    return Topic(client, standalone, f"{geminga_namespace}/numbers")


def numbers(frame: DataFrame) -> list[int]:
    return [int(bytes(row.value)) for row in frame.select("value").collect()]


class Stream:
    """A streaming query into Parquet files, which can be started again on its checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path, options: dict[str, str]) -> None:
        self.spark = spark
        self.directory = directory
        self.options = {"startingOffsets": "earliest", **options}

    def start(self, **options: str) -> StreamingQuery:
        frame = self.spark.readStream.format("pulsar").options(**self.options, **options).load()
        writing = frame.select("value").writeStream.format("parquet")
        return writing.option("checkpointLocation", str(self.directory / "checkpoint")).start(
            str(self.directory / "rows")
        )

    def read_available(self, **options: str) -> StreamingQuery:
        """What there is now, in as many batches as limits make of it."""
        frame = self.spark.readStream.format("pulsar").options(**self.options, **options).load()
        writing = frame.select("value").writeStream.format("parquet").trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(self.directory / "checkpoint")).start(
            str(self.directory / "rows")
        )
        query.awaitTermination()
        return query

    @property
    def rows(self) -> list[int]:
        return sorted(numbers(self.spark.read.parquet(str(self.directory / "rows"))))


@pytest.fixture
def stream(spark: SparkSession, topic: Topic, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path, topic.options())


@contextmanager
def running(query: StreamingQuery) -> Generator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


def sources(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(progress.json)["sources"][0] for progress in query.recentProgress]


def test_a_batch_read_is_the_topic_exactly_once(spark: SparkSession, topic: Topic) -> None:
    topic.admin("PUT", "/partitions", 3)
    topic.publish(1000)
    frame = spark.read.format("pulsar").options(**topic.options(minPartitions="7")).load()
    assert frame.columns == [
        *("value", "__key", "__topic", "__messageId", "__publishTime", "__eventTime"),
        "__messageProperties",
    ]
    assert frame.rdd.getNumPartitions() == 7
    rows = frame.withColumn("number", F.col("value").cast("string").cast("int")).collect()
    assert sorted(row.number for row in rows) == list(range(1000))
    assert all(bytes(row["__key"]) == f"k{row.number % 7}".encode() for row in rows)
    assert {row["__topic"].rpartition("-")[2] for row in rows} == {"0", "1", "2"}
    for partition in range(3):
        within = [row.number for row in rows if row["__topic"].endswith(f"-{partition}")]
        assert within == sorted(within)
    # Entries have ten messages: four of them are what fits.
    bounded = spark.read.format("pulsar").options(**topic.options(maxRecordsPerPartition="45"))
    sizes = bounded.load().groupBy(F.spark_partition_id()).count().collect()
    assert max(row["count"] for row in sizes) == 40
    assert sum(row["count"] for row in sizes) == 1000


@pytest.mark.full
def test_without_a_rest_side_a_read_is_the_topic_all_the_same(
    spark: SparkSession, topic: Topic
) -> None:
    topic.admin("PUT", "/partitions", 2)
    topic.publish(100)
    options = topic.options()
    del options["admin.url"]
    frame = spark.read.format("pulsar").options(**options).schema("value binary").load()
    assert frame.columns == ["value"]
    assert sorted(numbers(frame)) == list(range(100))


def test_a_stream_is_what_was_published_since(stream: Stream, topic: Topic) -> None:
    topic.publish(100)
    with running(stream.start(predefinedSubscription="spark")) as query:
        query.processAllAvailable()
        assert stream.rows == list(range(100))
        topic.publish(50)
        query.processAllAvailable()
        assert stream.rows == list(range(150))
        # How many batches these are depends on when the query looks, also between two entries.
        read = [each["numInputRows"] for each in sources(query) if each["numInputRows"]]
        assert sum(read) == 150
        # Entries: those of the last batch are committed with the next.
        eventually(
            lambda: topic.admin("GET", "/stats")["subscriptions"]["spark"]["msgBacklog"],
            (read[-1] // 10).__eq__,
        )


def test_available_now_with_a_limit_is_several_batches_and_ends(
    stream: Stream, topic: Topic
) -> None:
    topic.admin("PUT", "/partitions", 2)
    topic.publish(300)
    query = stream.read_available(maxRowsPerTrigger="100")
    assert stream.rows == list(range(300))
    read = [each["numInputRows"] for each in sources(query)]
    assert max(read) <= 100
    lags = [
        sum(lag["entries"] for lag in each["latestOffset"]["lag"].values())
        for each in sources(query)
    ]
    assert lags == sorted(lags, reverse=True)
    assert (lags[0] > 0, lags[-1]) == (True, 0)
    topic.publish(30)
    stream.read_available(maxBytesPerTrigger="1000")
    assert stream.rows == list(range(330))


@pytest.mark.full
@pytest.mark.parametrize("named", ["topic", "topics", "topicsPattern"])
@pytest.mark.parametrize("start", ["earliest", "latest", "ids", "time"])
def test_reads_begin_where_they_are_told_however_topics_are_named(
    spark: SparkSession, topic: Topic, tmp_path: Path, named: str, start: str
) -> None:
    topic.admin("PUT", "/partitions", 2)
    topic.publish(20)
    time_ms = topic.client_now()
    layouts = topic.admin("GET", "/partitioned-internalStats")["partitions"]
    behind = {name: said["lastConfirmedEntry"].split(":") for name, said in layouts.items()}
    starts = {
        "ids": {name: [int(ledger), int(entry) + 1] for name, (ledger, entry) in behind.items()},
        "time": {topic.name: time_ms},
    }
    wanted = json.dumps(starts[start]) if start in starts else start
    options = topic.options(**{"startingTime" if start == "time" else "startingOffsets": wanted})
    del options["topic"]
    options[named] = f"{topic.name}.*" if named == "topicsPattern" else topic.name
    expected = list(range(0 if start == "earliest" else 20, 40))
    stream = Stream(spark, tmp_path, options)
    if start == "time":
        del stream.options["startingOffsets"]
    stream.read_available()  # what begins at the end learns where that is
    topic.publish(20)
    if start != "latest":
        frame = spark.read.format("pulsar").options(**stream.options).load()
        assert sorted(numbers(frame)) == expected
    stream.read_available()
    assert stream.rows == expected


@dataclass
class Order:
    """What is ordered."""

    id: int
    item: str
    price: float | None = None


def test_payloads_become_the_columns_of_the_topics_schema(
    spark: SparkSession, topic: Topic
) -> None:
    orders = [Order(number, f"item {number}", number / 4 or None) for number in range(20)]
    with topic.client.producer(topic.name, schema=geminga.AvroSchema(Order)) as producer:
        for order in orders:
            producer.send_nowait(order)
    frame = spark.read.format("pulsar").options(**topic.options(metadataColumns="__key")).load()
    assert frame.columns == ["id", "item", "price", "__key"]
    rows = frame.where("id % 2 = 1").select("id", "item", "price").orderBy("id").collect()
    assert [Order(*row) for row in rows] == orders[1::2]
    raw = spark.read.format("pulsar").options(**topic.options(valueMode="raw")).load()
    assert raw.columns[0] == "value"
    assert len(raw.select("value").collect()) == 20
    chosen = spark.read.format("pulsar").options(**topic.options()).schema("price double").load()
    assert chosen.where("price is null").count() == 1
    with pytest.raises(AnalysisException, match="there is no column 'prize', but id, item, price"):
        spark.read.format("pulsar").options(**topic.options()).schema("prize int").load().collect()


@pytest.mark.full
def test_a_pair_is_read_also_where_its_key_is_the_key_of_the_message(
    spark: SparkSession, topic: Topic
) -> None:
    schema = geminga.KeyValueSchema(
        geminga.StringSchema(), geminga.AvroSchema(Order), geminga.KeyValueEncoding.SEPARATED
    )
    orders = [Order(number, f"item {number}", 0.5) for number in range(5)]
    with topic.client.producer(topic.name, schema=schema) as producer:
        for order in orders:
            producer.send((f"k{order.id}", order))
    frame = spark.read.format("pulsar").options(**topic.options(metadataColumns="__key")).load()
    assert frame.columns == ["key", "value", "__key"]
    rows = frame.sort("key").collect()
    assert [(row.key, Order(*row.value)) for row in rows] == [
        (f"k{order.id}", order) for order in orders
    ]
    assert [bytes(row["__key"]) for row in rows] == [f"k{order.id}".encode() for order in orders]


@pytest.mark.full
def test_a_query_may_go_on_without_a_topic_that_was_deleted_while_it_was_down(
    stream: Stream, topic: Topic
) -> None:
    other = f"{topic.name}-other"
    stream.options |= {"topics": f"{topic.name},{other}", "maxRowsPerTrigger": "20"}
    del stream.options["topic"]
    topic.publish(10)
    topic.publish(10, name=other)
    stream.read_available()
    topic.admin("DELETE", "?force=true")
    topic.publish(10, name=other)
    with pytest.raises(AnalysisException, match=r"there is no topic .*goes on with failOnDataLoss"):
        stream.read_available()
    with pytest.raises(StreamingQueryException, match="the topic is gone"):
        stream.read_available(waitingForNonExistedTopic="true")
    stream.read_available(waitingForNonExistedTopic="true", failOnDataLoss="false")
    assert stream.rows == list(range(30))


@pytest.mark.full
def test_ids_times_and_filters_choose_what_is_read(spark: SparkSession, topic: Topic) -> None:
    topic.publish(40)
    until = topic.client_now()
    topic.publish(40)

    def read(**options: str) -> DataFrame:
        return spark.read.format("pulsar").options(**topic.options(**options)).load()

    whole = read()
    ids = [
        geminga.MessageId.from_bytes(bytes(row[0])) for row in whole.select("__messageId").collect()
    ]
    # Of the fourth message of the second batch on, and before the third message of the sixth.
    first, behind = ids[13], ids[52]
    starting = json.dumps({topic.name: [first.ledger_id, first.entry_id, first.batch_index]})
    ending = json.dumps({topic.name: [behind.ledger_id, behind.entry_id, behind.batch_index]})
    assert numbers(read(startingOffsets=starting, endingOffsets=ending)) == list(range(13, 52))
    assert numbers(read(startingTime=str(until))) == list(range(40, 80))
    assert numbers(read(endingTime=str(until))) == list(range(40))
    matching = (F.col("__topic") == f"persistent://{topic.name}") & (
        F.col("__publishTime") >= F.timestamp_millis(F.lit(until))
    )
    session = spark.newSession()
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    pushed = session.read.format("pulsar").options(**topic.options(filterPushdown="true")).load()
    assert numbers(pushed.where(matching)) == numbers(whole.where(matching)) == list(range(40, 80))
    assert numbers(pushed.where(F.col("__topic") == "persistent://public/default/other")) == []
    of_keys = F.col("__key").isin(bytearray(b"k3"), bytearray(b"k5"))
    assert numbers(pushed.where(of_keys)) == [each for each in range(80) if each % 7 in {3, 5}]
    assert numbers(pushed.where(F.col("__key").isNull())) == []


@pytest.mark.full
def test_tasks_share_connections(spark: SparkSession, topic: Topic) -> None:
    topic.admin("PUT", "/partitions", 4)
    topic.publish(400)
    broker = topic.cluster.web_url.removesuffix("/")

    def connections() -> float:
        return metric(f"{broker}/metrics", "pulsar_active_connections")

    before = connections()
    for _ in range(3):
        frame = spark.read.format("pulsar").options(**topic.options(minPartitions="12")).load()
        assert sorted(numbers(frame)) == list(range(400))
    # Two tasks at a time, each in a process of its own, and the process that plans.
    assert connections() - before <= 2 + 2


@pytest.mark.full
def test_a_checkpoint_is_committed_without_another_run(stream: Stream, topic: Topic) -> None:
    topic.publish(50)
    options = {"predefinedSubscription": "spark"}
    stream.read_available(**options)

    def backlog() -> int:
        return int(topic.admin("GET", "/stats")["subscriptions"]["spark"]["msgBacklog"])

    eventually(backlog, (5).__eq__)
    ends = commit_from_checkpoint(stream.directory / "checkpoint", {**stream.options, **options})
    assert list(ends) == [f"persistent://{topic.name}"]
    assert eventually(backlog, (0).__eq__) == 0


@pytest.mark.full
def test_a_checkpoint_survives_sources_that_are_added_and_removed(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    session.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    names = [f"{topic.name}-{each}" for each in "abc"]

    def run(*read: str) -> None:
        """Everything there is now of these topics, each by a source of its own."""
        frames = [
            session.readStream.format("pulsar")
            .options(**topic.options(topic=name, startingOffsets="earliest"))
            .name(f"source_{name[-1]}")
            .load()
            .select("value")
            for name in read
        ]
        writing = reduce(DataFrame.union, frames).writeStream.trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start(
            str(tmp_path / "rows")
        )
        query.awaitTermination()

    for name in names:
        topic.publish(10, name=name)
    run(*names[:2])
    topic.publish(10, name=names[1])
    run(*names[1:])
    topic.publish(10, name=names[0])
    run(*names)
    assert sorted(numbers(spark.read.parquet(str(tmp_path / "rows")))) == list(range(50))


@pytest.mark.full
def test_partitions_and_topics_that_come_later_are_read_from_their_start(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.admin("PUT", "/partitions", 1)
    topic.publish(20)
    options = topic.options(topicsPattern=f"{topic.name}.*")
    del options["topic"]
    stream = Stream(spark, tmp_path, options)
    with running(stream.start()) as query:
        query.processAllAvailable()
        topic.admin("POST", "/partitions", 3)
        topic.publish(30)
        topic.publish(10, name=f"{topic.name}-other")
        eventually(lambda: stream.rows, lambda rows: rows == list(range(60)), timeout_s=200)
        assert query.isActive


@pytest.mark.full
@pytest.mark.parametrize("has_rest", [True, False])
def test_messages_that_were_deleted_fail_the_query(
    stream: Stream,
    topic: Topic,
    has_rest: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    if not has_rest:
        del stream.options["admin.url"]
    topic.publish(10)
    stream.read_available()
    topic.admin("PUT", "/unload")
    topic.publish(10)  # into another ledger
    topic.admin("PUT", "/unload")
    topic.publish(10)
    topic.admin("DELETE", "/truncate")
    topic.publish(10)
    with pytest.raises(StreamingQueryException, match="may have been deleted"):
        stream.read_available()
    stream.read_available(failOnDataLoss="false")
    assert stream.rows == [*range(10), *range(30, 40)]


@pytest.mark.full
def test_without_a_rest_side_ledgers_that_end_are_no_loss(stream: Stream, topic: Topic) -> None:
    del stream.options["admin.url"]
    stream.options["maxRowsPerTrigger"] = "20"
    with topic.client.consumer(topic.name, "holder"):
        for _ in range(3):
            topic.publish(30)
            topic.admin("PUT", "/unload")  # what follows goes into another ledger
            stream.read_available()
    assert stream.rows == list(range(90))


@pytest.mark.full
def test_a_driver_that_is_killed_twice_has_read_everything_once(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.admin("PUT", "/partitions", 2)
    topic.publish(2000)
    stream = Stream(spark, tmp_path, topic.options())
    for _ in range(2):
        driver = start_driver(stream, maxRowsPerTrigger="150")
        before = committed(stream)
        try:
            eventually(partial(committed, stream), (before + 2).__le__, timeout_s=200)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        topic.publish(100)
    stream.read_available(maxRowsPerTrigger="500")
    assert stream.rows == list(range(topic.published))


def start_driver(stream: Stream, **options: str) -> subprocess.Popen[bytes]:
    """A query in a process of its own, and its JVM and workers in its group."""
    plan = {"directory": str(stream.directory), "options": {**stream.options, **options}}
    return subprocess.Popen(
        [sys.executable, str(DRIVER), json.dumps(plan)],
        start_new_session=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )


def committed(stream: Stream) -> int:
    """How many batches the checkpoint has as done."""
    commits = stream.directory / "checkpoint" / "commits"
    return sum(each.name.isdigit() for each in commits.iterdir()) if commits.exists() else 0
