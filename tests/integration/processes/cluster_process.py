"""Real clusters as processes of a test: `geminga standalone` through the plugin that users have,
and `geminga cluster up` with several brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.integration.waiting import eventually

from geminga_cli.supervisor.operators import Operator
from geminga_runtime.clock import SystemClock
from pytest_geminga.clusters import (
    CLUSTER_UP,
    FREE_PORTS,
    STANDALONE,
    StandaloneProcess,
    StartFailed,
)

__all__ = [
    "CLUSTER_UP",
    "FREE_PORTS",
    "STANDALONE",
    "ClusterProcess",
    "StandaloneProcess",
    "StartFailed",
    "is_running",
    "listening_addresses",
]

READY = "ready"


class ClusterProcess(StandaloneProcess):
    """A running `geminga cluster up`, and an operator's commands to its parts."""

    @classmethod
    def up(
        cls,
        data_directory: Path,
        *arguments: str,
        brokers: int = 3,
        bookies: int = 3,
        proxies: int = 0,
        module: Sequence[str] = CLUSTER_UP,
    ) -> ClusterProcess:
        """Start a cluster on free ports and wait for READY.

        ``module`` is the Python module that is run instead of the command. Raises ``StartFailed``.
        """
        kinds = {"--brokers": brokers, "--bookies": bookies, "--proxies": proxies}
        numbers = [word for kind, number in kinds.items() for word in (kind, str(number))]
        return cls.start(data_directory, *numbers, *arguments, module=module)

    @property
    def brokers(self) -> list[str]:
        """The brokers that run now, by name."""
        return [name for name in self.endpoints if name.partition("-")[0] == "broker"]

    @property
    def proxies_url(self) -> str:
        """A service URL with every proxy."""
        names = [name for name in self.endpoints if name.partition("-")[0] == "proxy"]
        hosts = (urlsplit(self.url_of(name)).netloc for name in names)
        return f"pulsar://{','.join(hosts)}"

    def url_of(self, part: str) -> str:
        """The service URL of a broker or proxy."""
        return str(self.endpoints[part]["pulsar"])

    def web_url_of(self, part: str) -> str:
        """The URL of its REST."""
        return str(self.endpoints[part]["web"])

    def broker_at(self, url: str) -> str:
        """The name of the broker with that URL, of either protocol."""
        (name,) = (each for each in self.brokers if url in self.endpoints[each].values())
        return name

    @property
    def operator(self) -> Operator:
        """The client of the supervisor's control socket."""
        return Operator(self.data_directory, SystemClock())

    def status(self) -> dict[str, dict[str, Any]]:
        """The supervisor's report of each part."""
        return asyncio.run(self.operator.status())

    def take_down(self, part: str) -> None:
        """Kill a part, and have the supervisor leave it down."""
        asyncio.run(self.operator.kill(part, keep_down=True))
        eventually(lambda: self.status()[part]["state"], "down".__eq__)

    def pause(self, part: str) -> None:
        """Pause a part (SIGSTOP); the supervisor does not take it for one that hangs."""
        asyncio.run(self.operator.pause(part))

    def resume(self, part: str) -> None:
        """Resume a paused part, or start one that is down; return when it is ready."""
        asyncio.run(self.operator.resume(part))
        eventually(lambda: self.status()[part]["state"], READY.__eq__)

    def add(self, kind: str) -> str:
        """Start one more part; return its name when it is ready."""
        return str(asyncio.run(self.operator.add(kind))["part"])


def is_running(pid: int) -> bool:
    """Whether the process with this id exists and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def listening_addresses(pid: int) -> set[str]:
    """The addresses on which a process accepts connections, from the kernel's tables."""
    own: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the process has closed it meanwhile
            own.add(link.readlink().name)
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.add(fields[1].partition(":")[0])
    return found
