"""The client against a real Apache Pulsar: run by ``make test-compat``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apache_java.java import NotRun
from tests.compat.apache_pulsar import ApachePulsar, apache_pulsar

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
