"""The processes of the shared session: its JVM, and the Python workers below it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from tests.performance.processes import ProcessTree, parents


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


def listening_addresses(process: int) -> Iterator[str]:
    """The addresses on which a process accepts connections, as the kernel's tables have them."""
    own = {link.readlink().name for link in Path(f"/proc/{process}/fd").iterdir()}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                yield fields[1].partition(":")[0]
