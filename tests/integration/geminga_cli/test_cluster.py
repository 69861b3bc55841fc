"""Proves what `geminga cluster` promises, as it is typed: it starts, says where, shows and changes
its parts, stops, and runs on the data of a standalone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import (
    ClusterProcess,
    StandaloneProcess,
    is_running,
)

PARTS = ["zookeeper", "bookie", "broker", "broker-2", "proxy"]
RECEIVE_TIMEOUT_MS = 60_000

Start = Callable[..., ClusterProcess]


def typed(cluster: StandaloneProcess, *words: str) -> tuple[int, str]:
    """The exit code of `geminga cluster ...`, and all that it prints."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "geminga_cli", "cluster", *words),
            *("--data-dir", str(cluster.data_directory)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.full
def test_a_cluster_on_the_data_of_a_standalone(
    start_standalone: Callable[..., StandaloneProcess], start_cluster: Start
) -> None:
    """Messages that the one stored, the other serves; and back."""
    one = start_standalone("--no-sync")
    with client_of(one.service_url) as client:
        client.subscribe("grown", "sub").close()
        client.create_producer("grown").send(b"of one")
    one.stop()
    many = start_cluster("--no-sync", brokers=2, bookies=1, proxies=1)
    assert many.output[0] == f"READY {many.url_of('proxy')} {many.web_url_of('proxy')}"
    assert [name for name in PARTS if name in many.endpoints] == PARTS
    with client_of(many.service_url) as client:
        consumer = client.subscribe("grown", "sub")
        assert consumer.receive(RECEIVE_TIMEOUT_MS).data() == b"of one"
        client.create_producer("grown").send(b"of many")
    pids = [many.pid_of(part) for part in PARTS]
    assert typed(many, "down") == (0, "")
    assert not any(map(is_running, pids))
    assert not (many.data_directory / "endpoints.json").exists()
    with client_of(start_standalone("--no-sync").service_url) as client:
        reader = client.create_reader("grown", pulsar.MessageId.earliest)
        assert reader.read_next(RECEIVE_TIMEOUT_MS).data() == b"of one"
        assert reader.read_next(RECEIVE_TIMEOUT_MS).data() == b"of many"


def test_parts_are_shown_killed_paused_resumed_and_added(start_cluster: Start) -> None:
    cluster = start_cluster("--no-sync", brokers=2, bookies=1)
    code, shown = typed(cluster, "status")
    assert code == 0
    assert [line.split()[0] for line in shown.splitlines()[1:]] == PARTS[:4]
    before = cluster.pid_of("broker-2")
    assert typed(cluster, "kill", "broker-2") == (0, "")
    cluster.wait_restarted("broker-2", before)
    assert typed(cluster, "kill", "broker-2", "--keep-down") == (0, "")
    assert typed(cluster, "pause", "broker") == (0, "")
    code, shown = typed(cluster, "status", "--json")
    states = {name: part["state"] for name, part in json.loads(shown).items()}
    assert (code, states["broker"], states["broker-2"]) == (1, "paused", "down")
    assert "broker-2" not in cluster.endpoints
    assert typed(cluster, "resume", "broker") == (0, "")
    assert typed(cluster, "resume", "broker-2") == (0, "")
    code, shown = typed(cluster, "add", "proxy", "--json")
    assert (code, json.loads(shown)["state"]) == (0, "ready")
    assert cluster.url_of("proxy") == json.loads(shown)["addresses"]["pulsar"]
    code, shown = typed(cluster, "logs", "proxy")
    assert "proxy serves" in shown
    assert Path(cluster.data_directory / "logs" / "proxy.log").stat().st_size > 0
    code, shown = typed(cluster, "pause", "nobody")
    assert (code, "there is no part 'nobody'" in shown) == (2, True)


def test_a_supervisor_that_is_killed_takes_all_brokers_along_and_they_come_back_at_once(
    start_cluster: Start,
) -> None:
    first = start_cluster("--no-sync", brokers=2, bookies=1)
    with client_of(first.url_of("broker-2")) as client:
        client.subscribe("kept", "sub").close()
        client.create_producer("kept").send(b"before")
    pids = [first.pid_of(part) for part in PARTS[:4]]
    os.killpg(first.process.pid, 9)
    first.process.wait(10)
    again = start_cluster("--no-sync", brokers=2, bookies=1)
    assert not any(map(is_running, pids))
    with client_of(again.url_of("broker")) as client:
        consumer = client.subscribe("kept", "sub")
        assert consumer.receive(RECEIVE_TIMEOUT_MS).data() == b"before"
