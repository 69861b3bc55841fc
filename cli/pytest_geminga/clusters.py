"""Clusters for tests: one that is already running, or a standalone as a process of the test.

The process is used as a user would use it: by its command line, standard output, ``endpoints.json``
and signals.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

# What Python runs: the module, then its first arguments.
STANDALONE = ("geminga_cli", "standalone")
CLUSTER_UP = ("geminga_cli", "cluster", "up")
# Options of each of several clusters that run side by side.
SMALL = ("--brokers", "1", "--bookies", "1", "--proxies", "0")
# Switched off unless a test asks for it: most tests run no functions, and a functions worker takes
# as much memory as a broker.
FUNCTIONS_WORKER = "--functions-worker"
# Long enough for a busy machine. Tests that measure have limits of their own. A standalone takes
# some seconds when nothing else runs.
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
RESTART_TIMEOUT_S = 90.0
# Between two looks at ``endpoints.json``.
POLL_S = 0.02
# 0 is any free port; ``endpoints.json`` says which one it was.
FREE_PORTS = (
    *("--broker-port", "0", "--web-port", "0", "--bookie-port", "0", "--zookeeper-port", "0"),
)
# Where a broker serves REST unless it is told otherwise.
WEB_PORT = 8080
#     kazoo>=2.10; extra == "server"         group 1 is the name of the distribution
#
# A requirement of the extra ``server``, in the metadata of our distribution.
OF_SERVERS = re.compile(r"^([\w.-]+).*;.*extra *== *['\"]server['\"]")


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A cluster that was started before the tests, and keeps running after them."""

    # What Pulsar clients connect to, and REST.
    service_url: str
    web_url: str

    @classmethod
    def of(cls, service_url: str, web_url: str | None) -> Self:
        """The cluster at ``service_url``; without ``web_url``, its REST is on the first host."""
        # Any broker answers REST for the whole cluster. A service URL may name several hosts. IPv6
        # addresses need their brackets again.
        host = urlsplit(service_url.partition(",")[0]).hostname or ""
        shown = f"[{host}]" if ":" in host else host
        return cls(service_url, (web_url or f"http://{shown}:{WEB_PORT}").rstrip("/"))


@dataclass(slots=True)
class LocalCluster:
    """A cluster on this machine, which writes its addresses into its data directory."""

    data_directory: Path

    @property
    def endpoints(self) -> dict[str, Any]:
        """The content of ``endpoints.json`` now: it changes when a part is restarted."""
        # Read with each access: the supervisor writes the file anew, whole, when a part has other
        # ports.
        content: dict[str, Any] = json.loads((self.data_directory / "endpoints.json").read_text())
        return content

    @property
    def service_url(self) -> str:
        """The URL that Pulsar clients connect to."""
        return str(self.endpoints["service_url"])

    @property
    def web_url(self) -> str:
        """The URL of REST."""
        return str(self.endpoints["web_service_url"])


# A cluster that tests share: ``service_url`` is for Pulsar clients, ``web_url`` for REST.
Cluster = RunningCluster | LocalCluster


@dataclass(slots=True)
class GeoCluster(LocalCluster):
    """One of several clusters that replicate to each other."""

    name: str


def missing_distributions() -> list[str]:
    """The packages of ``geminga[server]`` that are not installed, in whatever version."""
    missing: list[str] = []
    # Versions are pip's business: a wrong one shows when the cluster starts.
    for requirement in sorted(metadata.requires("geminga") or ()):
        if (found := OF_SERVERS.match(requirement)) is not None:
            try:
                metadata.distribution(found[1])
            except metadata.PackageNotFoundError:
                missing.append(found[1])
    return missing


@cache
def lifeline() -> int:
    """The standard input of every cluster: a pipe whose other end only this process holds.

    The kernel closes that end when this process ends, even if it is killed. Each cluster then stops
    by itself.
    """
    # The other end is a plain number, which nothing closes before this process ends. ``os.pipe``
    # makes both ends non-inheritable, so no cluster holds the write end of its own lifeline.
    entrance, _ = os.pipe()
    return entrance


class StartFailed(AssertionError):
    """The cluster did not print READY; the message has the end of its log."""


