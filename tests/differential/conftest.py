"""The one Geminga that all scenarios talk to, all at once: most of each is waiting for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, cast

import pytest
from tests.differential.comparison import difference
from tests.differential.scenario import Scenario, run_all, run_patiently
from tests.differential.transcript import Line
from tests.differential.world import prepare, warm_up
from tests.integration.processes.cluster_process import StandaloneProcess


@pytest.fixture(scope="session")
def geminga(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess, None, None]:
    """A standalone with the tenant that scenarios live under."""
    with pytest.MonkeyPatch.context() as environment:
        # As the recorded broker was told to, so that no test waits for long.
        environment.setenv("GEMINGA_BROKER_BACKLOG_QUOTA_CHECK_S", "2")
        environment.setenv("GEMINGA_BROKER_FORCE_DELETES_NAMESPACES", "true")
        environment.setenv("GEMINGA_BROKER_SUBSCRIBING__FAILOVER_DELAY_S", "0.1")
        directory = tmp_path_factory.mktemp("differential")
        cluster = StandaloneProcess.start(directory / "data")
    prepare(cluster.web_service_url)
    asyncio.run(warm_up(cluster.service_url, cluster.web_service_url))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def answers(
    request: pytest.FixtureRequest, geminga: StandaloneProcess
) -> dict[str, list[Line] | Exception]:
    """What Geminga answered in every scenario that is tested.

    Where that is not what was recorded, something may have come after the scenario stopped
    waiting: such a scenario is tried again by itself, and waits longer.
    """
    chosen = [
        cast("Scenario", cast("Any", item).callspec.params["scenario"])
        for item in request.session.items
        if "answers" in getattr(item, "fixturenames", ())
    ]
    urls = geminga.service_url, geminga.web_service_url
    found = asyncio.run(run_all(chosen, *urls))
    late = [each for each in chosen if not each.not_yet and _differs(each, found[each.name])]
    return found | asyncio.run(run_patiently(late, *urls))


def _differs(scenario: Scenario, ours: list[Line] | Exception) -> bool:
    return isinstance(ours, Exception) or bool(difference(scenario, ours))
