"""Proves that a real cluster shows every metric that the dashboards and alerts ask for."""

from __future__ import annotations

import re
import urllib.request

import pulsar
from tests.integration.processes.cluster_process import ClusterProcess
from tests.monitoring_files import RECORDED, expressions, missing_metrics

USAGE = re.compile("bookie_ledger_dir_.+_usage")  # the rest is the directory's path


def test_a_cluster_shows_what_was_recorded_and_what_the_dashboards_ask_for(
    cluster: ClusterProcess,
) -> None:
    client = pulsar.Client(cluster.proxies_url)
    try:
        consumer = client.subscribe("monitored", "readers")
        client.create_producer("monitored").send(b"one")
        consumer.acknowledge(consumer.receive(timeout_millis=30_000))
        shown = names_by_part(cluster)
    finally:
        client.close()
    for part, recorded in RECORDED.items():
        assert {name for name in recorded if not USAGE.fullmatch(name)} - shown[part] == set()
    every = set().union(*shown.values())
    lacking = {where: missing_metrics(each, every) for where, each in expressions()}
    assert {where: missing for where, missing in lacking.items() if missing} == {}


def names_by_part(cluster: ClusterProcess) -> dict[str, set[str]]:
    """What is on the pages of all parts of a kind, by the kind."""
    shown: dict[str, set[str]] = {part: set() for part in RECORDED}
    for name, where in cluster.endpoints.items():
        if isinstance(where, dict) and "metrics" in where:
            page = urllib.request.urlopen(where["metrics"], timeout=30).read().decode()
            shown[name.partition("-")[0]] |= set(re.findall(r"^(\w+)[{ ]", page, re.MULTILINE))
    return shown
