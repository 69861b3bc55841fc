"""ZooKeeper's tree of nodes, as its server keeps it: values only, no session, no clock of its own.

Follows ZooKeeper 3.9 (``DataTree``, ``PrepRequestProcessor``): every change has a zxid of its own,
those of a transaction share one; a version counts changes of the value; a sequential name carries
the count of creations below its parent, ten digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeVar

from geminga_runtime.coordination import (
    ANY_VERSION,
    Check,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NodeStat,
    Operation,
    Set,
    VersionMismatch,
)

ResultT = TypeVar("ResultT")

# A real server's first zxid: epoch 1, counter 0.
ZXID_FIRST = 1 << 32


class Event(Enum):
    """What watches hear of."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class Node:
    """One node. ``creations`` counts children ever made, ``owner`` is a session's id or 0."""

    __slots__ = (
        "children",
        "created_ms",
        "created_zxid",
        "creations",
        "modified_ms",
        "modified_zxid",
        "owner",
        "value",
        "version",
    )

    def __init__(self, value: bytes, zxid: int, owner: int, now_ms: int) -> None:
        self.value = value
        self.version = 0
        self.created_zxid = zxid
        self.modified_zxid = zxid
        self.created_ms = self.modified_ms = now_ms
        self.owner = owner
        self.creations = 0
        self.children: dict[str, None] = {}

    def copy(self) -> Node:
        """The same, which does not change any more when this one does."""
        other = Node(self.value, self.created_zxid, self.owner, self.created_ms)
        other.version = self.version
        other.modified_zxid = self.modified_zxid
        other.modified_ms = self.modified_ms
        other.creations = self.creations
        other.children = dict(self.children)
        return other

    def stat(self) -> NodeStat:
        """The facts clients are told."""
        return NodeStat(
            self.version,
            self.created_zxid,
            self.modified_zxid,
            self.owner,
            self.created_ms,
            self.modified_ms,
        )


