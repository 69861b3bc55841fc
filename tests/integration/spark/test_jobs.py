"""Proves that jobs do with real topics what they say, and go on where they ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.cluster_process import StandaloneProcess

import geminga.sync
from pyspark_geminga.jobs import archive, compact, windowed_stats


@pytest.fixture
def topic(geminga_namespace: str) -> str:
    return f"persistent://{geminga_namespace}/orders"


def publish(cluster: StandaloneProcess, topic: str, messages: Iterable[tuple[str, bytes]]) -> None:
    """Messages as keys and payloads; each has an event time two seconds ago."""
    with (
        geminga.sync.connect(cluster.service_url) as client,
        client.producer(topic) as producer,
    ):
        for key, value in messages:
            happened = datetime.now(UTC).timestamp() - 2
            producer.send_nowait(
                value,
                key=key,
                event_time=datetime.fromtimestamp(happened, UTC),
                properties={"a": "b"},
            )


def words(cluster: StandaloneProcess, topic: str, *more: object) -> list[str]:
    """A command line on this topic."""
    where = ["--service-url", cluster.service_url, "--admin-url", cluster.web_url]
    return [*where, "--topic", topic, *map(str, more)]


def test_an_archive_goes_on_where_it_ended(
    spark: SparkSession, standalone: StandaloneProcess, topic: str, tmp_path: Path
) -> None:
    publish(standalone, topic, [("k", b"1"), ("k", b"2")])
    archived = tmp_path / "archive"
    arguments = words(standalone, topic, "--output", archived, "--checkpoint", tmp_path / "c")
    assert archive.main(arguments) == 0
    publish(standalone, topic, [("l", b"3")])
    # Hours that are not over are merged as well; it is the merged folder that is read below.
    arguments += ["--merge-into", str(tmp_path / "merged"), "--merge-after", "-120"]
    assert archive.main(arguments) == 0
    for folder in ("archive", "merged"):
        rows = spark.read.parquet(str(tmp_path / folder)).collect()
        assert sorted(bytes(row.value) for row in rows) == [b"1", b"2", b"3"]
        assert {row["__topic"] for row in rows} == {topic}
        assert {bytes(row["__key"]) for row in rows} == {b"k", b"l"}
        assert len({bytes(row["__messageId"]) for row in rows}) == 3
        assert {(row["dt"], row["hour"]) for row in rows} == {
            (row["__publishTime"].date(), row["__publishTime"].hour) for row in rows
        }


def test_windows_of_a_stored_topic_become_messages_and_files(
    spark: SparkSession, standalone: StandaloneProcess, topic: str, tmp_path: Path
) -> None:
    publish(standalone, topic, [("k", b"12"), ("l", b"345")])
    arguments = words(standalone, topic, "--batch", "--by", "key", "--window", "1 day")
    output = tmp_path / "windows"
    assert windowed_stats.main([*arguments, "--output", str(output)]) == 0
    rows = spark.read.parquet(str(output)).sort("key").collect()
    assert [(row.key, row.messages, row.bytes) for row in rows] == [("k", 1, 2), ("l", 1, 3)]
    assert all(1_000 < row.delay_p50_ms < 60_000 for row in rows)


def test_a_snapshot_has_the_last_message_of_each_key(
    spark: SparkSession, standalone: StandaloneProcess, topic: str, tmp_path: Path
) -> None:
    publish(standalone, topic, [(f"k{n % 3}", b"%d" % n) for n in range(30)] + [("k0", b"")])
    output = tmp_path / "snapshot"
    assert compact.main(words(standalone, topic, "--output", output)) == 0
    rows = spark.read.parquet(str(output)).sort("__key").collect()
    assert [bytes(row.value) for row in rows] == [b"28", b"29"]
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        compact.main(words(standalone, topic, "--output", output))
    assert compact.main(words(standalone, topic, "--output", output, "--overwrite")) == 0
