"""A ZooKeeper tree in memory, with one session and answers that get lost on order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from geminga_runtime.coordination import (
    ANY_VERSION,
    Check,
    ConnectionLost,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NodeStat,
    OnChange,
    OnSession,
    Operation,
    SessionState,
    VersionMismatch,
)

SESSION_ID = 77


@dataclass
class Node:
    """One node; ``counter`` numbers its sequential children."""

    value: bytes = b""
    version: int = 0
    is_ephemeral: bool = False
    counter: int = 0
    watchers: list[OnChange] = field(default_factory=list)
    child_watchers: list[OnChange] = field(default_factory=list)


class FakeCoordination:
    """The parts of ``Coordination`` that ledgers use, and a few levers."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"": Node()}
        self.calls: list[tuple[str, str]] = []
        # Called before each call with (method, path): may change the tree or raise.
        self.before: Callable[[str, str], None] | None = None
        self._lost: list[tuple[str, str, bool]] = []
        self._absent_watchers: dict[str, list[OnChange]] = {}
        self._session_callbacks: list[OnSession] = []

    @property
    def session_id(self) -> int:
        return SESSION_ID

    def lose_answer(self, method: str, path_part: str, *, is_done: bool) -> None:
        """The next such call raises ``ConnectionLost``, having been done or not."""
        self._lost.append((method, path_part, is_done))

    def tell_session(self, state: SessionState) -> None:
        for callback in self._session_callbacks:
            callback(state)

    def put(self, path: str, value: bytes = b"") -> None:
        """Make a node and its parents, or replace its value, as somebody else would."""
        if path in self.nodes:
            node = self.nodes[path]
            node.value = value
            node.version += 1
            self._fire(node.watchers)
        else:
            self._make_parents(path)
            self._add(path, Node(value))

    def remove(self, path: str) -> None:
        node = self.nodes.pop(path)
        self._fire(node.watchers)
        self._fire(self.nodes[_parent(path)].child_watchers)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        is_lost = self._begin("create", path)
        if make_parents:
            self._make_parents(path)
        parent = self.nodes.get(_parent(path))
        if parent is None:
            raise NodeMissing(path)
        if sequential:
            path = f"{path}{parent.counter:010d}"
            parent.counter += 1
        if path in self.nodes:
            raise NodeExists(path)
        self._add(path, Node(value, is_ephemeral=ephemeral))
        self._end(is_lost=is_lost)
        return path

    async def get(self, path: str, *, on_change: OnChange | None = None) -> tuple[bytes, NodeStat]:
        is_lost = self._begin("get", path)
        node = self._node(path)
        if on_change:
            node.watchers.append(on_change)
        self._end(is_lost=is_lost)
        return node.value, _stat(node)

    async def exists(self, path: str, *, on_change: OnChange | None = None) -> NodeStat | None:
        is_lost = self._begin("exists", path)
        self._end(is_lost=is_lost)
        node = self.nodes.get(path)
        if on_change:
            watchers = node.watchers if node else self._absent_watchers.setdefault(path, [])
            watchers.append(on_change)
        return _stat(node) if node else None

    async def children(self, path: str, *, on_change: OnChange | None = None) -> list[str]:
        is_lost = self._begin("children", path)
        node = self._node(path)
        self._end(is_lost=is_lost)
        if on_change:
            node.child_watchers.append(on_change)
        return self.names_below(path)

    async def set(self, path: str, value: bytes, *, version: int = ANY_VERSION) -> NodeStat:
        is_lost = self._begin("set", path)
        node = self._node(path)
        if version not in (ANY_VERSION, node.version):
            raise VersionMismatch(path)
        self.put(path, value)
        self._end(is_lost=is_lost)
        return _stat(node)

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        is_lost = self._begin("delete", path)
        node = self._node(path)
        if version not in (ANY_VERSION, node.version):
            raise VersionMismatch(path)
        if self.names_below(path):
            raise NodeNotEmpty(path)
        self.remove(path)
        self._end(is_lost=is_lost)

    async def transaction(self, operations: Sequence[Operation]) -> None:
        """Of checks alone: who changes several nodes at once needs a simulated ZooKeeper."""
        for each in operations:
            assert isinstance(each, Check), "this fake checks versions only"
            is_lost = self._begin("transaction", each.path)
            if self._node(each.path).version != each.version:
                raise VersionMismatch(each.path)
            self._end(is_lost=is_lost)

    def on_session(self, callback: OnSession) -> None:
        self._session_callbacks.append(callback)

    def names_below(self, path: str) -> list[str]:
        return sorted(
            each[len(path) + 1 :] for each in self.nodes if each and _parent(each) == path
        )

    def _begin(self, method: str, path: str) -> bool:
        """Whether the answer to this call is to get lost after it was done."""
        self.calls.append((method, path))
        if self.before is not None:
            self.before(method, path)
        for lost in self._lost:
            if lost[0] == method and lost[1] in path:
                self._lost.remove(lost)
                if not lost[2]:
                    raise ConnectionLost("the test lost the request")
                return True
        return False

    def _end(self, *, is_lost: bool) -> None:
        if is_lost:
            raise ConnectionLost("the test lost the answer")

    def _node(self, path: str) -> Node:
        if path not in self.nodes:
            raise NodeMissing(path)
        return self.nodes[path]

    def _make_parents(self, path: str) -> None:
        parent = _parent(path)
        if parent not in self.nodes:
            self._make_parents(parent)
            self._add(parent, Node())

    def _add(self, path: str, node: Node) -> None:
        self.nodes[path] = node
        self._fire(self.nodes[_parent(path)].child_watchers)
        self._fire(self._absent_watchers.pop(path, []))

    def _fire(self, watchers: list[OnChange]) -> None:
        fired, watchers[:] = list(watchers), []
        for watcher in fired:
            watcher()


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _stat(node: Node) -> NodeStat:
    return NodeStat(node.version, 1, 1, SESSION_ID if node.is_ephemeral else 0)
