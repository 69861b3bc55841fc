"""Where the tests of this folder find a ZooKeeper. Shared by more folders later."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def zookeeper_address() -> str:
    """``HOST:PORT`` of a ZooKeeper that tests may write to, each below a path of its own."""
    address = os.environ.get("MAGNETAR_TEST_ZOOKEEPER")
    if not address:
        pytest.skip("MAGNETAR_TEST_ZOOKEEPER names no ZooKeeper (HOST:PORT)")
    return address
