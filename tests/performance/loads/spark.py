"""What Spark's source and sink do beside our client and the official one, as ratios.

One process, this module run as a program, measures them one after the other on the same topic: a
busy machine is busy for all of them. Ratios are of rows a second, where a JVM may work beside the
Python worker; ``cpu`` are those of CPU for the same rows, JVM included. The best pass counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import pulsar
from tests.performance.loads.measure import LoadFailed, Phases
from tests.performance.loads.official_client import (
    FINISH_S_MAX,
    NAMESPACE,
    RECEIVE_TIMEOUT_MS,
    client_of,
    publish,
    silent_logger,
)
from tests.performance.rivals.processes import ProcessTree
from tests.performance.rivals.servers import Server

import geminga
import geminga.arrow

PASSES = 3
# Batches that a query needs until the JVM has compiled what it runs, and those that count.
COLD_BATCHES, BATCHES = 15, 25
STREAM_BATCHES = 4


def spark(server: Server, *, messages: int, size: int) -> Phases:
    """Read a backlog in one go and as a stream, and write: each beside what it is compared with."""
    topic = f"persistent://{NAMESPACE}/spark-{time.time_ns()}"
    with client_of(server) as client:
        for each in (topic, f"{topic}-single"):  # one without subscriptions is deleted
            client.subscribe(each, "holder").close()
    publish(server, topic, messages, size, batched=True)
    publish(server, f"{topic}-single", COLD_BATCHES + BATCHES, size, batched=False)
    arguments = (server.service_url, server.web_url, topic, str(messages), str(size))
    done = subprocess.run(
        [sys.executable, "-m", __name__, *arguments],
        capture_output=True,
        text=True,
        timeout=4 * FINISH_S_MAX,
        check=False,
    )
    if done.returncode:
        raise LoadFailed(f"Spark's process ended with {done.returncode}: {done.stderr[-2000:]}")
    phases: Phases = json.loads(done.stdout.splitlines()[-1])
    return phases


def why_left_out() -> str:
    """Why it cannot run here; nothing where it can."""
    return "" if find_spec("pyspark") else "PySpark is not installed"


# In the process of Spark


@dataclass(frozen=True, slots=True)
class Cost:
    """Rows a second, and microseconds of CPU a row, of this process and all below it."""

    per_s: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Costs:
    """What each kind of pass costs; ``read`` is Spark's with one task, ``read_two`` with two."""

    arrow: Cost
    official: Cost
    columns: Cost
    read: Cost
    read_two: Cost
    produced: Cost
    written: Cost


def _cost(work: Callable[[], object], rows: int, passes: int = PASSES) -> Cost:
    processes = ProcessTree(os.getpid())
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(passes):
        begun_s, used_s = time.perf_counter(), processes.cpu_s()
        work()
        walls.append(time.perf_counter() - begun_s)
        cpus.append(processes.cpu_s() - used_s)
    return Cost(rows / min(walls), min(cpus) / rows * 1e6)


def read_arrow(url: str, topic: str, messages: int) -> None:
    """All columns, by our client in this process."""

    async def read() -> int:
        async with geminga.connect(url) as client:
            batches = geminga.arrow.read_batches(client, topic)
            return sum([batch.num_rows async for batch in batches])

    _check(asyncio.run(read()), messages)


def receive_official(url: str, topic: str, messages: int) -> None:
    """The official client's loop, which looks at no message and acknowledges none."""
    client = pulsar.Client(url, logger=silent_logger())
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
    for _ in range(messages):
        reader.read_next(RECEIVE_TIMEOUT_MS)
    client.close()


def receive_columns(url: str, topic: str, messages: int) -> None:
    """The same loop, which takes out of each message what a row of Spark's has."""
    client = pulsar.Client(url, logger=silent_logger())
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
    for _ in range(messages):
        message = reader.read_next(RECEIVE_TIMEOUT_MS)
        for value in (
            message.data,
            message.partition_key,
            message.topic_name,
            message.message_id().serialize,
            message.properties,
            message.publish_timestamp,
            message.event_timestamp,
        ):
            value()
    client.close()


