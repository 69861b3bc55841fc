"""Proves that the Spark source and sink work with a real Apache Pulsar that authenticates."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.compat.clients import Broker
from tests.integration.spark.conftest import spark
from tests.integration.waiting import eventually

from pyspark_geminga import commit_from_checkpoint

__all__ = ["spark"]

pytestmark = pytest.mark.filterwarnings(r"default:::(pyspark|py4j)\.")
PARTITIONS = 3
SUBSCRIPTION = "spark"


@dataclass(frozen=True)
class Topic:
    """A topic with partitions, in a namespace that deduplicates, and whole ids in its rows."""

    spark: SparkSession
    broker: Broker
    name: str

    def options(self, **more: str) -> dict[str, str]:
        """To reach it with all that the connector can ask."""
        assert self.broker.token is not None
        return {
            "service.url": self.broker.service_url,
            "admin.url": self.broker.web_url,
            "pulsar.client.authPluginClassName": (
                "org.apache.pulsar.client.impl.auth.AuthenticationToken"
            ),
            "pulsar.client.authParams": f"token:{self.broker.token}",
            "topic": self.name,
            **more,
        }

    def write(self, first: int, behind: int) -> None:
        """Rows with these ids, under a name: once, however often it is called."""
        rows = self.spark.range(first, behind).selectExpr(
            "id", "concat('item ', id) as item", "cast(id % 7 as string) as __key"
        )
        sink = rows.write.format("pulsar").mode("append").options(**self.options())
        sink.options(semantics="dedup", dedupKey=f"rows-{first}", batchMaxRows=20).save()

    def read(self, **more: str) -> DataFrame:
        """A batch read."""
        return self.spark.read.format("pulsar").options(**self.options(**more)).load()

    def stream(self, directory: Path, options: dict[str, str]) -> StreamingQuery:
        """Read what there is, in as many batches as limits make of it."""
        rows = self.spark.readStream.format("pulsar").options(**options).load().select("id")
        writing = rows.writeStream.format("parquet").trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(directory / "checkpoint")).start(
            str(directory / "rows")
        )
        query.awaitTermination()
        return query

    def admin(self, method: str, what: str, body: object = None) -> Any:
        """What REST answers about the topic."""
        path = self.name.replace("persistent://", "persistent/")
        answer = self.broker.admin(method, f"{path}{what}", body)
        return answer.json() if answer.content else None


@pytest.fixture
def topic(spark: SparkSession, pulsar_broker: Broker) -> Topic:
    namespace = f"public/spark-{uuid.uuid4().hex[:8]}"
    pulsar_broker.admin("PUT", f"namespaces/{namespace}")
    pulsar_broker.admin("POST", f"namespaces/{namespace}/deduplication", body=True)
    made = Topic(spark, pulsar_broker, f"persistent://{namespace}/orders")
    made.admin("PUT", "/partitions", PARTITIONS)
    return made


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def test_rows_are_stored_once_and_read_back_in_splits(topic: Topic) -> None:
    for _ in range(2):
        topic.write(0, 1000)
    topic.admin("PUT", "/unload")
    topic.write(1000, 1200)
    frame = topic.read(minPartitions="8")
    assert frame.columns[:3] == ["id", "item", "__key"]
    assert frame.rdd.getNumPartitions() == 8
    assert ids(frame) == list(range(1200))
    of_keys = {(bytes(row["__key"]), row["__topic"]) for row in frame.collect()}
    assert len(Counter(key for key, _ in of_keys)) == len(of_keys) == 7  # a key has one partition
    assert ids(topic.read(**{"admin.url": ""})) == list(range(1200))


def test_a_stream_has_everything_once_and_its_subscription_follows(
    topic: Topic, tmp_path: Path
) -> None:
    options = topic.options(
        startingOffsets="earliest", maxRowsPerTrigger="400", predefinedSubscription=SUBSCRIPTION
    )
    topic.write(0, 1000)
    assert len(topic.stream(tmp_path, options).recentProgress) > 2
    topic.admin("PUT", "/unload")
    topic.write(1000, 1500)
    without_rest = {name: each for name, each in options.items() if name != "admin.url"}
    topic.stream(tmp_path, without_rest)
    del options["maxRowsPerTrigger"]
    topic.write(1500, 2000)
    query = topic.stream(tmp_path, {**options, "maxBytesPerTrigger": "10000"})
    rows = topic.spark.read.parquet(str(tmp_path / "rows"))
    assert ids(rows) == list(range(2000))
    last = json.loads(query.recentProgress[-1].json)["sources"][0]["latestOffset"]
    assert [lag["entries"] for lag in last["lag"].values()] == [0] * PARTITIONS
    commit_from_checkpoint(tmp_path / "checkpoint", options)

    def backlog() -> int:
        stats = topic.admin("GET", "/partitioned-stats")
        return int(stats["subscriptions"][SUBSCRIPTION]["msgBacklog"])

    assert eventually(backlog, (0).__eq__) == 0


@pytest.mark.parametrize("has_rest", [True, False])
def test_messages_that_were_deleted_fail_the_query(
    topic: Topic,
    tmp_path: Path,
    has_rest: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    options = topic.options(startingOffsets="earliest")
    if not has_rest:
        del options["admin.url"]
    topic.write(0, 100)
    topic.stream(tmp_path, options)
    topic.admin("PUT", "/unload")
    topic.write(100, 200)
    topic.admin("PUT", "/unload")
    topic.admin("DELETE", "/truncate")
    topic.write(200, 300)
    with pytest.raises(StreamingQueryException, match="may have been deleted"):
        topic.stream(tmp_path, options)
    topic.stream(tmp_path, {**options, "failOnDataLoss": "false"})
    rows = topic.spark.read.parquet(str(tmp_path / "rows"))
    assert ids(rows) == [*range(100), *range(200, 300)]