class NodeTree:
    """All nodes by path. ``on_event`` hears of every change, after it is made, in order.

    ``now_ms`` gives the time that nodes are created and modified at.
    """

    def __init__(
        self, on_event: Callable[[Event, str], None], now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self.zxid = ZXID_FIRST
        self._on_event = on_event
        self._now_ms = now_ms
        self._nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0)}
        self._ephemerals: dict[int, dict[str, None]] = {}
        # While a transaction runs: how to undo it, last first, and what to tell once it is done.
        self._undo: list[Callable[[], object]] = []
        self._events: list[tuple[Event, str]] = []

    def copy(self) -> NodeTree:
        """The tree as it is now, to be read; nobody hears of changes to it."""
        other = NodeTree(lambda _event, _path: None, self._now_ms)
        other.zxid = self.zxid
        other._nodes = {path: node.copy() for path, node in self._nodes.items()}
        return other

    # --- reading ----------------------------------------------------------------------------

    def get(self, path: str) -> tuple[bytes, NodeStat]:
        """Value and stat; raises ``NodeMissing``."""
        node = self._node(path)
        return node.value, node.stat()

    def exists(self, path: str) -> NodeStat | None:
        """Stat, or None."""
        check_path(path)
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> list[str]:
        """Names, sorted; raises ``NodeMissing``."""
        return sorted(self._node(path).children)

    def ephemerals(self, session_id: int) -> list[str]:
        """Paths of the nodes that die with a session, in the order of creation."""
        return list(self._ephemerals.get(session_id, ()))

    def values(self) -> dict[str, bytes]:
        """All nodes' values by path, sorted, without the root: for tests to look at."""
        return {path: self._nodes[path].value for path in sorted(self._nodes) if path != "/"}

    def count_from(self, path: str, creations: int) -> None:
        """Go on numbering sequential children as if so many had been made."""
        self._node(path).creations = creations

    # --- changing ---------------------------------------------------------------------------

    def create(
        self, path: str, value: bytes, owner: int = 0, *, is_sequential: bool = False
    ) -> str:
        """Create a node; returns its path. Raises ``NodeExists``, ``NodeMissing``."""
        return self._change(lambda: self._create(path, value, owner, is_sequential=is_sequential))

    def set(self, path: str, value: bytes, version: int = ANY_VERSION) -> NodeStat:
        """Replace a value. Raises ``NodeMissing``, ``VersionMismatch``."""
        return self._change(lambda: self._set(path, value, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises ``NodeMissing``, ``VersionMismatch``, ``NodeNotEmpty``."""
        self._change(lambda: self._delete(path, version))

    def transaction(self, operations: Sequence[Operation], owner: int) -> None:
        """All or nothing, under one zxid; ``owner`` is the session that asks."""

        def perform_all() -> None:
            for operation in operations:
                self._perform(operation, owner)

        self._change(perform_all)

    def delete_ephemerals(self, session_id: int) -> None:
        """What the end of a session does, under one zxid."""

        def delete_all() -> None:
            for path in self.ephemerals(session_id):
                self._delete(path, ANY_VERSION)

        self._change(delete_all)

    def _change(self, change: Callable[[], ResultT]) -> ResultT:
        """Make a change whole or not at all, then tell of it."""
        self.zxid += 1
        try:
            result = change()
        except BaseException:
            for undo in reversed(self._undo):
                undo()
            self._events.clear()
            raise
        finally:
            self._undo.clear()
        events, self._events = self._events, []
        for event, path in events:
            self._on_event(event, path)
        return result

    def _perform(self, operation: Operation, owner: int) -> None:
        match operation:
            case Create(path, value, is_ephemeral):
                self._create(path, value, owner if is_ephemeral else 0, is_sequential=False)
            case Set(path, value, version):
                self._set(path, value, version)
            case Delete(path, version):
                self._delete(path, version)
            case Check(path, version):
                self._require_version(path, self._node(path), version)

    def _create(self, path: str, value: bytes, owner: int, *, is_sequential: bool) -> str:
        check_path(path, is_sequential=is_sequential)
        parent_path, _, name = path.rpartition("/")
        parent = self._nodes.get(parent_path or "/")
        if parent is None:
            raise NodeMissing(path)
        if is_sequential:
            name = f"{name}{parent.creations:010d}"
            path = f"{parent_path}/{name}"
        if path in self._nodes:
            raise NodeExists(path)
        if parent.owner:
            raise CoordinationError(f"node {parent_path} is ephemeral and can have no children")
        parent.creations += 1
        parent.children[name] = None
        self._nodes[path] = Node(bytes(value), self.zxid, owner, self._now_ms())
        if owner:
            self._ephemerals.setdefault(owner, {})[path] = None

        def undo() -> None:
            parent.creations -= 1
            self._drop(path)

        self._undo.append(undo)
        self._events += [(Event.CREATED, path), (Event.CHILDREN, parent_path or "/")]
        return path

    def _set(self, path: str, value: bytes, version: int) -> NodeStat:
        node = self._node(path)
        self._require_version(path, node, version)
        before = (node.value, node.version, node.modified_zxid, node.modified_ms)
        node.value = bytes(value)
        node.version += 1
        node.modified_zxid = self.zxid
        node.modified_ms = self._now_ms()

        def undo() -> None:
            node.value, node.version, node.modified_zxid, node.modified_ms = before

        self._undo.append(undo)
        self._events.append((Event.CHANGED, path))
        return node.stat()

    def _delete(self, path: str, version: int) -> None:
        node = self._node(path)
        self._require_version(path, node, version)
        if node.children:
            raise NodeNotEmpty(path)
        if path == "/":
            raise CoordinationError("the root cannot be deleted")
        self._drop(path)
        parent_path, _, name = path.rpartition("/")
        parent = self._nodes[parent_path or "/"]

        def undo() -> None:
            self._nodes[path] = node
            parent.children[name] = None
            if node.owner:
                self._ephemerals.setdefault(node.owner, {})[path] = None

        self._undo.append(undo)
        self._events += [(Event.DELETED, path), (Event.CHILDREN, parent_path or "/")]

    def _drop(self, path: str) -> None:
        node = self._nodes.pop(path)
        parent_path, _, name = path.rpartition("/")
        del self._nodes[parent_path or "/"].children[name]
        if node.owner:
            owned = self._ephemerals[node.owner]
            del owned[path]
            if not owned:
                del self._ephemerals[node.owner]

    def _node(self, path: str) -> Node:
        check_path(path)
        node = self._nodes.get(path)
        if node is None:
            raise NodeMissing(path)
        return node

    @staticmethod
    def _require_version(path: str, node: Node, version: int) -> None:
        if version not in (ANY_VERSION, node.version):
            raise VersionMismatch(path)


def check_path(path: str, *, is_sequential: bool = False) -> None:
    """Raise ``CoordinationError`` for a path that ZooKeeper refuses.

    The last name of a sequential node may be empty: the number makes it one.
    """
    names = path.split("/")[1:]
    if is_sequential and names and not names[-1]:
        names.pop()
    is_root = path == "/" and not is_sequential
    if not path.startswith("/") or (not is_root and any(n in ("", ".", "..") for n in names)):
        raise CoordinationError(f"{path!r} is no path of a node")
