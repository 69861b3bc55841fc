"""Clusters for tests: one that runs already, and ``geminga standalone`` as a process of the test,
started and watched the way a user would: command line, standard output, ``endpoints.json``,
signals.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

STANDALONE = ("geminga_cli", "standalone")
CLUSTER_UP = ("geminga_cli", "cluster", "up")
# Of each of several clusters that run side by side.
SMALL = ("--brokers", "1", "--bookies", "1", "--proxies", "0")
# Most tests run no functions, and a worker takes as much memory as a broker.
FUNCTIONS_WORKER = "--functions-worker"
# How long things may take on a machine that is busy with much else; tests that measure say so.
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
RESTART_TIMEOUT_S = 90.0
POLL_S = 0.02
FREE_PORTS = (
    *("--broker-port", "0", "--web-port", "0", "--bookie-port", "0", "--zookeeper-port", "0"),
)
WEB_PORT = 8080
# What the metadata of the distribution says of a package that servers need.
OF_SERVERS = re.compile(r"^([\w.-]+).*;.*extra *== *['\"]server['\"]")


class Cluster(Protocol):
    """A cluster that tests use."""

    @property
    def service_url(self) -> str:
        """Where Pulsar clients connect."""
        ...

    @property
    def web_url(self) -> str:
        """Where REST is answered."""
        ...


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A cluster that ran before the tests and goes on after them."""

    service_url: str
    web_url: str

    @classmethod
    def of(cls, service_url: str, web_url: str | None) -> Self:
        """The cluster at ``service_url``; REST is on its first host if ``web_url`` is not given."""
        host = urlsplit(service_url.partition(",")[0]).hostname or ""
        shown = f"[{host}]" if ":" in host else host
        return cls(service_url, (web_url or f"http://{shown}:{WEB_PORT}").rstrip("/"))


@dataclass(frozen=True, slots=True)
class GeoCluster:
    """One of several clusters that know each other."""

    name: str
    data_directory: Path

    @property
    def endpoints(self) -> dict[str, Any]:
        """The content of its ``endpoints.json`` now."""
        content: dict[str, Any] = json.loads((self.data_directory / "endpoints.json").read_text())
        return content

    @property
    def service_url(self) -> str:
        """Where Pulsar clients connect."""
        return str(self.endpoints["service_url"])

    @property
    def web_url(self) -> str:
        """Where REST is answered."""
        return str(self.endpoints["web_service_url"])


def missing_distributions() -> list[str]:
    """The packages of ``geminga[server]`` that are not installed."""
    return [
        found[1]
        for requirement in sorted(metadata.requires("geminga") or ())
        if (found := OF_SERVERS.match(requirement)) and not is_installed(found[1])
    ]


def is_installed(distribution: str) -> bool:
    """Whether it is, of whatever version."""
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


@cache
def lifeline() -> int:
    """What every cluster gets as its standard input: a pipe whose other end only we hold.

    The kernel closes that end when this process ends, also when it is killed. Then each cluster
    stops by itself.
    """
    entrance, _ = os.pipe()
    return entrance


class StartFailed(AssertionError):
    """The cluster did not say READY; the message has its last words."""


@dataclass(slots=True)
class StandaloneProcess:
    """One running supervisor. ``output`` are the lines of its standard output so far."""

    data_directory: Path
    process: subprocess.Popen[str]
    output: list[str] = field(default_factory=list[str])
    ready_s: float = 0.0
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
        """Start a standalone on ``data_directory``, free ports unless told, and wait for READY;
        with a functions worker only where that is among the ``arguments``.

        ``module``, with the first arguments behind it, is what Python runs; ``open_files`` are its
        soft and hard limit, those of the test where they are not given. Its log is beside the data.
        Raises ``StartFailed``.
        """

        def limit() -> None:
            if open_files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, open_files)

        if module == STANDALONE and FUNCTIONS_WORKER not in arguments:
            arguments = (f"--no-{FUNCTIONS_WORKER.removeprefix('--')}", *arguments)
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
            start_new_session=True,
            # Threads or not: it makes one system call.
            preexec_fn=limit,  # noqa: PLW1509
        )
        log.close()
        started = cls(data_directory, process)
        try:
            started._wait_until_ready()
        except BaseException:
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
            is_ready.set()

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        is_ready.wait(START_TIMEOUT_S)
        if not any(line.startswith("READY ") for line in self.output):
            raise StartFailed(f"no READY; its log ends with:\n{self.log_tail()}")

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of its log."""
        path = self.data_directory.parent / f"{self.data_directory.name}.log"
        return "\n".join(path.read_text().splitlines()[-lines:])

    # Where everything is

    @property
    def endpoints(self) -> dict[str, Any]:
        """The content of ``endpoints.json`` now."""
        content: dict[str, Any] = json.loads((self.data_directory / "endpoints.json").read_text())
        return content

    @property
    def service_url(self) -> str:
        """Where Pulsar clients connect."""
        return str(self.endpoints["service_url"])

    @property
    def web_url(self) -> str:
        """Where REST is answered."""
        return self.web_service_url

    @property
    def web_service_url(self) -> str:
        """The same, by its name in ``endpoints.json``."""
        return str(self.endpoints["web_service_url"])

    def pid_of(self, part: str) -> int:
        """The process id of ``broker``, ``bookie`` or ``zookeeper``."""
        return int(self.endpoints[part]["pid"])

    def metrics_url(self, part: str) -> str:
        """Where the part's metrics are."""
        return str(self.endpoints[part]["metrics"])

    # Doing it harm

    def kill_part(self, part: str) -> int:
        """SIGKILL a part; returns the process id it had. The supervisor starts it again."""
        pid = self.pid_of(part)
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_restarted(self, part: str, old_pid: int, timeout_s: float = RESTART_TIMEOUT_S) -> None:
        """Return when ``endpoints.json`` names a new process of the part."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                if self.pid_of(part) != old_pid:
                    return
            except (KeyError, FileNotFoundError):
                pass
            time.sleep(POLL_S)
        raise AssertionError(f"{part} was not started again:\n{self.log_tail()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Ask it to stop; returns the seconds that took. Then all its output is there."""
        begun = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it did not stop:\n{self.log_tail()}") from None
        stopped_s = time.monotonic() - begun
        assert self._reader is not None
        self._reader.join(STOP_TIMEOUT_S)
        return stopped_s

    def kill(self) -> None:
        """SIGKILL the supervisor."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def remove_data(self) -> None:
        """Remove what the cluster kept, after its end; its log stays."""
        shutil.rmtree(self.data_directory, ignore_errors=True)
