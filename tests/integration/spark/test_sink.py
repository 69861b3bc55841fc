"""Proves what the sink stores, as the official client reads it, and that it stores every row once
whatever fails, where topics deduplicate."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pulsar
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually
from tests.performance.rivals.processes import ProcessTree

import geminga.sync
from geminga.producers.outgoing.routing import java_string_hash
from pyspark_geminga.sink import stream_writer
from pyspark_geminga.sink.writers import StreamWriter

FILES, ROWS_A_FILE = 4, 50
ROWS = FILES * ROWS_A_FILE
# Ten rows fill the buffers between Spark's processes: the sink gets them before the next ten.
PADDING = "." * 8000


class FlakyWriter(StreamWriter):
    """Fails the commit of one micro-batch, once: then ``mark`` is there."""

    def __init__(self, writer: StreamWriter, mark: str) -> None:
        super().__init__(writer.plan)
        self._mark = mark

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        fail_once(self._mark, is_wanted=batchId == 2)
        super().commit(messages, batchId)


class FlakySink(DataSource):
    """The sink, with an option ``flaky`` that names a file: see ``FlakyWriter``."""

    @classmethod
    def name(cls) -> str:
        return "pulsar-flaky"

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        options = dict(self.options)
        mark = options.pop("flaky")
        return FlakyWriter(stream_writer(options, schema, overwrite=overwrite), mark)


def fail_once(mark: str, *, is_wanted: bool) -> None:
    if is_wanted and not Path(mark).exists():
        Path(mark).touch()
        raise RuntimeError("injected")


@pytest.fixture(scope="session", autouse=True)
def registered(spark: SparkSession) -> None:
    """Processes of Spark's do not find this module: its classes travel as they are."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    spark.dataSource.register(FlakySink)


@pytest.fixture
def namespace(standalone: StandaloneProcess) -> str:
    """A namespace whose topics deduplicate."""
    name = f"public/dedup-{uuid.uuid4().hex}"
    assert rest(standalone.web_url, "PUT", f"/admin/v2/namespaces/{name}")[0] == 204
    switch_deduplication(standalone, name, is_on=True)
    return name


def switch_deduplication(standalone: StandaloneProcess, namespace: str, *, is_on: bool) -> None:
    path = f"/admin/v2/namespaces/{namespace}/deduplication"
    assert rest(standalone.web_url, "POST", path, is_on)[0] == 204


def options_of(standalone: StandaloneProcess, **more: object) -> dict[str, str]:
    return {
        "service.url": standalone.service_url,
        "admin.url": standalone.web_url,
        **{name: str(value) for name, value in more.items()},
    }


def read_all(standalone: StandaloneProcess, *topics: str) -> list[Any]:
    """What is stored in topics, by the official client."""
    found: list[Any] = []
    with client_of(standalone.service_url) as client:
        for topic in topics:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            while reader.has_message_available():
                found.append(reader.read_next(30_000))
    return found


