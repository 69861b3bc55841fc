"""What every session of a broker shares: the services it calls and the limits it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from geminga_broker.discovery import Discovery
from geminga_broker.errors import ServiceNotReady
from geminga_broker.sessions.back_pressure import PublishBuffer
from geminga_broker.sessions.config import SessionConfig
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.topic import Topic
from geminga_cluster.topic_lists import TopicLists
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_server.authentication import Authentication
from geminga_server.authorization import Authorizer
from geminga_server.connection_limits import ConnectionLimits
from geminga_server.metrics import Durations


class OpenSession(Protocol):
    """What a broker that ends does with the sessions that are open."""

    def close(self) -> None:
        """Write what is queued, then close the connection."""
        ...


@dataclass(slots=True)
class SessionCounts:
    """What the metrics show of sessions: connections since the start, and their lookups."""

    connections_made: int = 0
    connections_greeted: int = 0
    connections_refused: int = 0
    connections_closed: int = 0
    lookups_answered: int = 0
    lookups_redirected: int = 0
    lookups_failed: int = 0
    lookups_pending: int = 0
    lookup_durations: Durations = field(default_factory=Durations)


@dataclass(slots=True)
class SessionContext:
    """Shared by all sessions; ``limits`` says which connections are taken, ``sessions`` are those
    open now (a dict, which keeps the order of coming: a set's would differ from run to run of a
    simulation), ``refused_waiting`` how many others are still to be told that they are too many."""

    topics: TopicDirectory
    discovery: Discovery
    topic_lists: TopicLists
    authorizer: Authorizer
    clock: Clock
    next_producer_name: Callable[[], Awaitable[str]]
    authentication: Authentication
    limits: ConnectionLimits
    config: SessionConfig = field(default_factory=SessionConfig)
    liveness_check_s: float = 5.0
    operation_timeout_s: float = 25.0
    refused_waiting: int = 0
    sessions: dict[OpenSession, None] = field(default_factory=dict)
    publish_buffer: PublishBuffer = field(default_factory=PublishBuffer)
    counts: SessionCounts = field(default_factory=SessionCounts)

    async def topic(self, name: TopicName, *, create: bool) -> Topic:
        """The topic that a client uses; made where the client and its namespace want that. Its
        bundle is taken if nobody owns it, as by a lookup.

        Raises ``TopicNotFound``, and ``ServiceNotReady`` where another broker owns it.
        """
        topic = self.topics.find(name)
        if topic is not None:
            return topic
        if not (await self.discovery.owner(name)).is_self:
            raise ServiceNotReady(f"this broker does not own {name}: look it up again")
        return await self.topics.get(name, create=create and await self.discovery.may_create(name))


COUNTER_PATH = "/counters/producer-name"


class ProducerNames:
    """Hands out names; the number is fetched with the first."""

    def __init__(self, coordination: Coordination, cluster: str) -> None:
        self._coordination = coordination
        self._cluster = cluster
        self._instance: int | None = None
        self._count = -1
        self._asking = asyncio.Lock()

    async def next(self) -> str:
        """A name no producer of the cluster has."""
        if self._instance is None:
            async with self._asking:
                if self._instance is None:
                    path = await self._coordination.create(
                        f"{COUNTER_PATH}/-", ephemeral=True, sequential=True, make_parents=True
                    )
                    self._instance = int(path.rpartition("-")[2])
        self._count += 1
        return f"{self._cluster}-{self._instance}-{self._count}"
