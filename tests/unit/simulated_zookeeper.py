"""A simulated ZooKeeper that takes no time, and its sessions by name: fixtures of several rooms.

Fixtures hand out plain functions and ``Coordination``s, since test modules cannot import from here.
Requests are counted, for some tests are about how many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest

from geminga_runtime.coordination import ConnectionLost, Coordination
from geminga_simulation.conditions import INSTANT
from geminga_simulation.zookeeper.interception import InterceptedSession
from geminga_simulation.zookeeper.server import SESSION_TIMEOUT_S_DEFAULT, SimulatedZooKeeper

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
async def store() -> InterceptedSession:
    """The same broker's session with another ZooKeeper, the configuration store."""
    zookeeper = SimulatedZooKeeper(conditions=INSTANT, name="configuration")
    return Sessions(zookeeper).named("broker")


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
    """Change a node at once, as another process does between two of our requests."""

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
