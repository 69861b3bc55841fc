"""Real clusters for tests: one that a session shares, and any number of others for tests that need
their own."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes.cluster_process import (
    STANDALONE,
    ClusterProcess,
    StandaloneProcess,
)
from tests.integration.processes.function_instances import Functions
from tests.project_files import ROOT
from tests.unit.geminga.certificates import Authority

import geminga
from pytest_geminga.clusters import Cluster

StartStandalone = Callable[..., StandaloneProcess]
StartCluster = Callable[..., ClusterProcess]


def pytest_configure() -> None:
    """Ctrl-C must reach what tests start: a shell lets its background jobs ignore it, and children
    inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs real processes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def standalone(geminga_standalone: Cluster) -> StandaloneProcess:
    """The plugin's cluster, one for each xdist worker. Tests share it and leave it running."""
    assert isinstance(geminga_standalone, StandaloneProcess), "these tests look at its processes"
    return geminga_standalone


@pytest.fixture
async def client(standalone: StandaloneProcess) -> AsyncIterator[geminga.Client]:
    """A client of ours, connected to the shared cluster."""
    async with geminga.connect(standalone.service_url) as opened:
        yield opened


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that issues certificates; all tests of a file trust it."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def tls_standalone(
    authority: Authority, start_standalone: StartStandalone, monkeypatch: pytest.MonkeyPatch
) -> StandaloneProcess:
    """A cluster whose broker has a certificate for its address but not for ``localhost``, and looks
    often whether the file has changed."""
    settings = {
        "PORT_TLS": "0",
        "WEB_PORT_TLS": "0",
        "TLS__CERTIFICATE_FILE": str(authority.issue("broker", "127.0.0.1")),
        "TLS__REFRESH_S": "0.1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"GEMINGA_BROKER_{name}", value)
    return start_standalone()


@pytest.fixture
def functions(standalone: StandaloneProcess, tmp_path: Path) -> Functions:
    """A function of the shared cluster, whose instances a test starts."""
    return Functions(standalone.service_url, standalone.web_service_url, tmp_path)


@pytest.fixture(scope="session")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster, one for each xdist worker, whose broker and bookie tests may kill. Each test
    leaves both running."""
    cluster = StandaloneProcess.start(tmp_path_factory.mktemp("harmed") / "data")
    yield cluster
    cluster.stop()


@pytest.fixture
def start_standalone(tmp_path: Path) -> Generator[StartStandalone, None, None]:
    """Starts clusters that a test may damage: ``start_standalone(*arguments, data=...)``."""
    started: list[StandaloneProcess] = []

    def start(
        *arguments: str,
        data: str = "data",
        module: Sequence[str] = STANDALONE,
        open_files: tuple[int, int] | None = None,
    ) -> StandaloneProcess:
        cluster = StandaloneProcess.start(
            tmp_path / data,
            *arguments,
            module=module,
            working_directory=ROOT,
            open_files=open_files,
        )
        started.append(cluster)
        return cluster

    yield start
    with ExitStack() as stopping:  # if one does not stop, the others are stopped all the same
        for cluster in started:
            if cluster.process.poll() is None:
                stopping.callback(cluster.stop)


@pytest.fixture
def start_cluster(tmp_path: Path) -> Generator[StartCluster, None, None]:
    """Starts clusters of several brokers that a test may damage: ``start_cluster(*options,
    brokers=2, bookies=1)``."""
    started: list[ClusterProcess] = []

    def start(*arguments: str, **parts: Any) -> ClusterProcess:
        cluster = ClusterProcess.up(tmp_path / "data", *arguments, **parts)
        started.append(cluster)
        return cluster

    yield start
    with ExitStack() as stopping:
        for cluster in started:
            if cluster.process.poll() is None:
                stopping.callback(cluster.stop)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[ClusterProcess]:
    """Three brokers, three bookies and a proxy, which the tests of a module share; each leaves all
    of them running."""
    running = ClusterProcess.up(tmp_path_factory.mktemp("cluster") / "data", "--no-sync", proxies=1)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def zookeeper_address(standalone: StandaloneProcess) -> str:
    """``host:port`` of the shared cluster's ZooKeeper."""
    return str(standalone.endpoints["zookeeper"]["address"])
