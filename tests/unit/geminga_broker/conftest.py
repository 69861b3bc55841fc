"""What the broker's unit tests stand on: the simulated ZooKeeper, ledgers and a network in memory.

Fixtures hand out plain functions and ``Coordination``s, since test modules cannot import from here.
Requests are counted, for some tests are about how many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import NoReturn, cast

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over
from tests.unit.geminga_broker.stand_ins import MemoryNetwork

from geminga_broker.broker import Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.metadata.initialize import ClusterUrls, initialize_cluster_metadata
from geminga_broker.topics.directory import TopicDirectory
from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import ConnectionLost, Coordination
from geminga_runtime.network import Network
from geminga_server.authorization import ALLOW_ALL
from geminga_simulation.conditions import INSTANT
from geminga_simulation.coordination import SESSION_TIMEOUT_S_DEFAULT, SimulatedZooKeeper
from geminga_simulation.interception import InterceptedSession

Settle = Callable[[], Awaitable[None]]

# Longer than an instant, shorter than anything that a timer of ours waits for.
INSTANT_S = 0.000_001


class Sessions:
    """The sessions of one ZooKeeper by name, each with what a test does to its requests."""

    def __init__(self, zookeeper: SimulatedZooKeeper) -> None:
        self.zookeeper = zookeeper
        self._sessions: dict[str, InterceptedSession] = {}

    def named(self, name: str) -> InterceptedSession:
        """Begin the session of that name, or find it."""
        if name not in self._sessions:
            self._sessions[name] = InterceptedSession(self.zookeeper.session(name))
        return self._sessions[name]

    def suspend(self, name: str) -> None:
        """Cut it off. What is asked meanwhile was on the way when the connection broke."""

        async def break_off(request: str, act: Callable[[], Awaitable[object]]) -> NoReturn:
            del act
            raise ConnectionLost(request)

        self.named(name).intercept = break_off
        self.zookeeper.isolate(name)

    def reconnect(self, name: str) -> None:
        """Give a session its connection back; a new session, where it has ended."""
        self.named(name).intercept = None
        self.zookeeper.restore(name)

    def kill(self, name: str) -> None:
        """End its process, not the session: that times out."""
        for client in self.zookeeper.sessions(name):
            client.die()
        del self._sessions[name]


@pytest.fixture
async def zookeeper() -> SimulatedZooKeeper:
    """An empty ZooKeeper, which takes no time."""
    return SimulatedZooKeeper(conditions=INSTANT)


@pytest.fixture
def sessions(zookeeper: SimulatedZooKeeper) -> Sessions:
    """All sessions by name."""
    return Sessions(zookeeper)


@pytest.fixture
def session(sessions: Sessions) -> Callable[[str], Coordination]:
    """Begin the session of that name, or find it."""
    return sessions.named


@pytest.fixture
async def coordination(sessions: Sessions) -> InterceptedSession:
    """The session of the broker under test."""
    return sessions.named("broker")


@pytest.fixture
def requests(coordination: InterceptedSession) -> list[str]:
    """What the broker under test has asked so far; may be cleared."""
    return coordination.requests


@pytest.fixture
def tree(zookeeper: SimulatedZooKeeper) -> Callable[[], dict[str, bytes]]:
    """Give all nodes' values by path."""
    return zookeeper.tree.values


@pytest.fixture
def meddle(zookeeper: SimulatedZooKeeper) -> Callable[[str, bytes], None]:
    """Change a node at once, as somebody else does between two of our requests."""

    def change(path: str, value: bytes) -> None:
        zookeeper.tree.set(path, value)

    return change


@pytest.fixture
def suspend(sessions: Sessions, settle: Settle) -> Callable[[str], Awaitable[None]]:
    """Cut a session's connection, and let it be told; the session itself lives."""

    async def cut(name: str) -> None:
        sessions.suspend(name)
        await settle()

    return cut


@pytest.fixture
def expire(zookeeper: SimulatedZooKeeper) -> Callable[[str], Awaitable[None]]:
    """End a session by cutting it off for long: its ephemeral nodes are gone, and it is told. It
    stays without a connection."""

    async def end(name: str) -> None:
        zookeeper.isolate(name)
        await asyncio.sleep(SESSION_TIMEOUT_S_DEFAULT)

    return end


@pytest.fixture
def reconnect(sessions: Sessions, settle: Settle) -> Callable[[str], Awaitable[None]]:
    """Give a cut session its connection back, an expired one a new session, and let it be told."""

    async def connect(name: str) -> None:
        sessions.reconnect(name)
        await settle()

    return connect


@pytest.fixture
def kill(sessions: Sessions) -> Callable[[str], None]:
    """Kill a process: its ephemeral nodes stay until the old session times out."""
    return sessions.kill


@pytest.fixture
def settle() -> Settle:
    """Await it until nothing more happens by itself in this instant of virtual time."""

    async def wait() -> None:
        await asyncio.sleep(INSTANT_S)

    return wait


@pytest.fixture
def ledgers() -> MemoryLedgers:
    """The cluster's ledgers."""
    return MemoryLedgers()


@pytest.fixture
async def topics(
    coordination: Coordination, ledgers: MemoryLedgers
) -> AsyncIterator[TopicDirectory]:
    """The broker's topics: all are its own."""
    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(factory, SystemClock(), owns=lambda _: True) as topics:
        yield topics
        ledgers.is_prompt = True
        for writer in ledgers.writers:
            writer.confirm()


@pytest.fixture
def network() -> MemoryNetwork:
    """Where the clients of ``broker`` come from."""
    return MemoryNetwork()


@pytest.fixture
async def broker(
    request: pytest.FixtureRequest, coordination: Coordination, network: MemoryNetwork
) -> Broker:
    """A broker of an initialized cluster without bookies, to be entered; a test may give it another
    config than the usual one."""
    config = getattr(request, "param", None)
    urls = ClusterUrls("http://here:8080", "pulsar://here:6650")
    await initialize_cluster_metadata(coordination, "standalone", urls, instance_id="i")
    return Broker(
        config or BrokerConfig(advertised_address="here", port=6650, web_port=8080),
        coordination=coordination,
        network=cast(Network, network),
        clock=SystemClock(),
        random=Random(1),
        authorizer=ALLOW_ALL,
    )