def produce_ours(url: str, topic: str, messages: int, size: int) -> None:
    """Bytes of that size, by our producer."""

    async def produce() -> None:
        payload = b"x" * size
        async with geminga.connect(url) as client, client.producer(topic) as producer:
            for _ in range(messages):
                await producer.ready()
                producer.send_nowait(payload)

    asyncio.run(produce())


def _check(found: int, messages: int) -> None:
    if found != messages:
        raise LoadFailed(f"{found} rows came of {messages}")


def _session() -> Any:
    from pyspark.sql import SparkSession

    from pyspark_geminga.java_home import use_java

    use_java()
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def main(url: str, web_url: str, topic: str, messages: int, size: int) -> Phases:
    """All phases."""
    session = _session()
    options = {"service.url": url, "admin.url": web_url, "valueMode": "raw"}

    def read(tasks: int) -> None:
        named = {**options, "topic": topic, "minPartitions": tasks, "maxPartitions": tasks}
        rows = session.read.format("pulsar").options(**named).load()
        rows.write.format("noop").mode("overwrite").save()

    def stream(name: str, **limit: int) -> list[Any]:
        named = {**options, "topic": name, "startingOffsets": "earliest", "maxPartitions": 1}
        rows = session.readStream.format("pulsar").options(**named, **limit).load()
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        return [each for each in query.recentProgress if each.numInputRows]

    def steady(**limit: int) -> float:
        batches = stream(topic, **limit)
        _check(sum(each.numInputRows for each in batches), messages)
        largest = max(each.numInputRows for each in batches)
        # The last one has what the limit left, which may be a few rows.
        full = [each for each in batches[1:] if each.numInputRows > largest / 2]
        return float(median(each.processedRowsPerSecond for each in full))

    def write() -> None:
        rows = session.range(0, messages, 1, 1).selectExpr(f"cast(repeat('x', {size}) as binary) v")
        written = rows.withColumnRenamed("v", "value").write.format("pulsar").options(**options)
        written.option("topic", f"{topic}-sink").mode("append").save()

    costs = Costs(
        arrow=_cost(lambda: read_arrow(url, topic, messages), messages),
        official=_cost(lambda: receive_official(url, topic, messages), messages, passes=1),
        columns=_cost(lambda: receive_columns(url, topic, messages), messages, passes=1),
        read=_cost(partial(read, 1), messages),
        read_two=_cost(partial(read, 2), messages),
        produced=_cost(lambda: produce_ours(url, f"{topic}-ours", messages, size), messages),
        written=_cost(write, messages),
    )
    by_rows = steady(maxRowsPerTrigger=messages // STREAM_BATCHES)
    by_bytes = steady(maxBytesPerTrigger=messages * size // STREAM_BATCHES)
    floors = stream(f"{topic}-single", maxRowsPerTrigger=1)[COLD_BATCHES:]
    return ratios(costs) | {
        "stream": {"per_s": by_rows, "of_batch": by_rows / costs.read.per_s},
        "stream bytes": {"per_s": by_bytes, "of_batch": by_bytes / costs.read.per_s},
        "floor": {"p50_ms": median(each.durationMs["triggerExecution"] for each in floors)},
    }


def ratios(costs: Costs) -> Phases:
    """Each pass of Spark's beside the pass without Spark that it is compared with."""
    one, two = costs.read, costs.read_two
    return {
        "read": {
            "per_s": one.per_s,
            "of_arrow": one.per_s / costs.arrow.per_s,
            "cpu": costs.arrow.cpu_us / one.cpu_us,
        },
        "read two": {
            "per_s": two.per_s,
            "splits": two.per_s / one.per_s,
            "of_official": two.per_s / costs.official.per_s,
            "of_columns": two.per_s / costs.columns.per_s,
        },
        "sink": {
            "per_s": costs.written.per_s,
            "of_producer": costs.written.per_s / costs.produced.per_s,
            "cpu": costs.produced.cpu_us / costs.written.cpu_us,
        },
    }


if __name__ == "__main__":
    service_url, web_service_url, topic_name, count, size_bytes = sys.argv[1:]
    print(json.dumps(main(service_url, web_service_url, topic_name, int(count), int(size_bytes))))
