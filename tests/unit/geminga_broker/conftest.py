"""What the broker's unit tests stand on, in memory: ZooKeeper with sessions, watches, versions and
expiry; ledgers; a network.

Fixtures hand out plain functions and ``Coordination``s, since test modules cannot import from here.
Requests are counted, for some tests are about how many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over
from tests.unit.geminga_broker.stand_ins import MemoryNetwork

from geminga_broker.broker import Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.topics.directory import TopicDirectory
from geminga_cluster.initialize import ClusterUrls, initialize_cluster_metadata
from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import (
    ANY_VERSION,
    NO_SESSION,
    Check,
    ConnectionLost,
    Coordination,
    Create,
    Delete,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NodeStat,
    OnChange,
    OnSession,
    Operation,
    SessionExpired,
    SessionState,
    Set,
    VersionMismatch,
)
from geminga_runtime.network import Network
from geminga_server.authorization import ALLOW_ALL


@dataclass
class Node:
    """One node."""

    value: bytes
    version: int
    created: int
    modified: int
    owner: int

    def stat(self) -> NodeStat:
        return NodeStat(self.version, self.created, self.modified, self.owner)


class MemoryZooKeeper:
    """The tree, and the sessions that look at it."""

    def __init__(self) -> None:
        self.nodes = {"/": Node(b"", 0, 0, 0, 0)}
        self.sessions: dict[str, MemorySession] = {}
        self.zxid = 0
        self.last_session = 0

    def session(self, name: str) -> MemorySession:
        if name not in self.sessions:
            self.sessions[name] = MemorySession(self)
        return self.sessions[name]

    def check(self, operation: Operation) -> None:
        """Raise what this operation would raise."""
        node = self.nodes.get(operation.path)
        if isinstance(operation, Create):
            parent = operation.path.rpartition("/")[0] or "/"
            if node is not None:
                raise NodeExists(operation.path)
            if parent not in self.nodes:
                raise NodeMissing(operation.path)
            return
        if node is None:
            raise NodeMissing(operation.path)
        if operation.version not in (ANY_VERSION, node.version):
            raise VersionMismatch(operation.path)
        if isinstance(operation, Delete) and self.children(operation.path):
            raise NodeNotEmpty(operation.path)

    def apply(self, operation: Operation, owner: int) -> None:
        self.check(operation)
        path = operation.path
        if isinstance(operation, Create):
            owned_by = owner if operation.is_ephemeral else 0
            self.nodes[path] = Node(operation.value, 0, self.zxid, self.zxid, owned_by)
            self.changed(path, "data", "exists")
            self.changed(path.rpartition("/")[0] or "/", "children")
        elif isinstance(operation, Set):
            node = self.nodes[path]
            node.value, node.version, node.modified = operation.value, node.version + 1, self.zxid
            self.changed(path, "data", "exists")
        elif isinstance(operation, Delete):
            del self.nodes[path]
            self.changed(path, "data", "exists", "children")
            self.changed(path.rpartition("/")[0] or "/", "children")

    def commit(self, operations: Sequence[Operation], owner: int) -> None:
        """All or nothing: tried on a copy of the tree, whose watches stay quiet, first."""
        trial = MemoryZooKeeper()
        trial.nodes = {path: Node(**vars(node)) for path, node in self.nodes.items()}
        for operation in operations:
            trial.apply(operation, owner)
        self.zxid += 1
        for operation in operations:
            if not isinstance(operation, Check):
                self.apply(operation, owner)

    def children(self, path: str) -> list[str]:
        start = path.rstrip("/") + "/"
        return sorted(
            name[len(start) :]
            for name in self.nodes
            if name.startswith(start) and name != "/" and "/" not in name[len(start) :]
        )

    def changed(self, path: str, *kinds: str) -> None:
        loop = asyncio.get_event_loop() if self.sessions else None
        for session in self.sessions.values():
            for kind in kinds:
                for on_change in session.watches.pop((kind, path), []):
                    assert loop is not None
                    loop.call_soon(on_change)

    def end(self, session_id: int) -> None:
        self.zxid += 1
        for path in [path for path, node in self.nodes.items() if node.owner == session_id]:
            self.apply(Delete(path), session_id)


class MemorySession:
    """One client: implements ``Coordination``."""

    def __init__(self, zookeeper: MemoryZooKeeper) -> None:
        self.zookeeper = zookeeper
        self.watches: dict[tuple[str, str], list[OnChange]] = {}
        self.callbacks: list[OnSession] = []
        self.requests: list[str] = []
        self.is_expired = False
        self.is_cut = False
        self.begin()

    def begin(self) -> None:
        self.zookeeper.last_session += 1
        self.session_id = self.zookeeper.last_session
        self.is_expired = self.is_cut = False

    def tell(self, state: SessionState) -> None:
        for callback in list(self.callbacks):
            callback(state)

    async def ask(self, request: str) -> MemoryZooKeeper:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.is_expired:
            raise SessionExpired(request)
        if self.is_cut:
            raise ConnectionLost(request)
        return self.zookeeper

    def watch(self, kind: str, path: str, on_change: OnChange | None) -> None:
        if on_change is not None:
            self.watches.setdefault((kind, path), []).append(on_change)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        assert not sequential, "no test here needs it"
        zookeeper = await self.ask(f"create {path}")
        parts = path.split("/")[1:]
        for count in range(1, len(parts) if make_parents else 0):
            parent = "/" + "/".join(parts[:count])
            if parent not in zookeeper.nodes:
                zookeeper.commit([Create(parent)], self.session_id)
        zookeeper.commit([Create(path, value, ephemeral)], self.session_id)
        await asyncio.sleep(0)  # watches come before the answer, as ZooKeeper promises
        return path

    async def get(self, path: str, *, on_change: OnChange | None = None) -> tuple[bytes, NodeStat]:
        zookeeper = await self.ask(f"get {path}")
        if path not in zookeeper.nodes:
            raise NodeMissing(path)
        self.watch("data", path, on_change)
        return zookeeper.nodes[path].value, zookeeper.nodes[path].stat()

    async def exists(self, path: str, *, on_change: OnChange | None = None) -> NodeStat | None:
        zookeeper = await self.ask(f"exists {path}")
        self.watch("exists", path, on_change)
        return zookeeper.nodes[path].stat() if path in zookeeper.nodes else None

    async def children(self, path: str, *, on_change: OnChange | None = None) -> list[str]:
        zookeeper = await self.ask(f"children {path}")
        if path not in zookeeper.nodes:
            raise NodeMissing(path)
        self.watch("children", path, on_change)
        return zookeeper.children(path)

    async def set(self, path: str, value: bytes, *, version: int = ANY_VERSION) -> NodeStat:
        zookeeper = await self.ask(f"set {path}")
        zookeeper.commit([Set(path, value, version)], self.session_id)
        stat = zookeeper.nodes[path].stat()
        await asyncio.sleep(0)
        return stat

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        zookeeper = await self.ask(f"delete {path}")
        zookeeper.commit([Delete(path, version)], self.session_id)
        await asyncio.sleep(0)

    async def transaction(self, operations: Sequence[Operation]) -> None:
        zookeeper = await self.ask(f"transaction {len(operations)}")
        zookeeper.commit(operations, self.session_id)
        await asyncio.sleep(0)

    def on_session(self, callback: OnSession) -> None:
        self.callbacks.append(callback)


@pytest.fixture
def zookeeper() -> MemoryZooKeeper:
    """An empty ZooKeeper."""
    return MemoryZooKeeper()


@pytest.fixture
def session(zookeeper: MemoryZooKeeper) -> Callable[[str], Coordination]:
    """Begin the session of that name, or find it."""
    return zookeeper.session


@pytest.fixture
def coordination(zookeeper: MemoryZooKeeper) -> Coordination:
    """The session of the broker under test."""
    return zookeeper.session("broker")


@pytest.fixture
def requests(zookeeper: MemoryZooKeeper) -> list[str]:
    """What the broker under test has asked so far; may be cleared."""
    return zookeeper.session("broker").requests


@pytest.fixture
def tree(zookeeper: MemoryZooKeeper) -> Callable[[], dict[str, bytes]]:
    """Give all nodes' values by path."""
    return lambda: {
        path: node.value for path, node in sorted(zookeeper.nodes.items()) if path != "/"
    }


