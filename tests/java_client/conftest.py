"""Pulsar's own Java client against ours: run by ``make test-java``."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from tests.apache_java.java import NotRun, compiled
from tests.apache_java.marking import mark_java
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.java_client.themes import JARS, PROGRAMS, Themes

from geminga_broker.managed_ledger.config import INDEX_INTERCEPTOR, TIME_INTERCEPTOR

# What a standalone does otherwise than by default: it tells clients time and index of entries, and
# measures its rates every second.
SETTINGS = {
    "GEMINGA_BROKER_BROKER_ENTRY_METADATA_INTERCEPTORS": f"{TIME_INTERCEPTOR},{INDEX_INTERCEPTOR}",
    "GEMINGA_BROKER_EXPOSING_BROKER_ENTRY_METADATA_TO_CLIENT_ENABLED": "true",
    "GEMINGA_BROKER_STATS_PERIOD_S": "1",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs Java; the first test of a theme waits for all of its scenarios."""
    mark_java(items, Path(__file__).parent)


@pytest.fixture(scope="session")
def themes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Themes, None, None]:
    """Runs what is chosen of a theme, on a cluster that all themes share; skips without Java."""
    directory = tmp_path_factory.mktemp("java-client")
    try:
        java = compiled(PROGRAMS, JARS, directory)
    except NotRun as reason:
        pytest.skip(str(reason))
    with pytest.MonkeyPatch.context() as environment:
        for name, value in SETTINGS.items():
            environment.setenv(name, value)
        cluster = StandaloneProcess.start(directory / "data")
    chosen = " ".join(item.name for item in request.session.items)
    yield Themes(java, cluster.data_directory / "endpoints.json", chosen)
    cluster.stop()
