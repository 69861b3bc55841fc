"""Proves what the profiles of the compose file add to its cluster: Spark, which reads what clients
sent, and Prometheus, which has every metric that the dashboards ask for.

Prometheus is Debian's here, for no registry of images is reached. Grafana is in no release of
Debian: ``tests/test_compose.py`` holds its files against each other and against the metrics.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any
from urllib.parse import quote

import pytest
from tests.containers.cluster import PARTS, ComposedCluster, on_the_machine
from tests.containers.engine import CHECKOUT, Engine
from tests.integration.waiting import eventually
from tests.monitoring_files import expressions, missing_metrics

log = logging.getLogger(__name__)

COMPOSE = (CHECKOUT / "docker-compose.yml").read_text()
PROMETHEUS_PORT = 9091
# Every part is asked each 15 s.
SCRAPED_TIMEOUT_S = 60.0
# Java begins, on all cores of a machine that may be busy.
SHELL_TIMEOUT_S = 90.0
# Prometheus listens a moment after its container has begun.
PATIENTLY = ("--retry", "10", "--retry-delay", "1", "--retry-connrefused")

# What the shell would be given: the session is its own.
READ = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
orders = spark.read.format("pulsar").options(**{
    "service.url": "pulsar://proxy:6650", "admin.url": "http://proxy:8080", "topic": "orders"
}).load()
print("read", sorted(int(bytes(each.value)) for each in orders.select("value").collect()))
"""
JOB = ("python", "-m", "pyspark_geminga.jobs.windowed_stats", "--batch", "--topic", "orders")
COUNT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("counted", spark.read.parquet("/spark/stats").selectExpr("sum(messages)").first()[0])
"""


@pytest.fixture
def asked_prometheus(engine: Engine, cluster: ComposedCluster) -> Any:
    """Asks the Prometheus of the profile, from the machine."""
    image = re.search(r"image: (prom/prometheus:\S+)", COMPOSE)
    assert image is not None
    engine.import_prometheus(image[1])
    cluster.up(PROMETHEUS_PORT=PROMETHEUS_PORT)
    cluster.compose("--profile", "monitoring", "up", "--detach", "--no-deps", "prometheus")

    def ask(path: str) -> Any:
        url = f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1/{path}"
        answer = json.loads(on_the_machine(engine, "curl", "-sS", *PATIENTLY, url))
        assert answer["status"] == "success", answer
        return answer["data"]

    return ask


def test_prometheus_has_every_metric_that_the_dashboards_ask_for(
    cluster: ComposedCluster, asked_prometheus: Any
) -> None:
    cluster.outside("send", "monitored", 10)
    cluster.outside("receive", "monitored", 10)
    asked = dict(expressions())

    def missing() -> set[str]:
        names = set(asked_prometheus("label/__name__/values"))
        return set[str]().union(*(missing_metrics(each, names) for each in asked.values()))

    def healths() -> dict[str, str]:
        targets = asked_prometheus("targets")["activeTargets"]
        return {
            target["labels"]["instance"].partition(":")[0]: target["health"] for target in targets
        }

    eventually(missing, set[str]().__eq__, SCRAPED_TIMEOUT_S)
    eventually(healths, dict.fromkeys(PARTS, "up").__eq__, SCRAPED_TIMEOUT_S)
    for each in asked.values():
        asked_prometheus(f"query?query={quote(each)}")  # fails where it is no expression

    def states() -> set[tuple[str, str]]:
        groups = asked_prometheus("rules")["groups"]
        return {(alert["health"], alert["state"]) for each in groups for alert in each["rules"]}

    eventually(states, {("ok", "inactive")}.__eq__, SCRAPED_TIMEOUT_S)


def test_spark_reads_what_clients_sent(engine: Engine, cluster: ComposedCluster) -> None:
    cluster.up()
    cluster.compose("build", "spark")  # an image that the engine kept would be taken as it is
    cluster.outside("send", "orders", 100)

    def spark(*words: str) -> str:
        return cluster.compose("run", "--rm", "-T", "spark", *words)

    assert f"read {list(range(100))}" in spark("python", "-c", READ)
    spark(*JOB, "--output", "/spark/stats")
    assert "counted 100" in spark("python", "-c", COUNT)  # the volume is kept between containers
    assert spark("id", "-u").split()[-1] == "10000"
    log.info(
        "Spark's image: %.1f MB unpacked", engine.inspect("image", "geminga-spark")["Size"] / 1e6
    )
