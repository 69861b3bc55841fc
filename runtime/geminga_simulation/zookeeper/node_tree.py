"""ZooKeeper's tree of nodes, as its server keeps it: values only, without sessions and clocks.

Follows ZooKeeper 3.9 (``DataTree``, ``PrepRequestProcessor``): every change has a zxid of its own,
those of a transaction share one; a version counts changes of the value; a sequential name ends in
the count of creations below its parent, ten digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
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
    """What watches report."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class Node:
    """One node, of which ``NodeTree`` knows the path."""

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
        # Counts changes of the value; the creation is none.
        self.version = 0
        self.created_zxid = zxid
        self.modified_zxid = zxid
        self.created_ms = self.modified_ms = now_ms
        # The id of the session that an ephemeral node dies with; 0: the node is none.
        self.owner = owner
        # How many children were ever made: the number of the next sequential one.
        self.creations = 0
        # Their names, in the order of creation.
        self.children: dict[str, None] = {}

    def stat(self) -> NodeStat:
        """The facts that clients get."""
        return NodeStat(
            self.version,
            self.created_zxid,
            self.modified_zxid,
            self.owner,
            self.created_ms,
            self.modified_ms,
        )


class NodeTree:
    """All nodes by path. ``on_event`` is called with every change, after it is made, in order.

    ``now_ms`` gives the time of creations and modifications.
    """

    def __init__(
        self, on_event: Callable[[Event, str], None], now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        # The number of the last change. The server takes one for each session, too.
        self.zxid = ZXID_FIRST
        self._on_event = on_event
        self._now_ms = now_ms
        self._nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0)}
        # Paths of ephemeral nodes by the id of their session, in the order of creation.
        self._ephemerals: dict[int, dict[str, None]] = {}
        # While a change is made: how to undo what is done of it, and the events to report once all
        # of it is done.
        self._undo: list[Callable[[], object]] = []
        self._events: list[tuple[Event, str]] = []

    def copy(self) -> NodeTree:
        """The tree as it is now, to be read; it reports no events."""
        other = NodeTree(lambda _event, _path: None, self._now_ms)
        other.zxid = self.zxid
        for path, node in self._nodes.items():
            copied = copy(node)
            copied.children = dict(node.children)
            other._nodes[path] = copied
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
        """Number the next sequential child as if so many children had been made before it."""
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
        """Do all operations, or none, under one zxid; ``owner`` is the session that asks."""

        def perform_all() -> None:
            for operation in operations:
                match operation:
                    case Create(path, value, is_ephemeral):
                        ephemeral_owner = owner if is_ephemeral else 0
                        self._create(path, value, ephemeral_owner, is_sequential=False)
                    case Set(path, value, version):
                        self._set(path, value, version)
                    case Delete(path, version):
                        self._delete(path, version)
                    case Check(path, version):
                        self._require_version(path, self._node(path), version)

        self._change(perform_all)

    def delete_ephemerals(self, session_id: int) -> None:
        """Delete the nodes of a session that ends, under one zxid."""

        def delete_all() -> None:
            for path in self.ephemerals(session_id):
                self._delete(path, ANY_VERSION)

        self._change(delete_all)

    def _change(self, change: Callable[[], ResultT]) -> ResultT:
        """Make a change whole or not at all, then report it."""
        self.zxid += 1
        try:
            result = change()
        except BaseException:
            # The last step first, so that each finds the tree as it left it.
            for undo in reversed(self._undo):
                undo()
            self._events.clear()
            raise
        finally:
            self._undo.clear()
        # An event may lead to the next change at once: this one is over before it is reported.
        events, self._events = self._events, []
        for event, path in events:
            self._on_event(event, path)
        return result

    def _create(self, path: str, value: bytes, owner: int, *, is_sequential: bool) -> str:
        check_path(path, is_sequential=is_sequential)
        parent_path, _, name = path.rpartition("/")
        parent = self._nodes.get(parent_path or "/")
        if parent is None:
            raise NodeMissing(path)
        # The number of creations never goes back, so names of deleted nodes do not come again.
        if is_sequential:
            name = f"{name}{parent.creations:010d}"
            path = f"{parent_path}/{name}"
        if path in self._nodes:
            raise NodeExists(path)
        # ZooKeeper allows no children there: they would outlive their parent.
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

        # In the order in which ZooKeeper fires them: the node's own watches, then its parent's.
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

    The last name of a sequential node may be empty, for its number is added.
    """
    names = path.split("/")[1:]
    if is_sequential and names and not names[-1]:
        names.pop()
    is_root = path == "/" and not is_sequential
    if not path.startswith("/") or (not is_root and any(n in ("", ".", "..") for n in names)):
        raise CoordinationError(f"{path!r} is no path of a node")
