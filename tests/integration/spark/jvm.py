"""The processes of the shared session: its JVM, and the Python workers below it."""

from __future__ import annotations

import subprocess

from pyspark.sql import SparkSession
from tests.performance.rivals.processes import ProcessTree, parents


def jvm_pid(spark: SparkSession) -> int:
    gateway = spark.sparkContext._gateway
    jvm: subprocess.Popen[bytes] = getattr(gateway, "proc")  # noqa: B009 - py4j has no types
    return jvm.pid


def python_workers(spark: SparkSession) -> list[int]:
    """Those that run tasks, and those that plan; not the daemons that start them, which a Spark
    without a second try does not start again."""
    parent_of = dict(parents())
    everything = ProcessTree(jvm_pid(spark)).pids()
    return [pid for pid in everything[1:] if parent_of.get(pid) != everything[0]]
