"""Proves that jobs do with real topics what they say, and go on where they ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet
import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.integration.processes.cluster_process import StandaloneProcess

import geminga.sync
from pyspark_geminga.java_home import java_home
from pyspark_geminga.jobs import archive, compact, lag_report, windowed_stats


@pytest.fixture
def topic(geminga_namespace: str) -> str:
    return f"persistent://{geminga_namespace}/orders"


def publish(
    cluster: StandaloneProcess,
    topic: str,
    messages: Iterable[tuple[str | None, bytes]],
    age_s: float = 2,
) -> None:
    """Messages as keys and payloads; each has an event time so many seconds ago."""
    with (
        geminga.sync.connect(cluster.service_url) as client,
        # Brokers delete an inactive topic without subscriptions after a minute.
        client.consumer(topic, "holder"),
        client.producer(topic) as producer,
    ):
        for key, value in messages:
            happened = datetime.now(UTC).timestamp() - age_s
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


def lag_entries(
    cluster: StandaloneProcess, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> int:
    """What the report says of a checkpoint of one topic."""
    capsys.readouterr()
    where = ["--admin-url", cluster.web_url, "--service-url", cluster.service_url]
    code = lag_report.main(
        [*where, "--checkpoint", str(checkpoint), "--format", "json", "--max-entries", "0"]
    )
    (lag,) = json.loads(capsys.readouterr().out)
    assert code == (1 if lag["entries"] else 0)
    return int(lag["entries"])


def test_a_report_has_the_backlogs_of_subscriptions(
    standalone: StandaloneProcess, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        geminga.sync.connect(standalone.service_url) as client,
        client.consumer(topic, "billing"),
        client.producer(topic) as producer,
    ):
        producer.send(b"1")
        producer.send(b"2")
    assert lag_report.main(words(standalone, topic)) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["billing", topic, "2", "behind"]
    assert lag_report.main(words(standalone, topic, "--max-entries", 1)) == 1
    assert lag_report.main(words(standalone, topic + "-nowhere")) == 3


@pytest.mark.full
def test_an_archive_goes_on_where_it_ended(
    spark: SparkSession,
    standalone: StandaloneProcess,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(standalone, topic, [("k", b"1"), ("k", b"2")])
    archived = tmp_path / "archive"
    arguments = words(standalone, topic, "--output", archived, "--checkpoint", tmp_path / "c")
    assert archive.main(arguments) == 0
    assert lag_entries(standalone, tmp_path / "c", capsys) == 0
    publish(standalone, topic, [("l", b"3")])
    assert lag_entries(standalone, tmp_path / "c", capsys) == 1
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


@pytest.mark.full
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


@pytest.mark.full
def test_windows_of_a_stream_become_messages_when_the_watermark_has_passed_them(
    standalone: StandaloneProcess, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    publish(standalone, topic, [("k", b"12"), ("k", b"3"), ("l", b"4")], age_s=7200)
    publish(standalone, topic, [("k", b"5")])
    arguments = words(standalone, topic, "--checkpoint", tmp_path / "c", "--by", "key")
    arguments += ["--window", "1 hour", "--watermark", "1 minute", "--to-topic", topic + "-windows"]
    for _ in range(2):  # what was written is not written again
        assert windowed_stats.main(arguments) == 0
    where = {"service.url": standalone.service_url, "admin.url": standalone.web_url}
    rows = spark.read.format("pulsar").options(**where, topic=topic + "-windows").load().collect()
    windows = {bytes(row["__key"]): json.loads(row.value) for row in rows}
    assert len(rows) == 2
    assert {key: (w["messages"], w["bytes"]) for key, w in windows.items()} == {
        b"k": (2, 3),
        b"l": (1, 1),
    }
    assert all(row["__eventTime"].minute == 0 for row in rows)


@pytest.mark.full
def test_a_snapshot_has_the_last_message_of_each_key(
    spark: SparkSession,
    standalone: StandaloneProcess,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    messages = [(f"k{n % 3}", b"%d" % n) for n in range(30)]
    publish(standalone, topic, [*messages, ("k0", b""), (None, b"x"), (None, b"y")])
    output = tmp_path / "snapshot"
    assert compact.main(words(standalone, topic, "--output", output)) == 0
    said = capsys.readouterr().err
    assert f"the last messages of 2 keys are in {output}; 2 messages have no key" in said
    rows = spark.read.parquet(str(output)).sort("__key").collect()
    assert [bytes(row.value) for row in rows] == [b"28", b"29"]
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        compact.main(words(standalone, topic, "--output", output))
    assert compact.main(words(standalone, topic, "--output", output, "--overwrite")) == 0


SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
PROGRAMS = {
    "module": [sys.executable, "-m", "pyspark_geminga.jobs.compact"],
    "submitted": [str(SUBMIT), "--master", "local[1]", str(compact.__file__)],
}


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_job_is_a_program(
    program: str, standalone: StandaloneProcess, topic: str, tmp_path: Path
) -> None:
    publish(standalone, topic, [("k", b"1"), ("k", b"2"), ("l", b"3")])
    output = tmp_path / "snapshot"
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"JAVA_HOME": str(java_home(os.environ))} if program == "submitted" else {}
    ran = subprocess.run(
        [*PROGRAMS[program], *words(standalone, topic, "--output", output)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    # spark-submit brings both on its standard output.
    assert f"the last messages of 2 keys are in {output}" in ran.stdout + ran.stderr
    rows = pyarrow.parquet.read_table(output)
    assert sorted(rows["value"].to_pylist()) == [b"2", b"3"]
