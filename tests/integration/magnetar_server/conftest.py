"""Where the tests of this folder find a ZooKeeper. Shared by more folders later."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest

from magnetar_server.run import uvloop_factory


@pytest.fixture(scope="session")
def zookeeper_address() -> str:
    """``HOST:PORT`` of a ZooKeeper that tests may write to, each below a path of its own."""
    address = os.environ.get("MAGNETAR_TEST_ZOOKEEPER")
    if not address:
        pytest.skip("MAGNETAR_TEST_ZOOKEEPER names no ZooKeeper (HOST:PORT)")
    return address


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Parts run on uvloop, so these tests do."""
    return {"uvloop": uvloop_factory()}
