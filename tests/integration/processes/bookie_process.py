"""Parts that run beside those of a standalone, and that no supervisor starts again; and
`bookie-admin`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.waiting import eventually

COMMAND_TIMEOUT_S = 200.0
STOP_TIMEOUT_S = 60.0
LOG_LINES = 30


@dataclass(slots=True)
class PartProcess:
    """One running part; ``log`` is where its log goes."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    def wait_for(self, words: str) -> str:
        """Wait for a line of its log with these words, and return it."""

        def lines() -> list[str]:
            assert self.process.poll() is None, self.log.read_text()
            return [line for line in self.log.read_text().splitlines() if words in line]

        return eventually(lines, bool)[0]

    def kill(self) -> None:
        """Kill it with SIGKILL; nothing starts it again."""
        self.process.kill()
        self.process.wait()


@contextmanager
def part_process(
    cluster: StandaloneProcess, part: str, name: str, *options: str
) -> Generator[PartProcess]:
    """A part on the cluster's ZooKeeper, with its files beside the cluster's."""
    log = cluster.data_directory.parent / f"{name}.log"
    words = ("--zookeeper", zookeeper_of(cluster), "--http-port", "0", *options)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "geminga_cli", part, *words], stderr=stream
        )
    running = PartProcess(name, log, process)
    try:
        yield running
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)
    finally:  # it ends whatever has failed
        running.kill()


@contextmanager
def bookie_process(cluster: StandaloneProcess, name: str, *options: str) -> Generator[PartProcess]:
    """A bookie named ``name`` that serves, with a short session."""
    more = (
        *("--data-directory", str(cluster.data_directory.parent / name), "--bookie-id", name),
        *("--port", "0", "--zookeeper-session-timeout-s", "4"),
    )
    with part_process(cluster, "bookie", name, *more, *options) as part:
        part.wait_for("bookie serves")
        yield part


def zookeeper_of(cluster: StandaloneProcess) -> str:
    """``host:port`` of the cluster's ZooKeeper."""
    return str(cluster.endpoints["zookeeper"]["address"])


def bookie_admin(cluster: StandaloneProcess, *words: str) -> str:
    """The output of a `geminga bookie-admin` command, which must succeed."""
    data = ("--data-dir", str(cluster.data_directory))
    done = subprocess.run(
        [sys.executable, "-m", "geminga_cli", "bookie-admin", *words, *data],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
