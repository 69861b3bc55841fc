"""Proves docs/moving.md's way to Apache Pulsar: its broker, then its bookies, take over."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest
from tests.apache_java.marking import pulsar_home_or_skip
from tests.apache_java.pulsar_broker import HOST, START_TIMEOUT_S, pulsar_broker
from tests.bookkeeper.java_bookkeeper import JavaBookKeeper
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.part_process import command, running, wait_for_words
from tests.integration.waiting import eventually

from geminga_cli.ports import ReservedPort

TOPIC = "orders"
RECEIVE_TIMEOUT_MS = 120_000
# Nothing else comes: so long is waited for what should not.
SILENCE_MS = 3_000


def publish(service_url: str, numbers: range) -> None:
    with client_of(service_url) as client:
        producer = client.create_producer(TOPIC)
        for number in numbers:
            producer.send(b"%d" % number)


def receive(
    service_url: str, subscription: str, count: int, is_acknowledged: Callable[[int], bool]
) -> list[int]:
    """The next messages of a Shared subscription; those of some numbers are acknowledged."""
    with client_of(service_url) as client:
        consumer = client.subscribe(
            TOPIC,
            subscription,
            pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        numbers: list[int] = []
        for _ in range(count):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            numbers.append(int(message.data()))
            if is_acknowledged(numbers[-1]):
                consumer.acknowledge(message)
        with pytest.raises(pulsar.Timeout):
            consumer.receive(SILENCE_MS)
        consumer.close()
        return numbers


def bookie_admin(zookeeper: str, *words: str) -> str:
    """What a bookie-admin command prints; fails unless it succeeds."""
    ended = subprocess.run(
        command("bookie-admin", *words, "--zookeeper", zookeeper),
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=True,
    )
    return ended.stdout


def test_apaches_broker_serves_what_ours_kept_and_apaches_bookie_takes_it_over(
    java: JavaBookKeeper, tmp_path: Path
) -> None:
    home = pulsar_home_or_skip()
    cluster = StandaloneProcess.start(tmp_path / "data")
    publish(cluster.service_url, range(100))
    receive(cluster.service_url, "workers", 100, lambda number: number % 2 == 0)
    cluster.stop()
    with ExitStack() as stack:
        held = [stack.enter_context(ReservedPort(HOST, 0)).port for _ in range(3)]
        zookeeper, service_url = f"{HOST}:{held[0]}", f"pulsar://{HOST}:{held[1]}"
        data = tmp_path / "data"
        own_ports = ("--port", str(held[0]), "--metrics-port", "0")
        alone = running("zookeeper", "--data-dir", str(data / "zookeeper"), *own_ports)
        wait_for_words(stack.enter_context(alone), "zookeeper serves")
        options = ("--zookeeper", zookeeper, "--port", "0", "--http-port", "0")
        with running("bookie", "--data-dir", str(data / "bookie"), *options) as bookie:
            wait_for_words(bookie, "bookie serves")
            (ours,) = bookies(zookeeper)
            stack.enter_context(pulsar_broker(home, tmp_path, zookeeper, held[1:]))
            odd = [*range(1, 100, 2)]
            assert receive(service_url, "workers", 50, lambda _: False) == odd
            publish(service_url, range(100, 110))

            stack.enter_context(java.bookie(zookeeper, "java"))
            eventually(lambda: len(bookies(zookeeper)), (2).__eq__, START_TIMEOUT_S)
            bookie_admin(zookeeper, "set-readonly", ours)
            unload = urllib.request.Request(
                f"http://{HOST}:{held[2]}/admin/v2/namespaces/public/default/unload", method="PUT"
            )
            urllib.request.urlopen(unload, timeout=60).close()
            bookie_admin(zookeeper, "recover", ours, "--force")
        bookie_admin(zookeeper, "decommission", ours)
        assert len(bookies(zookeeper) - {ours}) == 1
        assert receive(service_url, "workers", 60, lambda _: True) == [*odd, *range(100, 110)]
        publish(service_url, range(110, 120))
        assert receive(service_url, "workers", 10, lambda _: True) == [*range(110, 120)]


def bookies(zookeeper: str) -> set[str]:
    """Those that are registered."""
    lines = bookie_admin(zookeeper, "list-bookies").splitlines()[1:]
    return {line.split()[0] for line in lines if line}
