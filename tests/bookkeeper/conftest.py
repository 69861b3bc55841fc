"""BookKeeper's own clients, tools and bookies against ours: run by ``make test-java``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.apache_java.java import NotRun
from tests.apache_java.marking import mark_java
from tests.bookkeeper.java_bookkeeper import JavaBookKeeper, find_java_bookkeeper

from geminga_server.run import uvloop_factory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs Java; a cluster and its JVMs take their time to start."""
    mark_java(items, Path(__file__).parent)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Our ledger client runs on uvloop, as in brokers."""
    return {"uvloop": uvloop_factory()}


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> JavaBookKeeper:
    """Java and BookKeeper's jars; without them the test is skipped and says why."""
    try:
        return find_java_bookkeeper(tmp_path_factory.mktemp("java"))
    except NotRun as reason:
        pytest.skip(str(reason))
