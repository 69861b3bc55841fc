"""Proves what docs/backup.md and docs/moving.md promise: a copy of the data is that cluster."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.part_process import running, wait_for_words

from geminga_cli.ports import ReservedPort

StartStandalone = Callable[..., StandaloneProcess]
TOPIC = "orders"
SUBSCRIPTION = "workers"
RECEIVE_TIMEOUT_MS = 60_000
# The supervisor's, of which a copy is of no use and which no tool can copy.
SOCKET = "control.sock"


def publish(service_url: str, numbers: range) -> None:
    with client_of(service_url) as client:
        producer = client.create_producer(TOPIC)
        for number in numbers:
            producer.send(b"%d" % number)


def receive(service_url: str, last: int) -> list[int]:
    """The messages up to ``last``, in order and acknowledged."""
    with client_of(service_url) as client:
        consumer = client.subscribe(
            TOPIC, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest
        )
        numbers: list[int] = []
        while last not in numbers:
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            numbers.append(int(message.data()))
            consumer.acknowledge(message)
        consumer.close()
        return numbers


@contextmanager
def paused(cluster: StandaloneProcess) -> Generator[None]:
    """Nothing of the cluster writes: its files are as those of a snapshot, or after a power cut."""
    pids = [part["pid"] for part in cluster.endpoints.values() if isinstance(part, dict)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def copy(data: Path, target: Path) -> None:
    shutil.copytree(data, target, ignore=shutil.ignore_patterns(SOCKET))


@pytest.mark.full
def test_a_snapshot_of_a_running_cluster_is_that_cluster_elsewhere(
    start_standalone: StartStandalone, tmp_path: Path
) -> None:
    cluster = start_standalone("--num-bookies", "3")
    publish(cluster.service_url, range(100))
    assert receive(cluster.service_url, 29) == list(range(30))
    with paused(cluster):
        copy(cluster.data_directory, tmp_path / "restored")
    publish(cluster.service_url, range(100, 110))
    assert receive(cluster.service_url, 109) == list(range(30, 110))
    cluster.stop()
    shutil.rmtree(cluster.data_directory)
    restored = start_standalone(data="restored")
    publish(restored.service_url, range(200, 210))
    received = receive(restored.service_url, 209)
    # An acknowledgement is durable a tenth of a second later: the copy may be older.
    assert received[0] <= 30
    assert received == [*range(received[0], 100), *range(200, 210)]


@pytest.mark.full
def test_the_data_of_a_standalone_is_that_of_single_parts_and_back(
    start_standalone: StartStandalone, tmp_path: Path
) -> None:
    cluster = start_standalone()
    publish(cluster.service_url, range(100))
    assert receive(cluster.service_url, 29) == list(range(30))
    cluster.stop()
    data = tmp_path / "moved"
    copy(cluster.data_directory, data)
    shutil.rmtree(cluster.data_directory)
    with ExitStack() as stack:
        ports = [stack.enter_context(ReservedPort("127.0.0.1", 0)).port for _ in range(2)]
        zookeeper, service_url = f"127.0.0.1:{ports[0]}", f"pulsar://127.0.0.1:{ports[1]}"
        parts = {
            "zookeeper": ("--port", str(ports[0]), "--metrics-port", "0"),
            "bookie": ("--zookeeper", zookeeper, "--port", "0", "--http-port", "0"),
            "broker": ("--zookeeper", zookeeper, "--port", str(ports[1]), "--web-port", "0"),
        }
        for part, options in parts.items():
            where = () if part == "broker" else ("--data-dir", str(data / part))
            process = stack.enter_context(running(part, *where, *options))
            wait_for_words(process, f"{part} serves")
        assert receive(service_url, 69) == list(range(30, 70))
        publish(service_url, range(100, 110))
    again = start_standalone(data="moved")
    assert receive(again.service_url, 109) == list(range(70, 110))
