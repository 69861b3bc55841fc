"""A streaming query in a driver of its own, which a test kills: ``streaming_driver.py PLAN``."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from pyspark_geminga.java_home import use_java


def main() -> None:
    """Read into Parquet files until killed."""
    plan = json.loads(sys.argv[1])
    use_java()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    frame = spark.readStream.format("pulsar").options(**plan["options"]).load().select("value")
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", f"{plan['directory']}/checkpoint")
        .start(f"{plan['directory']}/rows")
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
