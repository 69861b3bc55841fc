"""Bookies on their own, ours and Apache BookKeeper's, on a ZooKeeper of ours; no broker.

Each is the program that people run, with its own settings but for addresses, memory for entries
that are not written out yet (64 MiB for both), and garbage collection: the ledgers of these loads
are in no metadata, so it would delete them. Both sync their journal before they answer.
"""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import uvloop
from tests.performance.loads.bookie_client import HOST, EntryAddress, RequestRefused, read
from tests.performance.rivals.program import Program, running
from tests.performance.rivals.servers import PULSAR_MEMORY, WEB_TIMEOUT_S, Geminga, Ports, Pulsar

INITIALIZE_TIMEOUT_S = 60.0
READY_POLL_S = 0.005
WRITE_CACHE_MIB = 64
# As long as BookKeeper allows, whose bookies cannot do without; the loads are done by then.
GARBAGE_INTERVAL_MS = 3_600_000
# Both count syncs of the journal in a summary of this name.
SYNC_COUNT = re.compile(
    rb'^bookie_journal_JOURNAL_SYNC_count\{[^}]*success="true"[^}]*\} (\S+)', re.MULTILINE
)
# BookKeeper adds to what it shows every so often; ours at once.
METRICS_INTERVAL_S = 1


@dataclass(frozen=True, slots=True)
class RunningBookie:
    """A bookie that was started: where it is, and what it uses."""

    port: int
    metrics_port: int
    program: Program

    def cpu_s(self) -> float:
        """Seconds of CPU of its process."""
        return self.program.processes.cpu_s()

    def all_cpu_s(self) -> float:
        """The same."""
        return self.cpu_s()

    def syncs(self) -> float:
        """How often it synced a journal, as its metrics say."""
        url = f"http://{HOST}:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=WEB_TIMEOUT_S) as answer:
            return sum(float(count) for count in SYNC_COUNT.findall(answer.read()))

    def wait_until_answering(self) -> float:
        """Seconds since it was started until it answered a request, if only with a refusal.

        Listening is not enough: BookKeeper's bookies at first close every connection.
        """
        return self.program.wait_until(lambda: self._answers((0, 0)) is not None, READY_POLL_S)

    def wait_until_read(self, address: EntryAddress) -> float:
        """Seconds since it was started until it answered a read of an entry that it has."""
        return self.program.wait_until(lambda: self._answers(address) is True, READY_POLL_S)

    def _answers(self, address: EntryAddress) -> bool | None:
        """Whether it has the entry; None where it does not answer."""
        try:
            uvloop.run(read(self.port, [address]))
        except RequestRefused:
            return False
        except OSError:
            return None
        return True


class BookieKind(Protocol):
    """One kind of bookie."""

    def command(self, directory: Path, zookeeper: str, ports: Ports) -> list[str]:
        """Prepare ``directory`` and return what starts the bookie on it."""
        ...

    def environment(self, directory: Path) -> dict[str, str]:
        """Variables it needs beside ours."""
        ...


@dataclass(frozen=True, slots=True)
class OurBookie:
    """``geminga bookie``."""

    executable: Sequence[str]

    def command(self, directory: Path, zookeeper: str, ports: Ports) -> list[str]:
        """All of it below ``directory``."""
        return [
            *(*self.executable, "bookie"),
            *("--data-directory", str(directory / "data"), "--zookeeper", zookeeper),
            *("--port", str(ports.bookie), "--http-port", str(ports.web)),
            *("--write-cache-bytes-max", str(WRITE_CACHE_MIB << 20)),
            *("--gc-interval-s", "0", "--no-auto-recovery-enabled"),
        ]

    def environment(self, directory: Path) -> dict[str, str]:
        """None."""
        del directory
        return {}


@dataclass(frozen=True, slots=True)
class JavaBookie:
    """The bookie of the Apache Pulsar in ``home``, with that one's settings."""

    home: Path

    def command(self, directory: Path, zookeeper: str, ports: Ports) -> list[str]:
        """Write its configuration; returns what starts it."""
        text = (self.home / "conf" / "bookkeeper.conf").read_text()
        for key, value in self._settings(directory, zookeeper, ports).items():
            text = re.sub(rf"^{key}=.*\n", "", text, flags=re.MULTILINE) + f"\n{key}={value}\n"
        directory.mkdir(parents=True, exist_ok=True)
        self._configuration(directory).write_text(text)
        return [str(self.home / "bin" / "pulsar"), "bookie"]

    @staticmethod
    def _settings(directory: Path, zookeeper: str, ports: Ports) -> dict[str, object]:
        return {
            "metadataServiceUri": f"zk+hierarchical://{zookeeper}/ledgers",
            "bookiePort": ports.bookie,
            "advertisedAddress": HOST,
            "allowLoopback": "true",
            "journalDirectory": directory / "data" / "journal",
            "ledgerDirectories": directory / "data" / "ledgers",
            "autoRecoveryDaemonEnabled": "false",
            "gcWaitTime": GARBAGE_INTERVAL_MS,
            "dbStorage_writeCacheMaxSizeMb": WRITE_CACHE_MIB,
            "httpServerEnabled": "true",
            "httpServerPort": ports.web,
            "prometheusStatsLatencyRolloverSeconds": METRICS_INTERVAL_S,
        }

    @staticmethod
    def _configuration(directory: Path) -> Path:
        return directory / "bookkeeper.conf"

    def environment(self, directory: Path) -> dict[str, str]:
        """Where its settings are, how much memory it may take, where it logs."""
        return {
            "PULSAR_BOOKKEEPER_CONF": str(self._configuration(directory)),
            "BOOKIE_MEM": os.environ.get("BOOKIE_MEM", PULSAR_MEMORY),
            "PULSAR_LOG_DIR": str(directory / "logs"),
        }


def bookie_of(rival: Geminga | Pulsar) -> BookieKind:
    """The bookie that a rival's standalone has inside."""
    if isinstance(rival, Pulsar):
        return JavaBookie(rival.home)
    return OurBookie(rival.executable)


@contextmanager
def started_bookie(
    kind: BookieKind, directory: Path, zookeeper: str, ports: Ports
) -> Generator[RunningBookie]:
    """Start a bookie on ``directory`` without waiting for it; at the end it is gone.

    It can be started again on what it left there, with the ``ports`` it had.
    """
    command = kind.command(directory, zookeeper, ports)
    with running(command, directory, kind.environment(directory)) as program:
        yield RunningBookie(ports.bookie, ports.web, program)


@contextmanager
def started_zookeeper(executable: Sequence[str], directory: Path) -> Generator[str]:
    """A ZooKeeper with a cluster's first records; its ``host:port``."""
    port = Ports.free().web
    address = f"{HOST}:{port}"
    command = [
        *(*executable, "zookeeper", "--data-directory", str(directory / "data")),
        *("--port", str(port), "--metrics-port", "0"),
    ]
    with running(command, directory, {}):
        subprocess.run(
            [
                *(*executable, "initialize-cluster-metadata", "--cluster", "bench"),
                *("--metadata-store", f"zk:{address}"),
                *("--web-service-url", "http://127.0.0.1:1"),
                *("--broker-service-url", "pulsar://127.0.0.1:1"),
            ],
            check=True,
            capture_output=True,
            timeout=INITIALIZE_TIMEOUT_S,
        )
        yield address