@pytest.fixture
def meddle(zookeeper: MemoryZooKeeper) -> Callable[[str, bytes], None]:
    """Change a node at once, as somebody else does between two of our requests."""
    return lambda path, value: zookeeper.commit([Set(path, value)], owner=0)


@pytest.fixture
def suspend(zookeeper: MemoryZooKeeper) -> Callable[[str], None]:
    """Cut a session's connection; the session itself lives."""

    def cut(name: str) -> None:
        zookeeper.session(name).is_cut = True
        zookeeper.session(name).tell(SessionState.SUSPENDED)

    return cut


@pytest.fixture
def expire(zookeeper: MemoryZooKeeper) -> Callable[[str], None]:
    """End a session: its ephemeral nodes are gone, and it is told."""

    def end(name: str) -> None:
        session = zookeeper.session(name)
        session.is_expired = True
        session.watches.clear()
        zookeeper.end(session.session_id)
        session.session_id = NO_SESSION
        session.tell(SessionState.EXPIRED)

    return end


@pytest.fixture
def reconnect(zookeeper: MemoryZooKeeper) -> Callable[[str], None]:
    """Give a cut session its connection back, an expired one a new session."""

    def connect(name: str) -> None:
        session = zookeeper.session(name)
        if session.is_expired:
            session.begin()
        session.is_cut = False
        for callbacks in list(session.watches.values()):  # a change may have gone unseen
            for on_change in callbacks:
                asyncio.get_running_loop().call_soon(on_change)
        session.watches.clear()
        session.tell(SessionState.CONNECTED)

    return connect


@pytest.fixture
def kill(zookeeper: MemoryZooKeeper) -> Callable[[str], None]:
    """Kill a process: its ephemeral nodes stay until the old session times out."""

    def forget(name: str) -> None:
        del zookeeper.sessions[name]

    return forget


@pytest.fixture
def settle() -> Callable[[], Awaitable[None]]:
    """Await it until nothing more happens by itself."""

    async def wait() -> None:
        for _ in range(200):
            await asyncio.sleep(0)

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
