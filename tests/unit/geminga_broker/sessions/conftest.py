"""A broker's sessions over memory and in virtual time, for the tests of this directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import FrameClient, context_over

from geminga_broker.sessions.connection import Connection
from geminga_broker.sessions.context import SessionContext
from geminga_broker.topics.directory import TopicDirectory
from geminga_cluster.topic_lists import TopicLists
from geminga_runtime.coordination import Coordination


@pytest.fixture
async def context(
    topics: TopicDirectory, coordination: Coordination
) -> AsyncIterator[SessionContext]:
    """What the sessions share; their connections are broken in the end."""
    async with TopicLists(coordination) as topic_lists:
        context = context_over(topics, topic_lists)
        yield context
        for session in list(context.sessions):
            session.close()
        await asyncio.sleep(0)
        assert not context.sessions


@pytest.fixture
def connect(context: SessionContext) -> Callable[[], FrameClient]:
    """Give a client that is connected."""
    return lambda: FrameClient(Connection(context)).connected()
