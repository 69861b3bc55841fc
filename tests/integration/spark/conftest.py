"""The Spark session that a process of tests shares: it takes seconds to start, and a JVM is kept.

It is quiet, listens on the loopback interface only, and runs Python workers in this environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_geminga.java_home import use_java

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # It lives for two minutes: what the second compiler costs (a third of all) never comes back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Rows of tests are few: Spark's own 200 partitions after a shuffle would take a second each.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # A Python worker has 15 s to start otherwise: too little on a machine that is busy with tests.
    "spark.python.authenticate.socketTimeout": "120s",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings are errors here too, but for those of Spark's own modules about themselves."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(r"default:::(pyspark|py4j)\."))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Generator[SparkSession]:
    """A session on two threads, one a process of tests; ``newSession()`` gives settings of one's
    own."""
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        # What is set before the JVM starts counts; its Python workers inherit it.
        environment.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        # Where the environment names a Spark of another version, its jars must not be taken.
        environment.delenv("SPARK_HOME", raising=False)
        use_java()
        builder = SparkSession.builder.master("local[2]").appName("tests")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        session = (
            builder.config("spark.local.dir", str(directory / "local"))
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
