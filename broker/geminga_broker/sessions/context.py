"""What every session of a broker shares: the services it calls and the limits it keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from geminga_broker.errors import ServiceNotReady
from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.sessions.back_pressure import PublishBuffer
from geminga_broker.sessions.config import SessionConfig
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.topic import Topic
from geminga_cluster.topic_lists import TopicLists
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_runtime.clock import Clock
from geminga_server.authentication import Authentication
from geminga_server.authorization import Authorizer
from geminga_server.connection_limits import ConnectionLimits
from geminga_server.metrics import Durations


class OpenSession(Protocol):
    """What a broker that ends does with the sessions that are open."""

    def close(self) -> None:
        """Write what is queued, then close the connection."""
        ...


class Discovery(Protocol):
    """Lookups: who owns a topic, how many partitions it has, what a namespace holds."""

    async def owner(self, topic: TopicName, *, authoritative: bool = False) -> Owner:
        """The broker that serves ``topic``, or is to be asked: an unowned bundle is taken where it
        is placed here, or asked for with authority."""
        ...

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """How many partitions; 0 for a topic that has none. Raises for an unknown namespace.

        ``create`` allows to make a partitioned topic where the namespace's policy says so; else,
        and where the policy forbids it, one that does not exist raises ``TopicNotFound``.
        """
        ...

    async def may_create(self, topic: TopicName) -> bool:
        """Whether using ``topic``, which does not exist, makes it.

        Raises ``NotAllowed`` for a partition that its topic does not have.
        """
        ...

    async def persistent_topics_of(self, namespace: NamespaceName) -> list[TopicName]:
        """The stored topics of the namespace, partitions one by one; empty for an unknown one."""
        ...

    async def non_persistent_topics_of(self, namespace: NamespaceName) -> list[TopicName]:
        """The non-persistent topics of the namespace, of all brokers; empty for an unknown one.
        Raises ``ServerUnreachable``, ``ServiceNotReady`` where a broker does not say its own."""
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