def write(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("pulsar").mode("append").options(**options).save()


def test_a_batch_is_read_back_by_the_official_client(
    spark: SparkSession, standalone: StandaloneProcess
) -> None:
    topic = f"batch-{uuid.uuid4().hex}"
    rows = [
        (b"%d" % n, f"k{n}", datetime(2026, 1, 1, 0, 0, n, 123_000, UTC), {"n": str(n)})
        for n in range(20)
    ]
    columns = (
        "value binary, __key string, __eventTime timestamp, __messageProperties map<string,string>"
    )
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    write(frame, options_of(standalone, topic=topic, valueMode="raw"))
    found = read_all(standalone, topic)
    assert [each.data() for each in found] == [b"%d" % n for n in range(20)]
    assert found[3].partition_key() == "k3"
    assert found[3].properties() == {"n": "3"}
    assert found[3].event_timestamp() == 1_767_225_603_123


def test_each_row_names_its_topic_and_keys_choose_partitions(
    spark: SparkSession, standalone: StandaloneProcess
) -> None:
    plain, parted = f"plain-{uuid.uuid4().hex}", f"parted-{uuid.uuid4().hex}"
    path = f"/admin/v2/persistent/public/default/{parted}/partitions"
    assert rest(standalone.web_url, "PUT", path, 3)[0] == 204
    rows = [(b"%d" % n, f"k{n}", parted if n % 2 else plain) for n in range(60)]
    frame = spark.createDataFrame(rows, "value binary, __key string, __topic string")
    write(frame.coalesce(1), options_of(standalone, valueMode="raw"))
    assert sorted(int(each.data()) for each in read_all(standalone, plain)) == [*range(0, 60, 2)]
    for index in range(3):
        stored = read_all(standalone, f"{parted}-partition-{index}")
        assert [each.data() for each in stored] == [
            b"%d" % n for n in range(1, 60, 2) if java_string_hash(f"k{n}") % 3 == index
        ]


def registered_schema(standalone: StandaloneProcess, topic: str) -> tuple[str, Any]:
    status, found = rest(
        standalone.web_url, "GET", f"/admin/v2/schemas/public/default/{topic}/schema"
    )
    assert status == 200
    return found["type"], found["data"]


def test_columns_become_records_of_a_schema_that_is_registered(
    spark: SparkSession, standalone: StandaloneProcess
) -> None:
    frame = spark.range(3).selectExpr(
        "id", "concat('n', id) as name", "array(id, id + 1) as both", "cast(id as string) as __key"
    )
    wanted = [{"id": n, "name": f"n{n}", "both": [n, n + 1]} for n in range(3)]
    avro, as_json = f"avro-{uuid.uuid4().hex}", f"json-{uuid.uuid4().hex}"
    write(frame.coalesce(1), options_of(standalone, topic=avro))
    kind, definition = registered_schema(standalone, avro)
    assert kind == "AVRO"
    schema = fastavro.parse_schema(json.loads(definition))
    messages = read_all(standalone, avro)
    assert [
        fastavro.schemaless_reader(io.BytesIO(each.data()), schema, None) for each in messages
    ] == wanted
    assert [each.partition_key() for each in messages] == ["0", "1", "2"]
    write(frame.coalesce(1), options_of(standalone, topic=as_json, recordFormat="json"))
    assert registered_schema(standalone, as_json)[0] == "JSON"
    assert [json.loads(each.data()) for each in read_all(standalone, as_json)] == wanted


def test_a_single_column_becomes_a_simple_value(
    spark: SparkSession, standalone: StandaloneProcess
) -> None:
    topic = f"number-{uuid.uuid4().hex}"
    write(spark.range(5, 7).coalesce(1), options_of(standalone, topic=topic))
    assert registered_schema(standalone, topic)[0] == "INT64"
    stored = [int.from_bytes(each.data(), "big") for each in read_all(standalone, topic)]
    assert stored == [5, 6]
    # The topic now has a schema, and others are refused before a row is written.
    with pytest.raises(PySparkException, match="IncompatibleSchema"):
        write(spark.range(1).selectExpr("id", "id as b"), options_of(standalone, topic=topic))


def test_an_overwrite_is_refused(spark: SparkSession, standalone: StandaloneProcess) -> None:
    frame = spark.createDataFrame([(b"",)], "value binary").write.format("pulsar")
    with pytest.raises(PySparkException, match="topics only grow; use append"):
        frame.mode("overwrite").options(**options_of(standalone, topic="over")).save()


@pytest.mark.parametrize("mode", [None, "errorifexists", "ignore"])
def test_spark_refuses_the_modes_that_ask_what_is_there(
    spark: SparkSession, standalone: StandaloneProcess, mode: str | None
) -> None:
    frame = spark.createDataFrame([(b"",)], "value binary").write.format("pulsar")
    options = options_of(standalone, topic=f"mode-{uuid.uuid4().hex}")
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        frame.mode(mode).options(**options).save()


def test_a_topic_that_does_not_deduplicate_is_refused(
    spark: SparkSession, standalone: StandaloneProcess
) -> None:
    frame = spark.createDataFrame([(b"",)], "value binary")
    options = options_of(standalone, topic="careless", semantics="dedup", dedupKey="x")
    with pytest.raises(PySparkException, match="careless does not deduplicate"):
        write(frame, options)


def test_a_batch_with_a_key_is_stored_once(
    spark: SparkSession, standalone: StandaloneProcess, namespace: str
) -> None:
    topic = f"{namespace}/once"
    frame = spark.range(100).selectExpr("cast(cast(id as string) as binary) as value")
    options = options_of(standalone, topic=topic, semantics="dedup", dedupKey="load-7")
    for batch_rows in (7, 10):
        write(frame, options | {"batchMaxRows": str(batch_rows), "valueMode": "raw"})
    found = Counter(int(each.data()) for each in read_all(standalone, topic))
    assert found == Counter(range(100))
    write(frame, options | {"dedupKey": "load-8", "valueMode": "raw"})
    assert len(read_all(standalone, topic)) == 200


# ---- streams


def run_until_done(
    spark: SparkSession, options: dict[str, str], directory: Path, *, fails_task: bool = True
) -> int:
    """Run a query over all files, again after each failure; how many failures there were."""
    marks = str(directory / "task-failed")

    def fail_midway(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fails in the task of the second file, behind its first rows."""
        for number, batch in enumerate(batches):
            is_second = batch.column(0)[0].as_py().startswith(b"1-")
            fail_once(marks, is_wanted=fails_task and number == 3 and is_second)
            yield batch

    lines = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
    frame = (
        lines.text(str(directory / "lines"))
        .selectExpr("cast(value as binary) as value")
        .mapInArrow(fail_midway, "value binary")
    )
    failures = 0
    while True:
        query = (
            frame.writeStream.format("pulsar-flaky")
            .options(**options, valueMode="raw", flaky=str(directory / "commit-failed"))
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120)
        except PySparkException as error:
            if "injected" not in str(error) or failures > 3:
                raise
            failures += 1
        else:
            return failures


@pytest.fixture
def lines(tmp_path: Path, spark: SparkSession) -> Iterator[Path]:
    """A directory with ``lines``, a file for each micro-batch; rows come ten at a time."""
    place = tmp_path / "lines"
    place.mkdir()
    for file in range(FILES):
        content = "".join(f"{file}-{row}{PADDING}\n" for row in range(ROWS_A_FILE))
        (place / f"{file}.txt").write_text(content)
        os.utime(place / f"{file}.txt", (file, file))  # Spark takes the oldest first
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, 10)
    yield tmp_path
    spark.conf.set(name, str(before))


WANTED = Counter(
    f"{file}-{row}{PADDING}".encode() for file in range(FILES) for row in range(ROWS_A_FILE)
)


@pytest.mark.parametrize("order", ["value", pytest.param("none", marks=pytest.mark.full)])
def test_a_stream_is_stored_once_whatever_fails(
    spark: SparkSession, standalone: StandaloneProcess, namespace: str, lines: Path, order: str
) -> None:
    topic = f"{namespace}/{order}"
    options = options_of(
        standalone, topic=topic, semantics="dedup", orderWithinTask=order, batchMaxRows=7
    )
    assert run_until_done(spark, options, lines) == 2
    assert Counter(each.data() for each in read_all(standalone, topic)) == WANTED


@pytest.mark.full
def test_without_deduplication_the_same_failures_store_rows_again(
    spark: SparkSession, standalone: StandaloneProcess, lines: Path
) -> None:
    topic = f"again-{uuid.uuid4().hex}"
    assert run_until_done(spark, options_of(standalone, topic=topic, batchMaxRows=7), lines) == 2
    found = Counter(each.data() for each in read_all(standalone, topic))
    assert set(found) == set(WANTED)
    # All of the batch whose commit failed, and some of the task that failed.
    assert found.total() > ROWS + ROWS_A_FILE


@pytest.mark.full
def test_a_driver_that_is_killed_within_a_batch_stores_nothing_twice(
    standalone: StandaloneProcess, namespace: str, lines: Path
) -> None:
    topic, pipe = f"{namespace}/killed", lines / "pipe"
    os.mkfifo(pipe)
    options = options_of(
        standalone, topic=topic, semantics="dedup", orderWithinTask="none", batchMaxRows=7
    )
    plan = {
        "options": options,
        "lines": str(lines / "lines"),
        "checkpoint": str(lines / "checkpoint"),
    }
    script = Path(__file__).with_name("sink_driver.py")
    held = subprocess.Popen(
        [sys.executable, script, json.dumps(plan | {"pipe": str(pipe)})], start_new_session=True
    )
    try:
        with pipe.open("wb"):  # once the driver reads it
            eventually(lambda: len(read_all(standalone, topic)), ROWS_A_FILE.__lt__)
            os.killpg(held.pid, signal.SIGKILL)
    finally:
        held.kill()
        held.wait()
    assert len(read_all(standalone, topic)) < ROWS
    subprocess.run([sys.executable, script, json.dumps(plan)], check=True, timeout=200)
    assert Counter(each.data() for each in read_all(standalone, topic)) == WANTED


@pytest.mark.full
@pytest.mark.timeout(600)  # a JVM for the driver and each executor, and two more executors
def test_executors_that_are_killed_within_a_batch_lose_nothing_and_repeat_nothing(
    standalone: StandaloneProcess, namespace: str, tmp_path: Path
) -> None:
    lines, topic, pipe = f"{namespace}/lines", f"{namespace}/executors", tmp_path / "pipe"
    os.mkfifo(pipe)
    plan = {
        "master": "local-cluster[2,1,1024]",
        "source": options_of(
            standalone, topic=lines, startingOffsets="earliest", maxRowsPerTrigger=ROWS_A_FILE
        ),
        "options": options_of(
            standalone, topic=topic, semantics="dedup", orderWithinTask="none", batchMaxRows=7
        ),
        "checkpoint": str(tmp_path / "checkpoint"),
        "pipe": str(pipe),
    }
    batching = geminga.Batching(messages_max=10, delay_s=600)  # full batches only, however slow
    with (
        geminga.sync.connect(standalone.service_url) as client,
        client.consumer(lines, "holder"),
        client.producer(lines, batching=batching) as producer,
    ):
        for line in WANTED:
            producer.send_nowait(line)
    driver = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("sink_driver.py"), json.dumps(plan)],
        start_new_session=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    try:
        with pipe.open("wb"):  # once the first attempt waits
            eventually(lambda: len(read_all(standalone, topic)), ROWS_A_FILE.__lt__)
            executors = executors_of(driver.pid)
            assert len(executors) == 2
            for executor in executors:
                os.kill(executor, signal.SIGKILL)
        assert len(read_all(standalone, topic)) < 2 * ROWS_A_FILE
        assert driver.wait(300) == 0
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert Counter(each.data() for each in read_all(standalone, topic)) == WANTED


def executors_of(driver: int) -> list[int]:
    """The processes of Spark's that run tasks, of a cluster below a driver."""
    return [
        pid
        for pid in ProcessTree(driver).pids()
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
