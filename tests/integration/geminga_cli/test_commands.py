"""Proves the commands that run one part, or prepare a cluster, each as its own process."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from geminga_cli.ports import ReservedPort

WAIT_S = 60


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "geminga_cli", *words]


@contextmanager
def running(*words: str) -> Generator[subprocess.Popen[str], None, None]:
    """A command that serves; ended and waited for at the end."""
    with subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for_words(process: subprocess.Popen[str], words: str) -> None:
    """Read its log up to the line with ``words``."""
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return
    raise AssertionError("".join(lines))


@pytest.fixture
def lonely_zookeeper(tmp_path: Path) -> Generator[tuple[str, str], None, None]:
    """A ZooKeeper that nobody has written to: its address, and that of its metrics."""
    with ReservedPort("127.0.0.1", 0) as port, ReservedPort("127.0.0.1", 0) as metrics:
        options = ("--port", str(port.port), "--metrics-port", str(metrics.port))
        data = str(tmp_path / "lonely")
        with running("zookeeper", "--data-directory", data, *options, "--no-sync") as server:
            wait_for_words(server, "zookeeper serves")
            yield f"127.0.0.1:{port.port}", f"http://127.0.0.1:{metrics.port}/metrics/"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def test_a_broker_on_an_empty_zookeeper_says_what_is_missing_and_stops(
    lonely_zookeeper: tuple[str, str],
) -> None:
    ended = run(
        *("broker", "--zookeeper", lonely_zookeeper[0], "--port", "0", "--web-port", "0"),
    )
    assert ended.returncode == 2
    assert "geminga initialize-cluster-metadata" in ended.stderr


def test_initialising_twice_is_harmless_and_a_cluster_of_single_parts_works(
    lonely_zookeeper: tuple[str, str], tmp_path: Path
) -> None:
    address, metrics = lonely_zookeeper
    urls = (
        *("--web-service-url", "http://localhost:8080"),
        *("--broker-service-url", "pulsar://localhost:6650"),
    )
    for _ in range(2):
        ended = run("initialize-cluster-metadata", "-c", "c1", "-md", f"zk:{address}", *urls)
        assert (ended.returncode, ended.stderr) == (0, "")
    configuration = tmp_path / "bookie.toml"
    configuration.write_text(f"[bookie]\nzookeeper = '{address}'\nport = 0\nhttp_port = 0\n")
    data = str(tmp_path / "bookie")
    bookie_options = ("--config", str(configuration), "--data-directory", data)
    broker_options = ("--zookeeper", address, "--cluster", "c1", "--port", "0", "--web-port", "0")
    with running("bookie", *bookie_options) as bookie:
        wait_for_words(bookie, "bookie serves")
        with running("broker", *broker_options) as broker:
            wait_for_words(broker, "broker serves")
            with urllib.request.urlopen(metrics, timeout=10) as page:
                assert b"# TYPE num_alive_connections gauge\nnum_alive_connections" in page.read()


def test_a_zookeeper_whose_java_cannot_run_says_where_to_look(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "version-2").mkdir(parents=True)
    (data / "version-2" / "snapshot.0").write_bytes(b"no snapshot at all")
    (data / "version-2" / "log.1").write_bytes(b"no log at all")
    with ReservedPort("127.0.0.1", 0) as port:
        options = ("--port", str(port.port), "--metrics-port", "0")
        ended = run("zookeeper", "--data-directory", str(data), *options)
    assert ended.returncode == 2
    assert str(data / "zookeeper.log") in ended.stderr


def test_setting_up_again_does_nothing_and_says_nothing() -> None:
    ended = run("setup", "--check")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
