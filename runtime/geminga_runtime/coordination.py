"""The interface to ZooKeeper: a small tree of versioned nodes, and a session.

It is ZooKeeper's own model in its words: versions for compare-and-set, ephemeral nodes that die
with the session, sequential names, one-shot watches, transactions. ``geminga_server.zookeeper``
implements it; the twin in ``geminga_simulation`` expires sessions on demand. All methods raise the
errors below and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol

from geminga_runtime.errors import GemingaError

ANY_VERSION = -1
# The id of a session while there is none. ``NodeStat.ephemeral_owner`` is never this.
NO_SESSION = -1
# ZooKeeper drops the connection over a request longer than jute.maxbuffer (0xfffff bytes).
REQUEST_BYTES_MAX = 1_000_000
# A session that hears nothing is in doubt after this fraction of its time-out. The server counts
# from what it last heard of us, which is a little before we heard its answer; the tenth covers that
# and the time that our own callbacks take to stop leading.
DOUBT_FRACTION = 0.9
# Parts of a standalone must notice each other's death within seconds. 6 s are three kazoo pings.
SESSION_TIMEOUT_S = 6.0
# Parents made for a creation may be deleted again before it arrives; so often they are made again.
MAKE_PARENTS_ATTEMPTS_MAX = 5


# What an error says of the write that it answers:
#
#     NodeError         it was refused, and nothing was changed
#     ConnectionLost    it may have been carried out, or still be
#     SessionExpired    as ConnectionLost; and what the session owned is gone
#
# Of the node errors after a lost answer, ``NodeExists`` and ``VersionMismatch`` may be about the
# caller's own write: callers read the node to find out.


class CoordinationError(GemingaError):
    """ZooKeeper refused a request or could not be reached."""

    code: ClassVar[str] = "MetadataError"


class NodeError(CoordinationError):
    """An answer about one node; ``path`` names it."""

    # The predicate of the message, whose subject is the node.
    what: ClassVar[str]

    def __init__(self, path: str, what: str = "") -> None:
        super().__init__(f"node {path} {what or self.what}")
        self.path = path


class NodeMissing(NodeError):
    """The node (or the parent of the one to create) does not exist."""

    what = "does not exist"


class NodeExists(NodeError):
    """The node to create is already there."""

    what = "exists already"


class NodeNotEmpty(NodeError):
    """The node to delete has children."""

    what = "still has children"


class VersionMismatch(NodeError):
    """The node was changed since the given version was read: read it again, then decide."""

    what = "was changed by another client"


class NodeTooLarge(NodeError):
    """The value does not fit into one request, which would cost us the connection."""

    def __init__(self, path: str, size_bytes: int) -> None:
        what = f"would hold {size_bytes} bytes; ZooKeeper takes {REQUEST_BYTES_MAX}"
        super().__init__(path, what)
        self.size_bytes = size_bytes


class ConnectionLost(CoordinationError):
    """No answer came: a write may or may not have been made. Read before trying again."""

    retry = True


class SessionExpired(CoordinationError):
    """The session is over and with it every ephemeral node: ownership must be given up."""


class SessionState(Enum):
    """What the session is worth now."""

    CONNECTED = "connected"
    """Requests are answered. After SUSPENDED and DOUBTFUL the session is the same one."""
    SUSPENDED = "suspended"
    """The connection is lost, and the session lives: our ephemeral nodes are still there."""
    DOUBTFUL = "doubtful"
    """ZooKeeper was not heard of for as long as a session lasts. Either it has ended the session,
    and others may own what was ours; or it is away, and will know the session when it is back."""
    EXPIRED = "expired"
    """ZooKeeper says that the session is over: ephemeral nodes are gone. A new one begins when
    CONNECTED comes."""


@dataclass(frozen=True, slots=True)
class NodeStat:
    """The metadata of a node."""

    version: int
    # Zxids number all changes in the order in which ZooKeeper made them.
    created_zxid: int
    modified_zxid: int
    # The id of the session that an ephemeral node dies with; 0: the node is not ephemeral.
    ephemeral_owner: int
    # Unix time by ZooKeeper's clock, for people to read; 0 where it is not known.
    created_ms: int = 0
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """In a transaction: create ``path`` with ``value``."""

    path: str
    value: bytes = b""
    is_ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """In a transaction: replace the value if the node still has ``version``."""

    path: str
    value: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """In a transaction: delete the node if it still has ``version``."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """In a transaction: fail all of it unless the node has ``version``."""

    path: str
    version: int


Operation = Create | Set | Delete | Check
OnChange = Callable[[], None]
OnSession = Callable[[SessionState], None]


class Coordination(Protocol):
    """A session with ZooKeeper. Callbacks run on the event loop."""

    @property
    def session_id(self) -> int:
        """This session's id, as in ``NodeStat.ephemeral_owner`` of our nodes.

        ``NO_SESSION`` from the end of one session to the beginning of the next. A request that has
        no answer at the end of its session fails with ``SessionExpired``: no write that succeeds
        was carried out in a later session than the one in which it was requested.
        """
        ...

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node, return its path (with the number, where sequential).

        Raises ``NodeExists``; ``NodeMissing`` where the parent is missing and not to be made.
        """
        ...

    async def get(self, path: str, *, on_change: OnChange | None = None) -> tuple[bytes, NodeStat]:
        """Value and stat; ``on_change`` is called once, at the next change or deletion.

        Also when the connection breaks, since a change may then go unseen: a call means "read
        again". Raises ``NodeMissing`` (then no watch is left).
        """
        ...

    async def exists(self, path: str, *, on_change: OnChange | None = None) -> NodeStat | None:
        """Stat, or None; ``on_change`` is called once, at creation, change or deletion."""
        ...

    async def children(self, path: str, *, on_change: OnChange | None = None) -> list[str]:
        """Names of the children, sorted; ``on_change`` once when the list changes.

        Raises ``NodeMissing``.
        """
        ...

    async def set(self, path: str, value: bytes, *, version: int = ANY_VERSION) -> NodeStat:
        """Replace the value. Raises ``NodeMissing``, ``VersionMismatch``."""
        ...

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises ``NodeMissing``, ``VersionMismatch``, ``NodeNotEmpty``."""
        ...

    async def transaction(self, operations: Sequence[Operation]) -> None:
        """Do all operations or none. Raises the error of the first that could not be done."""
        ...

    def on_session(self, callback: OnSession) -> None:
        """Call ``callback`` at every change of the session's state, in order."""
        ...


