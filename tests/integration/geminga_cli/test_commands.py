"""Proves the commands that run one part, or prepare a cluster, each as its own process."""

from __future__ import annotations

import socket
import subprocess
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.integration.processes.cluster_process import FREE_PORTS, StandaloneProcess
from tests.integration.processes.part_process import command, running, wait_for_words

from geminga_cli.ports import ReservedPort

WAIT_S = 200
# Kept for documents: no machine has it.
OTHER_MACHINE = "192.0.2.1"


@pytest.fixture
def lonely_zookeeper(tmp_path: Path) -> Generator[tuple[str, str], None, None]:
    """A ZooKeeper that is empty: its address, and that of its metrics."""
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


def refused(*words: str) -> str:
    """What a command says, in one line, that cannot run like this."""
    ended = run(*words)
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    # Which limit a machine sets on open files is not ours to say.
    (said,) = [line for line in ended.stderr.splitlines() if "limit on open files" not in line]
    return said


@pytest.fixture
def zookeeper_ports() -> Generator[tuple[str, ...], None, None]:
    """Options that give a ZooKeeper ports of its own."""
    with ReservedPort("127.0.0.1", 0) as reserved:
        yield ("--port", str(reserved.port), "--metrics-port", "0")


def test_a_second_zookeeper_on_the_same_data_is_refused_and_told_whose_it_is(
    zookeeper_ports: tuple[str, ...], tmp_path: Path
) -> None:
    words = ("zookeeper", "--data-directory", str(tmp_path), *zookeeper_ports)
    with running(*words) as first:
        wait_for_words(first, "zookeeper serves")
        assert f"the data in {tmp_path} is in use by process {first.pid}" in refused(*words)


def test_a_zookeeper_on_the_data_of_a_standalone_is_refused(
    standalone: StandaloneProcess, zookeeper_ports: tuple[str, ...]
) -> None:
    data = str(standalone.data_directory / "zookeeper")
    said = refused("zookeeper", "--data-directory", data, *zookeeper_ports)
    assert f"in use by process {standalone.process.pid}" in said


def test_a_standalone_on_the_data_of_a_zookeeper_is_refused(
    zookeeper_ports: tuple[str, ...], tmp_path: Path
) -> None:
    data = str(tmp_path / "zookeeper")
    with running("zookeeper", "--data-directory", data, *zookeeper_ports) as first:
        wait_for_words(first, "zookeeper serves")
        said = refused("standalone", "--data-dir", str(tmp_path), *FREE_PORTS)
        assert f"the data in {data} is in use by process {first.pid}" in said


def test_a_second_bookie_on_the_same_data_is_refused_and_told_whose_it_is(
    standalone: StandaloneProcess, zookeeper_address: str
) -> None:
    data = str(standalone.data_directory / "bookie")
    ports = ("--zookeeper", zookeeper_address, "--port", "0", "--http-port", "0")
    said = refused("bookie", "--data-directory", data, *ports)
    assert f"in use by process {standalone.pid_of('bookie')}" in said


@pytest.mark.parametrize("option", ["--port", "--metrics-port"])
def test_a_zookeeper_whose_port_is_taken_says_so_and_starts_no_java(
    zookeeper_ports: tuple[str, ...], tmp_path: Path, option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        words = ("--data-directory", str(tmp_path), *zookeeper_ports, option, taken)
        said = refused("zookeeper", *words)
    assert f"cannot listen on 127.0.0.1:{taken} (it is in use)" in said
    assert f"choose another with {option}" in said
    assert not (tmp_path / "zoo.cfg").exists()


@pytest.mark.parametrize("name", ["file", "file/below", "loop"])
@pytest.mark.parametrize("command", ["standalone", "zookeeper", "bookie"])
def test_an_unusable_data_directory_is_one_line(tmp_path: Path, command: str, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    option = "--data-dir" if command == "standalone" else "--data-directory"
    said = refused(command, option, str(tmp_path / name))
    assert f"the directory {tmp_path / name}" in said
    assert "cannot be used" in said


# Each part with all that would do but for where it listens. None has a ZooKeeper: it must be said
# before anything else is waited for.
PARTS = {
    "broker": ("--port", "0", "--web-port", "0"),
    "bookie": ("--port", "0", "--http-port", "0"),
    "autorecovery": ("--http-port", "0"),
    "zookeeper": ("--port", "2181", "--metrics-port", "0"),
    "standalone": FREE_PORTS,
}
KEEPS_DATA = {
    "bookie": "--data-directory",
    "zookeeper": "--data-directory",
    "standalone": "--data-dir",
}


@pytest.mark.parametrize("part", PARTS)
def test_an_address_of_another_machine_is_told_apart_from_ones_own(
    part: str, tmp_path: Path
) -> None:
    data = (KEEPS_DATA[part], str(tmp_path)) if part in KEEPS_DATA else ()
    said = refused(part, *data, *PARTS[part], "--bind-address", OTHER_MACHINE)
    assert f"cannot listen on {OTHER_MACHINE}:" in said
    assert "this machine has no such address" in said
    assert "--bind-address" in said


@pytest.mark.parametrize(
    ("part", "option"),
    [
        ("broker", "--port"),
        ("broker", "--web-port"),
        ("bookie", "--port"),
        ("bookie", "--http-port"),
        ("autorecovery", "--http-port"),
    ],
)
def test_a_part_whose_port_is_taken_says_so_before_anything_else(
    part: str, option: str, tmp_path: Path
) -> None:
    data = (KEEPS_DATA[part], str(tmp_path)) if part in KEEPS_DATA else ()
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        said = refused(part, *data, *PARTS[part], option, taken)
    assert f"cannot listen on 127.0.0.1:{taken}: the port is in use" in said


def test_a_broker_checks_the_addresses_of_its_other_listeners_too() -> None:
    listeners = (
        *("--advertised-listeners", "external:pulsar://broker.example.org:6650"),
        *("--bind-addresses", f"external:pulsar://{OTHER_MACHINE}:6650"),
    )
    said = refused("broker", *PARTS["broker"], *listeners)
    assert f"cannot listen on {OTHER_MACHINE}:6650" in said
