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
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import Coordination
from geminga_server.authentication import Authentication
from geminga_server.authorization import Authorize
from geminga_server.connection_limits import ConnectionLimits
from geminga_server.metrics import Durations


class OpenSession(Protocol):
    """What a broker that ends does with the sessions that are open."""

    def close(self) -> None:
        """Write what is queued, then close the connection."""
        ...


@dataclass(slots=True)
class SessionCounts:
    """What the metrics show of sessions. All but ``lookups_pending`` count since the start."""

    connections_made: int = 0
    # Of those made: clients that finished the handshake. ``connections_made`` minus
    # ``connections_closed`` are open now.
    connections_greeted: int = 0
    # Connections that ended before they were greeted, by either side.
    connections_refused: int = 0
    connections_closed: int = 0
    lookups_answered: int = 0
    lookups_redirected: int = 0
    lookups_failed: int = 0
    # Lookups and requests for partitions in progress, which the config bounds.
    lookups_pending: int = 0
    lookup_durations: Durations = field(default_factory=Durations)


@dataclass(slots=True)
class SessionContext:
    """Shared by all sessions of a broker."""

    topics: TopicDirectory
    discovery: Discovery
    topic_lists: TopicLists
    authorize: Authorize
    clock: Clock
    # A name for a producer that brings none (``ProducerNames.next``). Waits for ZooKeeper only the
    # first time.
    next_producer_name: Callable[[], Awaitable[str]]
    authentication: Authentication
    # Which connections are accepted, all together and of one host.
    limits: ConnectionLimits
    config: SessionConfig = field(default_factory=SessionConfig)
    # How long a client may take to answer a PING that is sent to find out whether it is alive.
    liveness_check_s: float = 5.0
    # How long one command may take: less than the 30 s that clients wait for an answer, so that
    # they learn why it failed.
    operation_timeout_s: float = 25.0
    # Connections over a limit that are kept open until their clients can be told so. Bounded by
    # ``REFUSED_WAITING_MAX`` of the handshake.
    refused_waiting: int = 0
    # The accepted connections. A dict, as the iteration order of a set would differ from run to run
    # of a simulation.
    sessions: dict[OpenSession, None] = field(default_factory=dict)
    # The broker has closed its ports. The event loop may still bring a connection that was accepted
    # before: nothing would answer its client.
    is_over: bool = False
    publish_buffer: PublishBuffer = field(default_factory=PublishBuffer)
    counts: SessionCounts = field(default_factory=SessionCounts)

    async def topic(self, name: TopicName, *, create: bool) -> Topic:
        """The topic that a client uses, loaded; created if it may be and ``create`` asks for it.

        A bundle that no broker owns is acquired, as by a lookup. Raises ``TopicNotFound``, and
        ``ServiceNotReady`` where another broker owns the topic.
        """
        # Loaded topics need no lookup: this broker owns them. Most PRODUCERs and SUBSCRIBEs of a
        # client that reconnects after a broken connection end here.
        topic = self.topics.loaded.get(name)
        if topic is not None:
            return topic
        # The wait may acquire the bundle. It may be lost again before ``get`` looks, which then
        # refuses.
        if not (await self.discovery.owner(name)).is_self:
            raise ServiceNotReady(f"this broker does not own {name}: look it up again")
        return await self.topics.get(name, create=create and await self.discovery.may_create(name))


# As upstream's DistributedIdGenerator: an ephemeral sequential node gives each broker a number that
# no living broker has. Names are ``<cluster>-<number>-<count>``.
COUNTER_PATH = "/counters/producer-name"


@dataclass(slots=True, eq=False)
class ProducerNames:
    """Makes names for producers, unique in the cluster, with one request to ZooKeeper in all."""

    coordination: Coordination
    cluster: str
    # The number of this broker, which the first call of ``next`` asks for.
    _instance: int | None = field(default=None, init=False)
    _count: int = field(default=-1, init=False)
    # Held while the number is asked for: of several first calls, one creates the node.
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def next(self) -> str:
        """A name that no producer of the cluster has."""
        if self._instance is None:
            async with self._asking:
                if self._instance is None:
                    # ZooKeeper gives no sequential number twice, not even after the node has gone
                    # with its session: so the broker keeps its number as long as it runs.
                    path = await self.coordination.create(
                        f"{COUNTER_PATH}/-", ephemeral=True, sequential=True, make_parents=True
                    )
                    self._instance = int(path.rpartition("-")[2])
        self._count += 1
        return f"{self.cluster}-{self._instance}-{self._count}"
