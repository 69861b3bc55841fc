"""Proves that the installed wheel works where executors are processes, without registration."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.project_files import ROOT

import geminga.sync

MESSAGES = 1_000
PARTITIONS = 4
# Nothing is registered, and nothing but the wheel is on the path of the executors.
PROGRAM = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.functions import count_distinct, sum

topic, options, directory = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
spark = SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
read = {"topic": topic, "startingOffsets": "earliest", **options}
rows = spark.read.format("pulsar").options(**read).load()
batch = rows.selectExpr("cast(cast(value as string) as int) as n", "__messageId")
print(json.dumps(list(batch.select(count_distinct("__messageId"), sum("n")).first())))
stream = spark.readStream.format("pulsar").options(**read, maxRowsPerTrigger="300").load()
written = stream.select("value", "__key").writeStream.format("pulsar").options(**options)
written = written.option("topic", topic + "-copy").trigger(availableNow=True)
query = written.option("checkpointLocation", str(directory / "checkpoint")).start()
query.awaitTermination()
print(json.dumps([len(query.recentProgress)]))
copied = spark.read.format("pulsar").options(**options, topic=topic + "-copy").load()
print(json.dumps([copied.select("value").distinct().count()]))

def where(batches):
    import pyarrow, pyspark_geminga
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"path": [pyspark_geminga.__file__] * len(batch)})

paths = spark.range(4).repartition(4).mapInArrow(where, "path string")
print(json.dumps(sorted({row.path for row in paths.collect()})))
"""


@pytest.fixture
def topic(standalone: StandaloneProcess, geminga_namespace: str) -> str:
    """A partitioned topic that holds numbers."""
    name = f"{geminga_namespace}/numbers"
    status, _ = rest(
        standalone.web_url, "PUT", f"/admin/v2/persistent/{name}/partitions", PARTITIONS
    )
    assert status < 300
    with (
        geminga.sync.connect(standalone.service_url) as client,
        # Installing takes longer than brokers keep an inactive topic without subscriptions.
        client.consumer(f"persistent://{name}", "holder"),
        client.producer(f"persistent://{name}") as producer,
    ):
        for number in range(MESSAGES):
            producer.send_nowait(b"%d" % number, key=f"k{number % 50}")
    return f"persistent://{name}"


def options_of(cluster: StandaloneProcess) -> dict[str, str]:
    return {"service.url": cluster.service_url, "admin.url": cluster.web_url}


@pytest.mark.full
def test_the_installed_wheel_needs_no_registration_on_a_cluster_of_executors(
    standalone: StandaloneProcess, topic: str, tmp_path: Path
) -> None:
    venv.create(tmp_path / "installed", with_pip=True)
    python = tmp_path / "installed" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", f"{ROOT}[spark]"], check=True, timeout=900
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = kept | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    script = "from pyspark_geminga.java_home import use_java; use_java()\n" + PROGRAM
    ran = subprocess.run(
        [python, "-c", script, topic, json.dumps(options_of(standalone)), tmp_path],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
    )
    stored, batches, copied, paths = map(json.loads, ran.stdout.splitlines())
    assert stored == [MESSAGES, sum(range(MESSAGES))]
    assert batches[0] > 3
    assert copied == [MESSAGES]
    assert len(paths) == 1
    assert paths[0].startswith(str(tmp_path / "installed"))