# Here, so that the real session and the simulated one refuse the same requests.
def check_size(path: str, size_bytes: int) -> None:
    """Raise ``NodeTooLarge`` for a request about ``path`` with so many bytes of values."""
    # About: the rest of a request has some tens of bytes, and the limit leaves room for 48,000.
    if len(path) + size_bytes > REQUEST_BYTES_MAX:
        raise NodeTooLarge(path, size_bytes)


def operation_bytes(operation: Operation) -> int:
    """About how many bytes ``operation`` takes in a request."""
    value = operation.value if isinstance(operation, Create | Set) else b""
    return len(operation.path) + len(value)


async def delete_tree(coordination: Coordination, path: str) -> None:
    """Delete ``path`` and all below it; nothing to do where it is missing."""
    # Another process may delete the same tree: what is gone already is no error.
    try:
        # Children first: ZooKeeper deletes no node that has any.
        for name in await coordination.children(path):
            await delete_tree(coordination, f"{path.rstrip('/')}/{name}")
        # Raises ``NodeNotEmpty`` where another process has added a child since the list was read.
        await coordination.delete(path)
    except NodeMissing:
        return


# How often a take-over begins again because the node was changed between two requests.
TAKE_OVER_ATTEMPTS_MAX = 8


async def take_over_ephemeral(coordination: Coordination, path: str, value: bytes) -> None:
    """Make ``path`` an ephemeral node of this session that holds ``value``, at once.

    A node left by an earlier life of this process (killed, its session not expired yet) is deleted
    and created anew in one transaction, so that no other client sees it missing. Only for nodes of
    an identity that certainly no other living process has (the lock of its data directory is held);
    otherwise the node of another process would be stolen. Missing parents are made. Raises
    ``VersionMismatch`` if another process keeps taking the node too.
    """
    for _ in range(TAKE_OVER_ATTEMPTS_MAX):
        stat = await coordination.exists(path)
        # Each way to write depends on what was read: a change in between makes it fail.
        try:
            if stat is None:
                await coordination.create(path, value, ephemeral=True, make_parents=True)
            elif stat.ephemeral_owner == coordination.session_id:
                await coordination.set(path, value, version=stat.version)
            else:
                await coordination.transaction(
                    [Delete(path, stat.version), Create(path, value, is_ephemeral=True)]
                )
        except (NodeExists, NodeMissing, VersionMismatch):
            continue  # it changed since we looked
        return
    raise VersionMismatch(path)