@dataclass(slots=True)
class StandaloneProcess(LocalCluster):
    """A running supervisor, and with it a cluster."""

    process: subprocess.Popen[str]
    # The lines of its standard output so far.
    output: list[str] = field(default_factory=list[str])
    # How many seconds it took to print READY.
    ready_s: float = 0.0
    # Reads the output until its end, so that the process never blocks on a full pipe.
    _reader: threading.Thread | None = field(default=None, init=False, repr=False)

    @classmethod
    def start(
        cls,
        data_directory: Path,
        *arguments: str,
        module: Sequence[str] = STANDALONE,
        working_directory: Path | None = None,
        open_files: tuple[int, int] | None = None,
    ) -> Self:
        """Start a standalone on ``data_directory`` and wait for READY. Raises ``StartFailed``.

        Its ports are free ones, and it has no functions worker, unless ``arguments`` say otherwise.
        ``module``, with the first arguments behind it, is what Python runs; ``open_files`` are its
        soft and hard limit, by default those of the test. Its log is written beside the data.
        """
        if module == STANDALONE and FUNCTIONS_WORKER not in arguments:
            arguments = (f"--no-{FUNCTIONS_WORKER.removeprefix('--')}", *arguments)
        limit: Callable[[], None] | None = None
        if open_files is not None:
            limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, open_files)
        # Appended to: a cluster that is started again on its data goes on in the same log. Beside
        # the data, so that removing the data keeps the log.
        log = (data_directory.parent / f"{data_directory.name}.log").open("a")
        begun = time.monotonic()
        process = subprocess.Popen(  # noqa: S603 - our own words, and options of the test
            [
                *(sys.executable, "-m", *module, "--data-dir", str(data_directory)),
                *(*FREE_PORTS, "--stop-with-input", *arguments),
            ],
            stdin=lifeline(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=working_directory,
            # Ctrl-C reaches the tests alone, which stop the cluster in their own order. Without a
            # session of its own, the whole process group would get SIGINT at once.
            start_new_session=True,
            # Safe in a process with threads: it makes one system call.
            preexec_fn=limit,  # noqa: PLW1509
        )
        log.close()  # the process has its own
        started = cls(data_directory, process)
        try:
            started._wait_until_ready()
        except BaseException:
            # Also after Ctrl-C during the wait: no cluster stays without a test.
            started.kill()
            raise
        started.ready_s = time.monotonic() - begun
        return started

    def _wait_until_ready(self) -> None:
        is_ready = threading.Event()

        def read() -> None:
            assert self.process.stdout is not None
            with self.process.stdout as stream:
                for line in stream:
                    self.output.append(line.rstrip("\n"))
                    if line.startswith("READY "):
                        is_ready.set()
            # At the end of the output as well: a process that failed should not cost the timeout.
            # The event therefore does not say that it is ready; the lines do.
            is_ready.set()

        # A daemon: a cluster that does not end must not keep the tests from ending.
        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        is_ready.wait(START_TIMEOUT_S)
        if not any(line.startswith("READY ") for line in self.output):
            raise StartFailed(f"no READY; its log ends with:\n{self.log_tail()}")

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the log."""
        path = self.data_directory.parent / f"{self.data_directory.name}.log"
        return "\n".join(path.read_text().splitlines()[-lines:])

    # --- addresses and processes --------------------------------------------------------------

    @property
    def web_service_url(self) -> str:
        """The URL of REST, under its name in ``endpoints.json``."""
        return self.web_url

    def pid_of(self, part: str) -> int:
        """The process id of ``broker``, ``bookie`` or ``zookeeper``."""
        # Read anew each time: a part that was started again has another one.
        return int(self.endpoints[part]["pid"])

    def metrics_url(self, part: str) -> str:
        """The URL of the part's metrics."""
        return str(self.endpoints[part]["metrics"])

    # --- faults -------------------------------------------------------------------------------

    def kill_part(self, part: str) -> int:
        """SIGKILL a part, which the supervisor starts again; returns the process id that it had."""
        pid = self.pid_of(part)
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_restarted(self, part: str, old_pid: int, timeout_s: float = RESTART_TIMEOUT_S) -> None:
        """Wait until ``endpoints.json`` names a new process of the part."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                if self.pid_of(part) != old_pid:
                    return
            # ``KeyError`` while the part has no entry in the file.
            except (KeyError, FileNotFoundError):
                pass  # the part has not told its addresses yet
            time.sleep(POLL_S)
        raise AssertionError(f"{part} was not started again:\n{self.log_tail()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Stop the cluster; returns how many seconds that took. ``output`` is then complete."""
        begun = time.monotonic()
        # One that has ended by itself is only waited for.
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it did not stop:\n{self.log_tail()}") from None
        stopped_s = time.monotonic() - begun
        # The process may have ended before its last lines were read. The pipe keeps them: the
        # thread reads on until its end.
        assert self._reader is not None
        self._reader.join(STOP_TIMEOUT_S)
        return stopped_s

    def kill(self) -> None:
        """SIGKILL the supervisor."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)
