"""Starting and stopping what is measured: our standalone, and a real Apache Pulsar beside it.

Both run on loopback, on free ports, with their data in a directory of their own, and sync their
journal before they acknowledge. The directory should be on a real disk: in memory a sync is free.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.performance.processes import ProcessTree

START_S_MAX = 120.0
STOP_S_MAX = 40.0
POLL_S = 0.01
WEB_TIMEOUT_S = 5.0
OUTPUT_NAME = "output.log"
OUTPUT_SHOWN_CHARACTERS = 3000


class ServerFailed(Exception):
    """A server ended, or did not do in time what it was to do; with the end of what it printed."""

    def __init__(self, what: str, output: Path) -> None:
        end = output.read_text(errors="replace")[-OUTPUT_SHOWN_CHARACTERS:]
        super().__init__(f"{what}. The end of its output:\n{end}")


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a server listens, all on 127.0.0.1."""

    broker: int
    web: int
    bookie: int

    @staticmethod
    def free() -> Ports:
        """Ports nobody listens on now."""
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
    process: subprocess.Popen[bytes]
    processes: ProcessTree
    output: Path
    started_at_s: float  # of time.perf_counter

    def web(self, method: str, path: str) -> tuple[int, bytes]:
        """Status and body of one REST request; (0, b"") where nobody answers."""
        request = urllib.request.Request(self.web_url + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WEB_TIMEOUT_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()
        except OSError:
            return 0, b""

    def check_alive(self) -> None:
        """Raise ``ServerFailed`` if the process ended."""
        if self.process.poll() is not None:
            raise ServerFailed(f"it ended with status {self.process.returncode}", self.output)

    def stop(self) -> float:
        """Ask it to stop as Ctrl-C or an init system would; returns the seconds it took."""
        begun = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"it did not stop in {STOP_S_MAX:.0f} s", self.output) from None
        return time.perf_counter() - begun


class Rival(Protocol):
    """One kind of server."""

    @property
    def name(self) -> str:
        """Its name in the table."""
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


@dataclass(frozen=True, slots=True)
class Magnetar:
    """Our standalone: ZooKeeper, bookie and broker under one supervisor."""

    executable: Sequence[str]
    name: str = "Magnetar"

    def command(self, directory: Path, ports: Ports) -> list[str]:
        """All of it on ``directory``; ZooKeeper takes any port."""
        return [
            *self.executable,
            "standalone",
            f"--data-dir={directory / 'data'}",
            f"--broker-port={ports.broker}",
            f"--web-port={ports.web}",
            f"--bookie-port={ports.bookie}",
            "--zookeeper-port=0",
        ]

    def environment(self, directory: Path) -> dict[str, str]:
        """None."""
        del directory
        return {}

    def is_ready(self, server: Server) -> bool:
        """It prints a line that begins with READY."""
        return re.search(rb"^READY ", server.output.read_bytes(), re.MULTILINE) is not None


@dataclass(frozen=True, slots=True)
class Pulsar:
    """Apache Pulsar's standalone, without functions worker and stream storage.

    ``home`` is an unpacked binary distribution. Its own configuration is kept but for addresses,
    and for the journal: the stock standalone does not sync it, a cluster's bookies do.
    """

    home: Path
    name: str = "Pulsar"

    def command(self, directory: Path, ports: Ports) -> list[str]:
        """Write its configuration; returns what starts it."""
        configuration = directory / "standalone.conf"
        configuration.write_text(self._configuration(ports))
        return [
            str(self.home / "bin" / "pulsar"),
            *("standalone", "-nfw", "-nss", "-a", "127.0.0.1", "-c", str(configuration)),
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
        ):
            text = re.sub(rf"^{key}=.*\n", "", text, flags=re.MULTILINE) + f"\n{key}={value}\n"
        return text

    def environment(self, directory: Path) -> dict[str, str]:
        """How much memory it may take, which otherwise depends on the machine; where it logs."""
        return {
            "PULSAR_MEM": os.environ.get(
                "PULSAR_MEM", "-Xms512m -Xmx2g -XX:MaxDirectMemorySize=2g"
            ),
            "PULSAR_STANDALONE_CONF": str(directory / "standalone.conf"),
            "PULSAR_LOG_DIR": str(directory / "logs"),
        }

    def is_ready(self, server: Server) -> bool:
        """It creates the default namespace last."""
        return b"public/default" in server.web("GET", "/admin/v2/namespaces/public")[1]


@contextmanager
def started(rival: Rival, directory: Path) -> Generator[Server]:
    """Start ``rival`` on the new ``directory`` without waiting for it; at the end it is gone."""
    directory.mkdir(parents=True)
    ports = Ports.free()
    command = rival.command(directory, ports)
    output = directory / OUTPUT_NAME
    with output.open("wb") as stream:
        begun = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=os.environ | rival.environment(directory),
            start_new_session=True,
        )
    server = Server(
        service_url=f"pulsar://127.0.0.1:{ports.broker}",
        web_url=f"http://127.0.0.1:{ports.web}",
        process=process,
        processes=ProcessTree(process.pid),
        output=output,
        started_at_s=begun,
    )
    try:
        yield server
        if process.poll() is None:
            server.stop()
    finally:
        _end(server)


def _end(server: Server) -> None:
    """Leave nothing running, whatever happened."""
    left = server.processes.pids() if server.process.poll() is None else []
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it followed its parent
    server.process.wait()


def wait_until_ready(rival: Rival, server: Server) -> float:
    """Wait until ``rival`` says that it serves; returns the seconds since it was started."""
    deadline = server.started_at_s + START_S_MAX
    while not rival.is_ready(server):
        server.check_alive()
        if time.perf_counter() > deadline:
            raise ServerFailed(f"it was not ready in {START_S_MAX:.0f} s", server.output)
        time.sleep(POLL_S)
    return time.perf_counter() - server.started_at_s
