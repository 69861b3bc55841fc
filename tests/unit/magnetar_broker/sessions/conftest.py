"""A broker's sessions over memory and in virtual time, for the tests of this directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from tests.unit.magnetar_broker.sessions.stand_ins import FrameClient, context_over

from magnetar_broker.metadata.topic_lists import TopicLists
from magnetar_broker.sessions.connection import Connection
from magnetar_broker.sessions.context import SessionContext
from magnetar_broker.topics.directory import TopicDirectory
from magnetar_runtime.coordination import Coordination
from magnetar_simulation.loop import SimulatedLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], SimulatedLoop]]:
    """The loop of this folder's tests: half a minute passes at once."""
    return {"simulated": SimulatedLoop}


@pytest.fixture
async def context(
    topics: TopicDirectory, coordination: Coordination
) -> AsyncIterator[SessionContext]:
    """What the sessions share; their connections are broken in the end."""
    async with TopicLists(coordination) as topic_lists:
        context = context_over(topics, topic_lists)
        yield context
        for connection in list(context.connections):
            connection.connection_lost(None)


@pytest.fixture
def connect(context: SessionContext) -> Callable[[], FrameClient]:
    """Give a client that is connected."""
    return lambda: FrameClient(Connection(context)).connected()
