"""The client and Spark against a real Apache Pulsar: run by ``make test-compat``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apache_java.java import NotRun
from tests.compat.apache_pulsar import ApachePulsar, apache_pulsar, token
from tests.compat.clients import Broker

from pytest_geminga.clusters import Cluster

TIMEOUT_S = 600  # a JVM takes its time to start, and the first test waits for two


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a real Pulsar."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.compat)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePulsar]:
    """A real Pulsar; without one the test is skipped and says why."""
    try:
        with apache_pulsar(tmp_path_factory.mktemp("pulsar")) as running:
            yield running
    except NotRun as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def geminga_broker(geminga_standalone: Cluster) -> Broker:
    """Ours."""
    return Broker(geminga_standalone.service_url, geminga_standalone.web_url)


@pytest.fixture(scope="session")
def pulsar_broker(pulsar: ApachePulsar) -> Broker:
    """The real one."""
    return Broker(pulsar.service_url, pulsar.web_url, token("admin"))
