"""Proves that `geminga bookie-admin` sees a real cluster as it is, and finds what was done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import StartStandalone
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

MESSAGES = 30
WAIT_S = 200


def ended(*words: str) -> subprocess.CompletedProcess[str]:
    """The command, when it has ended."""
    return subprocess.run(
        [sys.executable, "-m", "geminga_cli", "bookie-admin", *words],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def admin(*words: str, code: int = 0) -> str:
    """What the command said; it must end with ``code``."""
    done = ended(*words)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def admin_json(cluster: StandaloneProcess, *words: str, code: int = 0) -> Any:
    data = str(cluster.data_directory)
    return json.loads(admin(*words, "--data-dir", data, "--json", code=code))


def publish(cluster: StandaloneProcess, topic: str) -> int:
    """Send some messages one at a time; the ledger they are in."""
    with client_of(cluster.service_url) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        ids = [producer.send(f"needle-{number}".encode()) for number in range(MESSAGES)]
    return int(ids[0].ledger_id())


def test_every_look_into_a_running_cluster(standalone: StandaloneProcess) -> None:
    ledger = str(publish(standalone, "bookie-admin-looks"))
    data = ("--data-dir", str(standalone.data_directory))
    (bookie,) = admin_json(standalone, "list-bookies")
    assert (bookie["mode"], bookie["address"]) == (
        "writable",
        standalone.endpoints["bookie"]["bookie"],
    )
    assert 0 < bookie["free"] < bookie["total"]
    assert ledger in admin("list-ledgers", "--bookie", bookie["bookie"], *data).split()
    metadata = admin_json(standalone, "ledger-metadata", ledger)
    assert metadata["allEnsembles"] == {"0": [{"id": bookie["bookie"]}]}
    told = admin("read-ledger", ledger, "--format", "text", "--first", "3", "--last", "4", *data)
    assert "needle-3" in told
    assert "needle-5" not in told
    told = admin("read-ledger", ledger, "--bookie", bookie["bookie"], "--first", "7", *data)
    assert told.startswith("entry 7  ")
    assert "copies are right" in admin("verify-ledger", ledger, *data)
    zookeeper = str(standalone.endpoints["zookeeper"]["address"])
    assert admin("list-under-replicated", "--zookeeper", zookeeper)
    # A cluster is ready before its auditor is elected.
    eventually(lambda: ended("who-is-auditor", *data).stdout.strip(), bookie["bookie"].__eq__)
    admin("verify-ledger", "999999", *data, code=2)


def test_what_is_mistyped_is_refused(standalone: StandaloneProcess) -> None:
    data = ("--data-dir", str(standalone.data_directory))
    for words in (
        ("recover", "nosuch"),
        ("decommission", "nosuch"),
        ("list-ledgers", "--bookie", "nosuch"),
        ("force-gc", "nosuch"),
        ("delete-cookie", "nosuch"),
    ):
        assert admin(*words, *data, code=2) == ""
    zookeeper = str(standalone.endpoints["zookeeper"]["address"])
    for _ in range(2):  # the first look makes nothing that the second would find
        admin("list-bookies", "--zookeeper", f"{zookeeper}/nothing/there", code=2)


def test_the_files_of_a_running_bookie_are_read(standalone: StandaloneProcess) -> None:
    ledger = str(publish(standalone, "bookie-admin-files"))
    directory = standalone.data_directory / "bookie"
    journals = sorted(map(str, (directory / "journal").glob("*.journal")))
    assert f"ledger {ledger}: " in admin("dump-journal", *journals, "--ledger", ledger)
    assert admin("dump-index", "--data-directory", str(directory))


def test_a_bookie_obeys(standalone: StandaloneProcess) -> None:
    (bookie,) = admin_json(standalone, "list-bookies")
    data = ("--data-dir", str(standalone.data_directory))
    assert "collects garbage" in admin("force-gc", bookie["bookie"], *data)
    assert "is read-only" in admin("set-readonly", bookie["bookie"], *data)
    try:
        state = rest(f"http://{bookie['http']}", "GET", "/api/v1/bookie/state")
        assert state == (200, state[1] | {"readOnly": True, "running": True})
    finally:
        assert "is writable" in admin("set-writable", bookie["bookie"], *data)


def test_http_answers_beside_the_metrics(standalone: StandaloneProcess) -> None:
    url = standalone.metrics_url("bookie").removesuffix("/metrics/")
    ledger = str(publish(standalone, "bookie-admin-http"))
    assert ledger in rest(url, "GET", "/api/v1/ledger/list")[1]
    status, entries = rest(url, "GET", f"/api/v1/ledger/read?ledger_id={ledger}&end_entry_id=1")
    assert (status, list(entries)) == (200, ["0", "1"])
    assert entries["1"].endswith("needle-1")
    assert rest(url, "GET", "/api/v1/bookie/sanity")[1] == {"passed": True, "readOnly": False}
    info = rest(url, "GET", "/api/v1/bookie/list_bookie_info")[1]
    assert list(info)[-1] == "ClusterInfo: "


def wait_until_in_entry_log(cluster: StandaloneProcess, part: str, needle: bytes) -> None:
    """A third copy may come after the receipt; then it is in memory, and in the journal."""
    address = cluster.endpoints[part]["bookie"]
    (bookie,) = (
        each["bookie"] for each in admin_json(cluster, "list-bookies") if each["address"] == address
    )
    entry_logs = cluster.data_directory / part / "ledgers"

    def is_there() -> bool:
        admin("force-gc", bookie, "--data-dir", str(cluster.data_directory))  # writes all first
        return any(needle in path.read_bytes() for path in entry_logs.glob("*.entries"))

    eventually(is_there, bool)


def flip_a_byte(directory: Path, needle: bytes) -> list[str]:
    """Damage the entry logs wherever they have ``needle``; their paths."""
    damaged: list[str] = []
    for path in directory.glob("*.entries"):
        content = path.read_bytes()
        if needle in content:
            path.write_bytes(content.replace(needle, needle[:-1] + b"?"))
            damaged.append(str(path))
    return damaged


@pytest.mark.full
def test_a_flipped_byte_is_found_and_named(start_standalone: StartStandalone) -> None:
    cluster = start_standalone("--num-bookies", "3")
    ledger = str(publish(cluster, "bookie-admin-damage"))
    wait_until_in_entry_log(cluster, "bookie-2", b"needle-7")
    cluster.stop()
    damaged = flip_a_byte(cluster.data_directory / "bookie-2" / "ledgers", b"needle-7")
    assert len(damaged) == 1
    told = admin("dump-entry-log", damaged[0], code=1)
    assert f"WRONG  block  ledger {ledger}: " in told
    shown = [
        json.loads(line)
        for line in admin("dump-entry-log", damaged[0], "--json", code=1).splitlines()
    ]
    (entry,) = (each for finding in shown for each in finding.get("damagedEntries", ()))
    content = Path(damaged[0]).read_bytes()
    assert entry["entry"] == 7
    assert b"needle-?" in content[entry["offset"] : entry["offset"] + entry["bytes"]]

    cluster = start_standalone()
    address = cluster.endpoints["bookie-2"]["bookie"]
    bookies = {each["address"]: each["bookie"] for each in admin_json(cluster, "list-bookies")}
    verdict = admin_json(cluster, "verify-ledger", ledger, code=1)
    (fault,) = verdict["faults"]
    assert (fault["bookie"], fault["state"]) == (bookies[address], "corrupt")
    assert fault["entries"] == [7]
    data = ("--data-dir", str(cluster.data_directory))
    told = admin("verify-ledger", ledger, *data, code=1)
    assert f"{bookies[address]}: entry 7 corrupt: " in told
    assert f"dump-entry-log --ledger {ledger} " in told
    assert "needle-7" in admin("read-ledger", ledger, "--format", "text", *data)
