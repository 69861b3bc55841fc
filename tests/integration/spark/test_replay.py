"""Proves that a replay publishes all that messages say, in the order of their keys, and once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.spark.rows import Row, frame

import geminga.sync
from pyspark_geminga.jobs import archive, replay, verify
from pyspark_geminga.jobs.replay import as_messages, in_order

MESSAGES = 60


@pytest.fixture
def source(standalone: StandaloneProcess, geminga_namespace: str) -> str:
    """A topic of two partitions with messages of seven keys, in a namespace that deduplicates."""
    path = f"/admin/v2/namespaces/{geminga_namespace}/deduplication"
    assert rest(standalone.web_url, "POST", path, body=True)[0] == 204
    path = f"/admin/v2/persistent/{geminga_namespace}/source/partitions"
    assert rest(standalone.web_url, "PUT", path, 2)[0] == 204
    topic = f"persistent://{geminga_namespace}/source"
    with (
        geminga.sync.connect(standalone.service_url) as client,
        client.producer(topic) as producer,
    ):
        for number in range(MESSAGES):
            producer.send_nowait(
                b"%d" % number,
                key=f"k{number % 7}",
                event_time=1_700_000_000_000 + number,
                properties={"number": str(number)},
            )
    return topic


def words(cluster: StandaloneProcess, *more: object) -> list[str]:
    return ["--service-url", cluster.service_url, "--admin-url", cluster.web_url, *map(str, more)]


@pytest.fixture
def few_rows_a_batch(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, 4)
    yield
    spark.conf.set(name, str(before))


@pytest.mark.full
@pytest.mark.usefixtures("spark", "few_rows_a_batch")
def test_a_topic_is_replayed_once_however_often(standalone: StandaloneProcess, source: str) -> None:
    target = source.replace("source", "target")
    arguments = words(standalone, "--topic", source, "--to", target, "--tasks", 3)
    for _ in range(2):
        assert replay.main([*arguments, "--once", "load-7"]) == 0
    sides = words(standalone, "--found", target, "--expected", source)
    assert verify.main(sides) == 0
    # Without the name it is stored again, and the judge says so.
    assert replay.main([*arguments, "--rate", "5000"]) == 0
    assert verify.main(sides) == 1


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_an_archive_is_replayed_into_another_namespace(
    standalone: StandaloneProcess, source: str, tmp_path: Path
) -> None:
    namespace = source.removeprefix("persistent://").rpartition("/")[0] + "-b"
    assert rest(standalone.web_url, "PUT", f"/admin/v2/namespaces/{namespace}")[0] == 204
    output = tmp_path / "archive"
    place = ["--output", output, "--checkpoint", tmp_path / "c"]
    assert archive.main(words(standalone, "--topic", source, *place)) == 0
    where = ["--archive", output, "--to-namespace", namespace]
    assert replay.main(words(standalone, *where)) == 0
    sides = ["--found", f"persistent://{namespace}/source", "--expected", f"parquet:{output}"]
    assert verify.main(words(standalone, *sides)) == 0


def test_the_messages_of_a_key_go_through_one_task_in_the_order_of_the_log(
    spark: SparkSession,
) -> None:
    rows = [Row(b"%d" % n, b"k%d" % (n % 5), f"t-partition-{n % 2}", (1, n, -1)) for n in range(40)]
    shuffled = frame(spark, rows[::-1]).repartition(4)
    tasks = [
        [(bytes(row["__key"]), row["__topic"], int(row["value"])) for row in task]
        for task in in_order(shuffled, 3).rdd.glom().collect()
    ]
    assert len(tasks) == 3
    where: dict[bytes, int] = {}
    for number, task in enumerate(tasks):
        for key, topic, _ in task:
            assert where.setdefault(key, number) == number
            numbers = [each[2] for each in task if each[:2] == (key, topic)]
            assert numbers == sorted(numbers)
    assert len(where) == 5


def test_topics_keep_their_names_in_another_namespace(spark: SparkSession) -> None:
    rows = [
        Row(b"0", b"k", "persistent://a/b/orders-partition-3"),
        Row(b"1", None, "persistent://a/b/plain"),
    ]
    table = as_messages(frame(spark, rows), namespace="c/d", has_text_keys=True)
    assert [(row["__topic"], row["__key"]) for row in table.collect()] == [
        ("persistent://c/d/orders", "k"),
        ("persistent://c/d/plain", None),
    ]
    assert not {"__messageId", "__publishTime"} & set(table.columns)
    kept = as_messages(frame(spark, rows), namespace=None, has_text_keys=False)
    assert dict(kept.dtypes)["__key"] == "binary"
    assert "__topic" not in kept.columns
