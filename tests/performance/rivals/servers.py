"""Starting and stopping what is measured: our standalone, and a real Apache Pulsar beside it.

Both run on loopback, on free ports, with their data in a directory of their own, and sync their
journal before they acknowledge. The directory should be on a real disk: in memory a sync is free.
"""

from __future__ import annotations

import json
import os
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tests.performance.rivals.processes import process_cpu_s
from tests.performance.rivals.program import Program, running

WEB_TIMEOUT_S = 5.0
PULSAR_MEMORY = "-Xms512m -Xmx2g -XX:MaxDirectMemorySize=2g"


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a server listens, all on 127.0.0.1."""

    broker: int
    web: int
    bookie: int

    @staticmethod
    def free() -> Ports:
        """Ports that no process listens on now."""
        sockets = [socket.socket() for _ in range(3)]
        try:
            for each in sockets:
                each.bind(("127.0.0.1", 0))
            return Ports(*(int(each.getsockname()[1]) for each in sockets))
        finally:
            for each in sockets:
                each.close()


@dataclass(frozen=True, slots=True)
class Server:
    """A server that was started: where it is, and which processes it is made of."""

    service_url: str
    web_url: str
    program: Program
    # Its bookies' processes, where they have processes of their own.
    bookie_pids: Callable[[], Sequence[int]]
    # The process that serves topics; None where it does everything.
    broker_pid: Callable[[], int | None] = lambda: None

    def cpu_s(self) -> float:
        """Seconds of CPU of all processes; of several bookies one counts, the mean.

        They all do the same work on machines of their own, were this not a benchmark.
        """
        bookies = [process_cpu_s(pid) for pid in self.bookie_pids()]
        others_share = sum(bookies) * (1 - 1 / len(bookies)) if bookies else 0.0
        return self.all_cpu_s() - others_share

    def all_cpu_s(self) -> float:
        """Seconds of CPU of all processes, every bookie's included."""
        return self.program.processes.cpu_s()

    def web(
        self, method: str, path: str, body: object = None, *, timeout_s: float = WEB_TIMEOUT_S
    ) -> tuple[int, bytes]:
        """Status and body of one REST request; (0, b"") where no server answers."""
        request = urllib.request.Request(
            self.web_url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={} if body is None else {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()
        except OSError:
            return 0, b""

    def metric(self, name: str) -> float | None:
        """The sum of a metric's values on the broker's page; None where it is not there."""
        page = self.web("GET", "/metrics")[1].decode()
        values = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)", page, re.MULTILINE)
        return sum(map(float, values)) if values else None


class Rival(Protocol):
    """One kind of server."""

    @property
    def name(self) -> str:
        """Its name in the table."""
        ...

    def of_cluster(self, name: str) -> Rival:
        """The same as a cluster of that name, which replicates all that a topic has."""
        ...

    def command(self, directory: Path, ports: Ports) -> list[str]:
        """Prepare ``directory`` and return what starts the server on it."""
        ...

    def environment(self, directory: Path) -> dict[str, str]:
        """Variables it needs beside ours."""
        ...

    def is_ready(self, server: Server) -> bool:
        """Whether it says of itself that it serves."""
        ...

    def bookie_pids(self, directory: Path) -> Sequence[int]:
        """Its bookies' processes, where they have processes of their own."""
        ...

    def broker_pid(self, directory: Path) -> int | None:
        """The process that serves topics; None where it does everything."""
        ...


@dataclass(frozen=True, slots=True)
class Geminga:
    """Our standalone: ZooKeeper, bookies and broker under one supervisor.

    With three bookies each entry is stored by all of them, and acknowledged when two have it.
    """

    executable: Sequence[str]
    bookies: int = 1
    name: str = "Geminga"
    # None for a cluster that is alone.
    cluster: str | None = None

    def of_cluster(self, name: str) -> Geminga:
        """The same as a cluster of that name, which replicates all that a topic has."""
        return replace(self, cluster=name)

    def command(self, directory: Path, ports: Ports) -> list[str]:
        """All of it on ``directory``; ZooKeeper takes any port."""
        return [
            *self.executable,
            "standalone",
            f"--data-dir={directory / 'data'}",
            f"--broker-port={ports.broker}",
            f"--web-port={ports.web}",
            f"--bookie-port={ports.bookie}",
            f"--num-bookies={self.bookies}",
            "--zookeeper-port=0",
            *([] if self.cluster is None else [f"--cluster={self.cluster}"]),
        ]

    def environment(self, directory: Path) -> dict[str, str]:
        """That of a cluster that is not alone."""
        del directory
        return {} if self.cluster is None else {"GEMINGA_BROKER_REPLICATION__START_AT": "earliest"}

    def is_ready(self, server: Server) -> bool:
        """It prints a line that begins with READY."""
        output = server.program.output.read_bytes()
        return re.search(rb"^READY ", output, re.MULTILINE) is not None

    def bookie_pids(self, directory: Path) -> Sequence[int]:
        """As the supervisor's file says."""
        parts = self._parts(directory)
        return [part["pid"] for name, part in parts.items() if name.startswith("bookie")]

    def broker_pid(self, directory: Path) -> int | None:
        """The same; None while there is none."""
        broker = self._parts(directory).get("broker")
        return None if broker is None else broker["pid"]

    @staticmethod
    def _parts(directory: Path) -> dict[str, Any]:
        parts: dict[str, Any] = json.loads((directory / "data" / "endpoints.json").read_text())
        return parts


@dataclass(frozen=True, slots=True)
class Pulsar:
    """Apache Pulsar's standalone, without functions worker and stream storage.

    ``home`` is an unpacked binary distribution. Its own configuration is kept but for addresses,
    and for the journal: the stock standalone does not sync it, a cluster's bookies do.
    """

    home: Path
    name: str = "Pulsar"
    cluster: str | None = None

    def of_cluster(self, name: str) -> Pulsar:
        """The same as a cluster of that name, which replicates all that a topic has."""
        return replace(self, cluster=name)

    def command(self, directory: Path, ports: Ports) -> list[str]:
        """Write its configuration; returns what starts it."""
        configuration = directory / "standalone.conf"
        configuration.write_text(self._configuration(ports))
        return [
            str(self.home / "bin" / "pulsar"),
            *("standalone", "-nfw", "-nss", "-a", "127.0.0.1", "-c", str(configuration)),
            # Without it, what an earlier run left in the distribution's own folder would make this
            # one take ZooKeeper for its metadata, at a port that may be taken.
            *("--zookeeper-dir", str(directory / "zookeeper")),
            *("--metadata-dir", str(directory / "metadata")),
            *("--bookkeeper-dir", str(directory / "bookkeeper")),
            *("--bookkeeper-port", str(ports.bookie)),
        ]

    def _configuration(self, ports: Ports) -> str:
        text = (self.home / "conf" / "standalone.conf").read_text()
        for key, value in (
            ("brokerServicePort", ports.broker),
            ("webServicePort", ports.web),
            ("bindAddress", "127.0.0.1"),
            ("advertisedAddress", "127.0.0.1"),
            ("journalSyncData", "true"),
            ("listeningInterface", "lo"),
            ("allowLoopback", "true"),
            ("httpServerEnabled", "false"),
            *(
                []
                if self.cluster is None
                else [("clusterName", self.cluster), ("replicationStartAt", "earliest")]
            ),
        ):
            text = re.sub(rf"^{key}=.*\n", "", text, flags=re.MULTILINE) + f"\n{key}={value}\n"
        return text

    def environment(self, directory: Path) -> dict[str, str]:
        """How much memory it may take, which otherwise depends on the machine; where it logs."""
        return {
            "PULSAR_MEM": os.environ.get("PULSAR_MEM", PULSAR_MEMORY),
            "PULSAR_STANDALONE_CONF": str(directory / "standalone.conf"),
            "PULSAR_LOG_DIR": str(directory / "logs"),
        }

    def is_ready(self, server: Server) -> bool:
        """It creates the default namespace last."""
        return b"public/default" in server.web("GET", "/admin/v2/namespaces/public")[1]

    def bookie_pids(self, directory: Path) -> Sequence[int]:
        """Its one bookie is a part of its one process."""
        del directory
        return ()

    def broker_pid(self, directory: Path) -> int | None:
        """So is its broker."""
        del directory
        return None


@contextmanager
def started(rival: Rival, directory: Path, ports: Ports | None = None) -> Generator[Server]:
    """Start ``rival`` on ``directory`` without waiting for it; at the end it is gone.

    It can be started again on what it left there, with the ``ports`` it had.
    """
    directory.mkdir(parents=True, exist_ok=True)
    ports = ports or Ports.free()
    command = rival.command(directory, ports)
    with running(command, directory, rival.environment(directory)) as program:
        yield Server(
            service_url=f"pulsar://127.0.0.1:{ports.broker}",
            web_url=f"http://127.0.0.1:{ports.web}",
            program=program,
            bookie_pids=lambda: rival.bookie_pids(directory),
            broker_pid=lambda: rival.broker_pid(directory),
        )


def wait_until_ready(rival: Rival, server: Server) -> float:
    """Wait until ``rival`` says that it serves; returns the seconds since it was started."""
    return server.program.wait_until(lambda: rival.is_ready(server))
