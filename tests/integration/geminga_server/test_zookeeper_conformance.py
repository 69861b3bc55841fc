"""Proves that a real ZooKeeper, reached by kazoo, keeps to what the simulated one does: one set of
tests for both."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.unit.geminga_simulation.coordination_conformance import (
    Closable,
    CoordinationConformance,
    Coordinations,
)

from geminga_runtime.clock import SystemClock
from geminga_server.zookeeper.session import ZooKeeper

pytestmark = pytest.mark.integration


class ClosableZooKeeper(ZooKeeper):
    """A session that ends when it is told to, before the fixture's end."""

    async def close(self) -> None:
        await self.__aexit__(None, None, None)


class TestRealZooKeeper(CoordinationConformance):
    """Each test has a root of its own."""

    @pytest.fixture
    async def coordinations(self, zookeeper_address: str) -> AsyncIterator[Coordinations]:
        address = f"{zookeeper_address}/conformance-{uuid.uuid4().hex}"
        async with AsyncExitStack() as stack:

            async def begin() -> Closable:
                session = ClosableZooKeeper(address, SystemClock())
                return await stack.enter_async_context(session)

            yield begin
