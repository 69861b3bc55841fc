"""Proves that messages become those of another schema, and that none which does not fit is lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.spark.rows import Row, frame

import geminga.sync
from geminga import AutoConsumeSchema, JsonSchema
from pyspark_geminga.jobs import etl_schema
from pyspark_geminga.jobs.etl_schema import dead_letters, problem_of


@dataclass
class Order:
    number: int
    price: float | None


def read_all(cluster: StandaloneProcess, topic: str, schema: Any) -> list[Any]:
    found: list[Any] = []
    with (
        geminga.sync.connect(cluster.service_url) as client,
        client.reader(topic, schema=schema) as reader,
    ):
        while reader.has_message_available():
            found.append(reader.read())
    return found


@pytest.mark.full  # half a minute on a busy machine
@pytest.mark.usefixtures("spark")
def test_what_fits_gets_another_schema_and_the_rest_is_a_dead_letter(
    standalone: StandaloneProcess, geminga_namespace: str, tmp_path: Path
) -> None:
    source, target, dead = (f"persistent://{geminga_namespace}/{n}" for n in ("in", "out", "dead"))
    with geminga.sync.connect(standalone.service_url) as client:
        with client.producer(source, schema=JsonSchema(Order)) as producer:
            for number in range(6):
                producer.send(Order(number, None if number == 4 else number / 2), key=f"k{number}")
        with client.producer(source) as producer:
            producer.send(b"no JSON", key="broken", properties={"a": "b"})
    arguments = ["--service-url", standalone.service_url, "--admin-url", standalone.web_url]
    arguments += ["--topic", source, "--to", target, "--dead-letter", dead]
    arguments += ["--checkpoint", str(tmp_path), "--where", "number <> 5"]
    arguments += ["--valid", "price < 1.5", "--select", "number", "--select", "price * 2 as twice"]
    for _ in range(2):  # the second run has nothing to do
        assert etl_schema.main(arguments) == 0
    results = read_all(standalone, target, AutoConsumeSchema())
    assert [(each.value["number"], each.value["twice"]) for each in results] == [
        (0, 0.0),
        (1, 1.0),
        (2, 2.0),
    ]
    assert [each.key for each in results] == ["k0", "k1", "k2"]
    letters = read_all(standalone, dead, None)
    reasons = [each.properties["etl-reason"] for each in letters]
    assert reasons == ["not price < 1.5"] * 2 + ["the payload does not fit the schema"]
    assert json.loads(letters[0].data) == {"number": 3, "price": 1.5}
    assert letters[2].data == b"no JSON"
    assert letters[2].properties["a"] == "b"
    assert letters[2].properties["etl-topic"] == source


@pytest.mark.full
def test_a_dead_letter_says_why_and_where_it_stood(spark: SparkSession) -> None:
    rows = frame(spark, [Row(b"broken", b"k", place=(7, 8, 9)), Row(b"", b"k")])
    rows = rows.withColumns(
        {
            "__corrupt": f.expr("if(value = cast('broken' as binary), value, null)"),
            "__messageProperties": f.expr("map('etl-reason', 'old', 'a', 'b')"),
            "number": f.lit(None).cast("int"),
        }
    ).drop("value")
    told = rows.withColumn("problem", problem_of(["number > 1", "true"]))
    first, second = dead_letters(told).collect()
    assert bytes(first["value"]) == b"broken"
    assert first["__messageProperties"] == {
        "a": "b",
        "etl-reason": "the payload does not fit the schema",
        "etl-topic": "t",
        "etl-message-id": "7:8:9",
    }
    # A rule that is null for a row does not hold.
    assert second["__messageProperties"]["etl-reason"] == "not number > 1"
    assert bytes(second["value"]) == b"{}"
