"""Geminga's plugin for pytest: clusters, namespaces and clients as fixtures.

``clusters``    a running cluster, and ``geminga standalone`` as a process of the test
``namespaces``  namespaces for tests, over REST
``client``      the fixture that needs pytest-asyncio

pytest loads this module in every run where Geminga is installed, even if no test uses it. So it
imports nothing but pytest; the fixtures import what they need when a test asks for them. Nothing
here may import a server: clusters run as processes, as a user runs them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from pytest_geminga.clusters import Cluster, GeoCluster, StandaloneProcess
    from pytest_geminga.namespaces import Namespaces

# Tests need no protection from power cuts, and are faster without it.
THROW_AWAY = ("--no-sync",)


class StartCluster(Protocol):
    """The type of ``geminga_cluster``: starts a cluster and returns when it is ready."""

    def __call__(self, *arguments: str, bookies: int = 1) -> StandaloneProcess:
        """Start one; ``arguments`` come after ``geminga_args``, as options of the standalone."""
        ...


class StartGeo(Protocol):
    """The type of ``geminga_geo``: starts clusters that replicate to each other."""

    def __call__(self, count: int = 2) -> list[GeoCluster]:
        """Start them; returns when all are ready and replicate the topics of ``public/default``."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("geminga", "Geminga")
    group.addoption(
        "--geminga-url",
        metavar="URL",
        help="test with the running cluster at pulsar://HOST:PORT instead of starting one",
    )
    group.addoption(
        "--geminga-web-url",
        metavar="URL",
        help="the REST of that cluster (default: http://HOST:8080)",
    )
    parser.addini(
        "geminga_args",
        type="args",
        help="options of `geminga standalone` for the clusters that fixtures start",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Replace ``geminga_client`` by the real fixture if pytest-asyncio is in use."""
    # The name under which pytest-asyncio registers itself. The later registration of a fixture's
    # name wins, so the one below is hidden.
    if config.pluginmanager.has_plugin("asyncio"):
        config.pluginmanager.import_plugin("pytest_geminga.client")


@pytest.fixture(scope="session")
def geminga_standalone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster that tests share, and must not harm; it starts when a test first asks for it.

    Each worker of pytest-xdist has its own, on free ports. Its ``service_url`` is for clients, its
    ``web_url`` for REST. With ``--geminga-url`` it is a cluster that is already running.
    """
    from pytest_geminga.clusters import RunningCluster  # noqa: PLC0415 - as the module says

    service_url = request.config.getoption("--geminga-url")
    if service_url:
        yield RunningCluster.of(service_url, request.config.getoption("--geminga-web-url"))
        return
    # A directory within the new one: the log is written beside the data.
    cluster = _start(request, tmp_path_factory.mktemp("geminga_standalone") / "data")
    yield cluster
    _end(request, [cluster])


@pytest.fixture
def geminga_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartCluster]:
    """Starts clusters for this test alone, which may harm them: ``geminga_cluster(bookies=3)``.

    They end with the test.
    """
    started: list[StandaloneProcess] = []

    def start(*arguments: str, bookies: int = 1) -> StandaloneProcess:
        data = tmp_path / f"geminga_cluster_{len(started)}"
        cluster = _start(request, data, "--num-bookies", str(bookies), *arguments)
        # Only clusters that became ready: ``StandaloneProcess.start`` kills one that did not.
        started.append(cluster)
        return cluster

    yield start
    _end(request, started)


@pytest.fixture
def geminga_geo(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartGeo]:
    """Starts clusters for this test alone: ``one, two = geminga_geo(2)``.

    They replicate the topics of ``public/default`` to each other. Each is small (a ZooKeeper, a
    bookie, a broker). They end with the test.
    """
    started: list[StandaloneProcess] = []

    def start(count: int = 2) -> list[GeoCluster]:
        from pytest_geminga.clusters import CLUSTER_UP, SMALL, GeoCluster  # noqa: PLC0415
        from pytest_geminga.namespaces import replicate  # noqa: PLC0415 - as the module says

        data = tmp_path / f"geminga_geo_{len(started)}"
        names = [f"cluster-{number}" for number in range(1, count + 1)]
        # One supervisor runs all of them, each in a directory of its own name. So one process is
        # stopped at the end, and all clusters with it.
        words = ("--geo", ",".join(names), *SMALL)
        started.append(_start(request, data, *words, module=CLUSTER_UP))
        clusters = [GeoCluster(data / name, name) for name in names]
        replicate({each.name: each.web_url for each in clusters})
        return clusters

    yield start
    _end(request, started)


@pytest.fixture(scope="session")
def _geminga_namespaces(geminga_standalone: Cluster) -> Iterator[Namespaces]:  # pyright: ignore[reportUnusedFunction]
    from pytest_geminga.clusters import RunningCluster  # noqa: PLC0415 - as the module says
    from pytest_geminga.namespaces import Namespaces  # noqa: PLC0415 - as the module says

    # Where the cluster is ours, its data is removed at the end, with all namespaces.
    is_kept = isinstance(geminga_standalone, RunningCluster)
    with Namespaces(geminga_standalone.web_url, are_deleted=is_kept) as namespaces:
        yield namespaces


@pytest.fixture
def geminga_namespace(_geminga_namespaces: Namespaces) -> Iterator[str]:
    """The name of a new namespace for this test alone, ``public/test-…``.

    A topic in it is ``f"{geminga_namespace}/orders"``.
    """
    name = _geminga_namespaces.create()
    yield name
    # Deleted in the background, if at all: the next test does not wait for it.
    _geminga_namespaces.give_back(name)


@pytest.fixture
def geminga_client() -> None:
    """A client of the shared cluster, open until the test ends; needs pytest-asyncio."""
    # Only reached without pytest-asyncio: see ``pytest_configure``.
    pytest.fail("geminga_client needs pytest-asyncio: pip install pytest-asyncio", pytrace=False)


def _start(
    request: pytest.FixtureRequest, data: Path, *arguments: str, module: Sequence[str] = ()
) -> StandaloneProcess:
    """Start ``module``, by default ``geminga standalone``; fails the test if it cannot run here."""
    from pytest_geminga.clusters import (  # noqa: PLC0415 - as the module says
        STANDALONE,
        StandaloneProcess,
        missing_distributions,
    )

    missing = missing_distributions()
    if missing:
        pytest.fail(
            "this environment cannot run a cluster, it has no "
            f"{', '.join(missing)}: pip install 'geminga[standalone]', "
            "or name a running cluster with --geminga-url",
            pytrace=False,
        )
    # ``geminga_args`` are options of a standalone, which other modules may not have.
    given: list[str] = [] if module else request.config.getini("geminga_args")
    words = (*THROW_AWAY, *given, *arguments)
    return StandaloneProcess.start(data, *words, module=module or STANDALONE)


def _end(request: pytest.FixtureRequest, clusters: list[StandaloneProcess]) -> None:
    """Stop the clusters and remove their data, which is large; after a failed test it is kept."""
    # The first error is raised when all have been stopped.
    with ExitStack() as ending:  # a cluster that does not stop does not keep the others running
        for cluster in clusters:
            # Called in the reverse order: a cluster is stopped, and its data removed then.
            if not request.session.testsfailed:
                ending.callback(shutil.rmtree, cluster.data_directory, ignore_errors=True)
            ending.callback(cluster.stop)
