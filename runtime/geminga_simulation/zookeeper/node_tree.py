"""ZooKeeper's tree of nodes, as its server keeps it: values only, without sessions and clocks.

Follows ZooKeeper 3.9 (``DataTree``, ``PrepRequestProcessor``): every change has a zxid of its own,
those of a transaction share one; a version counts changes of the value; a sequential name ends in
the count of creations below its parent, ten digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

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

# A real server's first zxid: epoch 1, counter 0.
ZXID_FIRST = 1 << 32
# Paths that are remembered as good ones: more than a story of many topics has at a time.
PATHS_CHECKED_MAX = 4096


class Event(Enum):
    """What watches report."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


@dataclass(slots=True, eq=False)
class Node:
    """One node, of which ``NodeTree`` knows the path."""

    value: bytes
    # What clients are told of it: counts of its changes, times, its owner.
    stat: NodeStat
    # How many children were ever made: the number of the next sequential one.
    creations: int = 0
    # Their names, in the order of creation.
    children: dict[str, None] = field(default_factory=dict[str, None])

    def copy(self) -> Node:
        """The node as it is now; the copy changes with nothing."""
        return Node(self.value, self.stat, self.creations, dict(self.children))


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
        # In the order of creation, which is that in which the nodes of a session are deleted.
        self._nodes: dict[str, Node] = {"/": Node(b"", NodeStat(0, 0, 0, 0))}
        # What is to be reported once all of a change is made.
        self._events: list[tuple[Event, str]] = []

    def copy(self) -> NodeTree:
        """The tree as it is now, to be read; it reports no events."""
        other = NodeTree(lambda _event, _path: None, self._now_ms)
        other.zxid = self.zxid
        # Deep enough: values and stats are never changed in place.
        other._nodes = {path: node.copy() for path, node in self._nodes.items()}
        return other

    # --- reading ----------------------------------------------------------------------------

    def node(self, path: str, version: int = ANY_VERSION) -> Node:
        """The node itself, in this version. Raises ``NodeMissing``, ``VersionMismatch``."""
        check_path(path)
        node = self._nodes.get(path)
        if node is None:
            raise NodeMissing(path)
        if version not in (ANY_VERSION, node.stat.version):
            raise VersionMismatch(path)
        return node

    def get(self, path: str) -> tuple[bytes, NodeStat]:
        """Value and stat; raises ``NodeMissing``."""
        node = self.node(path)
        return node.value, node.stat

    def exists(self, path: str) -> NodeStat | None:
        """Stat, or None."""
        check_path(path)
        node = self._nodes.get(path)
        return None if node is None else node.stat

    def children(self, path: str) -> list[str]:
        """Names, sorted; raises ``NodeMissing``."""
        # ZooKeeper promises no order; a sorted list is at least the same in every run.
        return sorted(self.node(path).children)

    def values(self) -> dict[str, bytes]:
        """All nodes' values by path, sorted, without the root: for tests to look at."""
        return {path: self._nodes[path].value for path in sorted(self._nodes) if path != "/"}

    # --- changing ---------------------------------------------------------------------------

    def create(
        self, path: str, value: bytes, owner: int = 0, *, is_sequential: bool = False
    ) -> str:
        """Create a node; returns its path. Raises ``NodeExists``, ``NodeMissing``."""
        # Also where the change is refused, as in ZooKeeper; so do the others.
        self.zxid += 1
        created = self._create(path, value, owner, is_sequential=is_sequential)
        self._report()
        return created

    def set(self, path: str, value: bytes, version: int = ANY_VERSION) -> NodeStat:
        """Replace a value. Raises ``NodeMissing``, ``VersionMismatch``."""
        self.zxid += 1
        stat = self._set(path, value, version)
        self._report()
        return stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises ``NodeMissing``, ``VersionMismatch``, ``NodeNotEmpty``."""
        self.zxid += 1
        self._delete(path, version)
        self._report()

    def transaction(self, operations: Sequence[Operation], owner: int) -> None:
        """Do all operations, or none, under one zxid; ``owner`` is the session that asks."""
        self.zxid += 1
        # All that the operations may touch, as it is now: nothing is seen of a transaction that
        # fails, but for its zxid. A node and its parent: a creation or deletion changes the
        # parent's children, and its count.
        before: dict[str, Node | None] = {}
        for operation in operations:
            for path in (operation.path, operation.path.rpartition("/")[0] or "/"):
                if path not in before:
                    touched = self._nodes.get(path)
                    before[path] = None if touched is None else touched.copy()
        try:
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
                        self.node(path, version)
        except BaseException:
            for path, node in before.items():
                if node is not None:
                    self._nodes[path] = node
                else:
                    self._nodes.pop(path, None)
            self._events.clear()
            raise
        self._report()

    def delete_ephemerals(self, session_id: int) -> None:
        """Delete the nodes of a session that ends, under one zxid."""
        self.zxid += 1
        nodes = self._nodes.items()
        # Ephemeral nodes have no children (``_create``), so none of these deletions is refused.
        for path in [path for path, node in nodes if node.stat.ephemeral_owner == session_id]:
            self._delete(path, ANY_VERSION)
        self._report()

    def _report(self) -> None:
        # An event may lead to the next change at once: this one is over before it is reported.
        events, self._events = self._events, []
        for event, path in events:
            self._on_event(event, path)

    # These three refuse before they change anything, so that what is refused leaves no trace.

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
        if parent.stat.ephemeral_owner:
            raise CoordinationError(f"node {parent_path} is ephemeral and can have no children")
        parent.creations += 1
        parent.children[name] = None
        zxid, now_ms = self.zxid, self._now_ms()
        self._nodes[path] = Node(bytes(value), NodeStat(0, zxid, zxid, owner, now_ms, now_ms))
        # In the order in which ZooKeeper fires them: the node's own watches, then its parent's.
        self._events += [(Event.CREATED, path), (Event.CHILDREN, parent_path or "/")]
        return path

    def _set(self, path: str, value: bytes, version: int) -> NodeStat:
        node = self.node(path, version)
        stat = node.stat
        node.value = bytes(value)
        node.stat = NodeStat(
            # Counts changes of the value; the creation is none.
            stat.version + 1,
            stat.created_zxid,
            self.zxid,
            stat.ephemeral_owner,
            stat.created_ms,
            self._now_ms(),
        )
        self._events.append((Event.CHANGED, path))
        return node.stat

    def _delete(self, path: str, version: int) -> None:
        if self.node(path, version).children:
            raise NodeNotEmpty(path)
        if path == "/":
            raise CoordinationError("the root cannot be deleted")
        parent_path, _, name = path.rpartition("/")
        del self._nodes[path]
        del self._nodes[parent_path or "/"].children[name]
        self._events += [(Event.DELETED, path), (Event.CHILDREN, parent_path or "/")]


# Cached: a cluster asks for the same few hundred paths again and again (0.3 us instead of 4).
@lru_cache(maxsize=PATHS_CHECKED_MAX)
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
