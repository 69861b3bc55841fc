"""Proves that every example of the guide to Spark runs, in its order, in one program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.processes.cluster_process import StandaloneProcess

from pyspark_geminga.access import ACCESS_OPTIONS
from pyspark_geminga.sink.options import SINK_OPTIONS
from pyspark_geminga.source.decisions.options import SOURCE_OPTIONS

GUIDE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_examples_run(
    spark: SparkSession,
    standalone: StandaloneProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = "\n".join(EXAMPLES)
    for usual, ours in (
        ("pulsar://127.0.0.1:6650", standalone.service_url),
        ("http://127.0.0.1:8080", standalone.web_url),
    ):
        assert program.count(usual) == 1
        program = program.replace(usual, ours)
    names: dict[str, object] = {"checkpoint": str(tmp_path / "checkpoint")}
    exec(compile(program, "docs/spark.md", "exec"), names)
    assert names["spark"] is spark
    printed = capsys.readouterr().out
    assert "|  1|coffee|  2.5|[63 6F 66 66 65 65]|" in printed
    assert [line for line in printed.splitlines() if line.isdigit()] == ["2", "2"]
    assert "|coffee|    1|" in printed
    dear = spark.read.format("pulsar").options(**names["cluster"], topic="spark-dear-orders")  # type: ignore[arg-type]  # a dictionary of the page
    assert [row.drink for row in dear.load().collect()] == ["coffee"]


def test_every_option_is_explained() -> None:
    unexplained = [
        option
        for option in (*ACCESS_OPTIONS, *SOURCE_OPTIONS, *SINK_OPTIONS)
        if option.rpartition(".")[2] not in GUIDE
    ]
    assert unexplained == []
