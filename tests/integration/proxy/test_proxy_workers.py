"""A proxy of several processes: they share its ports, and the proxy replaces one that dies."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import urllib.request
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.part_process import command
from tests.integration.processes.proxy_process import END_S, ProxyProcess, proxy_of
from tests.integration.waiting import eventually

from geminga_server.run import ExitCode

TOPIC = "persistent://public/default/workers"
CLIENTS = 16


def test_workers_share_the_ports_and_one_that_dies_is_replaced(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    zookeeper = str(standalone.endpoints["zookeeper"]["address"])
    with (
        proxy_of(tmp_path / "log", "--zookeeper", zookeeper, "--workers", "2") as proxy,
        ExitStack() as stack,
    ):
        workers = workers_of(proxy)
        assert len(workers) == 2
        clients = [stack.enter_context(client_of(proxy.service_url)) for _ in range(CLIENTS)]
        producers = [each.create_producer(TOPIC) for each in clients]
        # The kernel chooses by the ports of both ends: that one worker gets all happens once in 2
        # ** 15.
        carrying = eventually(
            lambda: by_worker(proxy, "geminga_proxy_splices"),
            lambda found: sum(found.values()) == CLIENTS,
        )
        assert all(carrying[name] for name in ("1", "2"))
        assert by_worker(proxy, "geminga_proxy_worker_cpu_seconds_total").keys() == {"1", "2"}
        os.kill(workers[0], signal.SIGKILL)
        for producer in producers:
            producer.send(b"carried by the other worker, or by the next one")
        now = eventually(lambda: workers_of(proxy), lambda found: len(found) == 2)
        assert workers[0] not in now
        assert workers[1] in now


def test_workers_end_with_their_parent_however_it_ends(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    zookeeper = str(standalone.endpoints["zookeeper"]["address"])
    for number in (signal.SIGTERM, signal.SIGKILL):
        log = tmp_path / number.name
        with proxy_of(log, "--zookeeper", zookeeper, "--workers", "2") as proxy:
            workers = workers_of(proxy)
            proxy.process.send_signal(number)
            proxy.process.wait()
            eventually(
                partial(living, workers),
                lambda alive: not alive,
            )


@pytest.mark.parametrize("setting", ["--port", "--web-port"])
def test_workers_whose_port_is_taken_do_not_start(setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{number}: the port is in use" in refused(
            setting, str(number)
        )


def test_workers_whose_certificate_cannot_be_used_do_not_start(tmp_path: Path) -> None:
    certificate = tmp_path / "bad.pem"
    certificate.write_text("no certificate")
    files = "--tls-certificate-file", str(certificate), "--tls-key-file", str(certificate)
    ports = "--port-tls", "0", "--web-port-tls", "0"
    assert f"certificate_file {certificate}" in refused(*files, *ports)


def refused(*options: str) -> str:
    """What a proxy of two workers prints if it cannot start.

    None of its processes is left: all share the pipe that is read to its end here.
    """
    brokers = "--broker-service-url", "pulsar://127.0.0.1:1"
    words = command("proxy", "--port", "0", "--web-port", "0", "--workers", "2", *brokers, *options)
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=END_S)
    assert ended.returncode == ExitCode.REFUSED
    assert "proxy serves" not in ended.stderr
    return ended.stderr


def workers_of(proxy: ProxyProcess) -> list[int]:
    """The processes that the proxy has started and that have not ended."""
    pid = proxy.process.pid
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def by_worker(proxy: ProxyProcess, name: str) -> dict[str, float]:
    """A metric's value at each worker that serves."""
    with urllib.request.urlopen(proxy.metrics_url) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{name}{{worker="(\d+)"}} (.*)$', text, re.MULTILINE)
    return {worker: float(value) for worker, value in found}
