"""A ZooKeeper and some bookies, ours and Java's, as processes; no broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.bookkeeper.java_bookkeeper import JavaBookKeeper
from tests.integration.waiting import eventually

from geminga_cli.ports import ReservedPort
from geminga_ledger import LedgerConfig, Ledgers
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH
from geminga_runtime.clock import SystemClock
from geminga_runtime.network import AsyncioNetwork
from geminga_server.tls.config import BookieClientTlsConfig
from geminga_server.zookeeper.session import ZooKeeper

START_TIMEOUT_S = 120.0
READ_ONLY = "readonly"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What tests need to know: ZooKeeper's ``host:port``."""

    zookeeper: str

    async def bookies(self) -> list[str]:
        """The ids of the bookies that serve."""
        async with ZooKeeper(self.zookeeper, SystemClock()) as zookeeper:
            return sorted(set(await zookeeper.children(AVAILABLE_PATH)) - {READ_ONLY})

    @asynccontextmanager
    async def ledgers(
        self, config: LedgerConfig | None = None, tls: BookieClientTlsConfig | None = None
    ) -> AsyncGenerator[Ledgers, None]:
        """Our ledger client on this cluster; with ``tls`` it secures its connections."""
        make_tls = tls.context if tls else None
        clock = SystemClock()
        async with (
            ZooKeeper(self.zookeeper, clock) as zookeeper,
            Ledgers(zookeeper, AsyncioNetwork(), clock, Random(1), config, tls=make_tls) as ledgers,
        ):
            yield ledgers


@contextmanager
def running_cluster(
    directory: Path,
    java: JavaBookKeeper,
    *,
    ours: int,
    javas: int,
    settings: Mapping[str, str] | None = None,
) -> Generator[Cluster, None, None]:
    """A new cluster of so many bookies of ours and so many Java bookies, all of them serving; the
    Java ones have ``settings``."""
    with ExitStack() as stack:
        port = stack.enter_context(ReservedPort("127.0.0.1", 0)).port
        address = f"127.0.0.1:{port}"
        alone = ("--port", str(port), "--metrics-port", "0", "--no-sync")
        stack.enter_context(_part(directory, "zookeeper", *alone))
        _initialize(address)
        for number in range(ours):
            joined = ("--zookeeper", address, "--port", "0", "--http-port", "0")
            stack.enter_context(_part(directory, "bookie", *joined, name=f"ours-{number}"))
        for number in range(javas):
            stack.enter_context(java.bookie(address, f"java-{port}-{number}", settings))
        cluster = Cluster(address)
        _wait_for_bookies(cluster, ours + javas)
        yield cluster


@contextmanager
def _part(directory: Path, part: str, *options: str, name: str = "") -> Generator[None, None, None]:
    """``geminga zookeeper`` or ``geminga bookie``, stopped at the end."""
    name = name or part
    words = [part, "--data-directory", str(directory / name), *options]
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "geminga_cli", *words], stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _initialize(address: str) -> None:
    """The cluster's first records, as soon as ZooKeeper answers."""
    urls = (
        "--web-service-url",
        "http://127.0.0.1:1",
        "--broker-service-url",
        "pulsar://127.0.0.1:1",
    )
    words = ("initialize-cluster-metadata", "--cluster", "c1", "--metadata-store", f"zk:{address}")
    subprocess.run(
        [sys.executable, "-m", "geminga_cli", *words, *urls],
        check=True,
        capture_output=True,
        timeout=START_TIMEOUT_S,
    )


def _wait_for_bookies(cluster: Cluster, count: int) -> None:
    eventually(
        lambda: asyncio.run(cluster.bookies()), lambda found: len(found) == count, START_TIMEOUT_S
    )
