"""Proves what the options of `geminga standalone` do to a real cluster."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.integration.processes.cluster_process import (
    FREE_PORTS,
    StandaloneProcess,
    listening_addresses,
)
from tests.integration.waiting import eventually

from geminga_cli.supervisor.console import Tools, next_steps

StartStandalone = Callable[..., StandaloneProcess]
PARTS = ("zookeeper", "bookie", "broker")
PYTHON_PARTS = ("supervisor", "bookie", "broker")
# 127.0.0.1, as the kernel writes it in its tables of IPv4 and IPv6.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
# The supervisor alone, in MB of proportional memory: 18 measured.
SUPERVISOR_PSS_MB_MAX = 30.0


def refused(*arguments: str) -> str:
    """What a standalone that cannot start says."""
    ended = subprocess.run(
        [sys.executable, "-m", "geminga_cli", "standalone", *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    return ended.stderr


def log_of(cluster: StandaloneProcess) -> str:
    return cluster.log_tail(1000)


def test_everything_listens_on_this_machine_only(standalone: StandaloneProcess) -> None:
    for part in (*PARTS, "supervisor"):
        assert listening_addresses(standalone.pid_of(part)) <= LOOPBACK


def test_every_python_part_runs_on_uvloop(standalone: StandaloneProcess) -> None:
    """Each asserts it at its start; here, that none found a way around."""
    for part in PYTHON_PARTS:
        assert "/uvloop/loop." in Path(f"/proc/{standalone.pid_of(part)}/maps").read_text()


def test_the_supervisor_stays_small(standalone: StandaloneProcess) -> None:
    rollup = Path(f"/proc/{standalone.pid_of('supervisor')}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found is not None
    assert int(found[1]) / 1024 < SUPERVISOR_PSS_MB_MAX


def test_the_file_and_the_line_after_ready_name_the_same_addresses(
    standalone: StandaloneProcess,
) -> None:
    (line,) = eventually(
        lambda: [line for line in standalone.output if line.startswith("zookeeper.")], bool
    )
    told = dict(word.split("=", 1) for word in line.split())
    assert told == {
        f"{part}.{purpose}": address
        for part in PARTS
        for purpose, address in standalone.endpoints[part].items()
        if purpose != "pid"
    }


@pytest.mark.parametrize("has_official_client", [True, False])
@pytest.mark.parametrize("has_curl", [True, False])
def test_what_is_printed_to_be_tried_works_word_for_word_without_python_on_the_path(
    standalone: StandaloneProcess, *, has_official_client: bool, has_curl: bool
) -> None:
    if has_curl and shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    tools = replace(Tools.at_hand(), has_official_client=has_official_client, has_curl=has_curl)
    words = next_steps(standalone.service_url, standalone.web_service_url, tools)
    commands = words.partition("\n\n")[2].rpartition("\n\n")[0]
    path = str(Path(shutil.which("curl") or "/").parent) if has_curl else "/nowhere"
    ended = subprocess.run(
        ["/bin/sh", "-e", "-c", commands],
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["msgInCounter"] >= 1


@dataclass(frozen=True, slots=True)
class QuietLife:
    """What a cluster with ``--quiet`` left when it had been stopped, and what a service manager was
    told by it."""

    cluster: StandaloneProcess
    urls: str
    notices: list[str]


@pytest.fixture(scope="module")
def quiet_life(tmp_path_factory: pytest.TempPathFactory) -> QuietLife:
    """One start and stop that several tests look at."""
    directory = tmp_path_factory.mktemp("quiet")
    notices: list[str] = []
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        pytest.MonkeyPatch.context() as environment,
    ):
        manager.bind(str(directory / "notify"))
        environment.setenv("NOTIFY_SOCKET", str(directory / "notify"))
        cluster = StandaloneProcess.start(directory / "data", "--quiet")
        urls = f"{cluster.service_url} {cluster.web_service_url}"
        cluster.stop()
        manager.settimeout(0)
        with suppress(BlockingIOError):
            while True:
                notices.append(manager.recv(4096).decode())
    return QuietLife(cluster, urls, notices)


def test_a_quiet_start_says_ready_the_addresses_and_nothing_else(quiet_life: QuietLife) -> None:
    cluster = quiet_life.cluster
    assert [line.split()[0] for line in cluster.output[:1]] == ["READY"]
    assert len(cluster.output) == 2
    # Which limit a machine sets is not ours to say.
    lines = [line for line in log_of(cluster).splitlines() if "limit on open files" not in line]
    assert lines == []


def test_a_clean_stop_takes_the_endpoints_back(quiet_life: QuietLife) -> None:
    directory = quiet_life.cluster.data_directory
    assert not (directory / "endpoints.json").exists()
    assert not (directory / "control.sock").exists()


def test_a_service_manager_is_told_when_everything_answers_and_by_one_process(
    quiet_life: QuietLife,
) -> None:
    assert quiet_life.notices == [f"READY=1\nSTATUS={quiet_life.urls}"]


def test_no_sync_says_loudly_what_it_means_however_quiet_the_start_is(
    start_standalone: StartStandalone,
) -> None:
    cluster = start_standalone("--no-sync", "--quiet")
    assert "LOSES ACKNOWLEDGED MESSAGES" in log_of(cluster)


def test_with_json_logs_everything_is_one_object_a_line(
    start_standalone: StartStandalone,
) -> None:
    cluster = start_standalone("--json-logs", "--no-sync")
    cluster.kill_part("bookie")
    cluster.stop()
    events = [json.loads(line) for line in log_of(cluster).splitlines()]
    assert {event["part"] for event in events} >= {"bookie", "broker"}
    warnings = {event["part"]: event["event"] for event in events if "sync" in event["event"]}
    assert "LOSES ACKNOWLEDGED MESSAGES" in warnings["supervisor"]
    assert "power cut loses acknowledged entries" in warnings["bookie"]


def test_the_users_own_zookeeper_is_used(
    standalone: StandaloneProcess, start_standalone: StartStandalone, zookeeper_address: str
) -> None:
    cluster = start_standalone("--quiet", "--zookeeper", f"{zookeeper_address}/own")
    assert cluster.endpoints["zookeeper"] == {"address": f"{zookeeper_address}/own"}
    assert not (cluster.data_directory / "zookeeper").exists()
    assert cluster.service_url != standalone.service_url


def test_a_port_that_is_taken_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        said = refused("--data-dir", str(tmp_path), *FREE_PORTS, "--web-port", port)
    assert f"cannot listen on 127.0.0.1:{port} (it is in use)" in said
    assert "--web-port" in said
    assert not (tmp_path / "zookeeper").exists()


def test_a_part_that_cannot_start_ends_everything_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "bookie").mkdir()
    (tmp_path / "bookie" / "journal").write_text("a file where a directory should be")
    said = refused("--data-dir", str(tmp_path), *FREE_PORTS)
    assert "bookie did not start" in said


@pytest.mark.parametrize("words", [["--web-port", "x"], ["--datadir", "x"]])
def test_a_wrong_option_is_told_with_the_usage(words: list[str]) -> None:
    assert "usage: geminga standalone" in refused(*words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--web-port", "70000"), "--web-port = 70000"),
        (("--web-port", "6650"), "--broker-port and --web-port are both 6650"),
    ],
)
def test_a_value_that_cannot_be_is_one_line(
    tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    said = refused("--data-dir", str(tmp_path), *words)
    assert reason in said
    assert len(said.splitlines()) == 1


def test_a_file_reaches_every_part_and_a_mistake_in_it_ends_the_start(
    start_standalone: StartStandalone, tmp_path: Path
) -> None:
    file = tmp_path / "geminga.toml"
    file.write_text("[standalone]\nquiet = true\n[zookeeper]\nheap_max_mib = 77\n")
    cluster = start_standalone("--config", str(file))
    command = Path(f"/proc/{cluster.pid_of('zookeeper')}/cmdline").read_text().split("\0")
    assert "-Xmx77m" in command
    cluster.stop()
    # Not before: the lines behind READY may be still to come when the first one is read.
    assert len(cluster.output) == 2, "quiet is the standalone's"
    file.write_text("[broker]\ncach_bytes_max = 1\n")
    data = ("--data-dir", str(cluster.data_directory))
    said = refused("--config", str(file), *data, *FREE_PORTS)
    assert "[broker] cach_bytes_max = 1: no such setting; cache_bytes_max?" in said
    assert "broker did not start" in said
