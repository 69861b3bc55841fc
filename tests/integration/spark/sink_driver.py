"""A streaming query into a topic, in a driver of its own that a test kills:
``sink_driver.py PLAN``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from pyspark_geminga.java_home import use_java


def main() -> None:
    """Write all lines, a file each batch, or what another topic has of them; with a pipe in the
    plan, the first attempt of the task with the second file's waits in its midst."""
    plan = json.loads(sys.argv[1])
    pipe = plan.get("pipe")

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            context = TaskContext.get()
            is_first = context is not None and not context.attemptNumber()
            is_second_file = batch.column(0)[0].as_py().startswith(b"1-")
            if pipe and number == 3 and is_first and is_second_file:
                Path(pipe).read_bytes()  # returns when the test closes it, which is at its end
            yield batch

    use_java()
    spark = (
        SparkSession.builder.master(plan.get("master", "local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
        .getOrCreate()
    )
    if "source" in plan:
        frame = spark.readStream.format("pulsar").options(**plan["source"]).load().select("value")
    else:
        lines = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
        frame = lines.text(plan["lines"]).selectExpr("cast(value as binary) as value")
    query = (
        frame.mapInArrow(hold, "value binary")
        .writeStream.format("pulsar")
        .options(**plan["options"])
        .option("checkpointLocation", plan["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
