"""Translates kazoo's states, errors, stats and operations to ours and back.

Nothing here waits or keeps anything; ``session`` has the session, ``kazoo_bridge`` the thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
    ThrottledOpError,
)
from kazoo.protocol.states import KazooState, KeeperState

from geminga_runtime.coordination import (
    Check,
    ConnectionLost,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NodeStat,
    Operation,
    SessionExpired,
    SessionState,
    Set,
    VersionMismatch,
)
from geminga_server.zookeeper.kazoo_client import TransactionBuilder

# Our state of a session, by kazoo's. kazoo says ``LOST`` only when a session is over.
SESSION_STATES: Mapping[str, SessionState] = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}
# In these states a kazoo client has stopped for good, and begins no new session.
DEAD_STATES: frozenset[str] = frozenset({KeeperState.CLOSED, KeeperState.AUTH_FAILED})


class KazooStat(Protocol):
    """What we read of ``kazoo.protocol.states.ZnodeStat``."""

    version: int
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    ephemeralOwner: int  # noqa: N815 - kazoo's name


def coordination_error(error: BaseException, path: str) -> CoordinationError:
    """Our error for kazoo's about a request for ``path``."""
    match error:
        case NoNodeError():
            return NodeMissing(path)
        case NodeExistsError():
            return NodeExists(path)
        case NotEmptyError():
            return NodeNotEmpty(path)
        case BadVersionError():
            return VersionMismatch(path)
        # Before SessionExpiredError: kazoo derives this one from it.
        case ConnectionClosedError():
            return ConnectionLost(f"no connection to ZooKeeper for the request for {path}")
        case SessionExpiredError():
            return SessionExpired(f"the ZooKeeper session was over before the answer for {path}")
        # Alike for callers: a write may or may not have been carried out.
        case ConnectionLoss() | OperationTimeoutError() | SessionMovedError() | ThrottledOpError():
            return ConnectionLost(f"ZooKeeper gave no answer for {path}: {type(error).__name__}")
        # Mistakes of ours, or settings of the server, such as a permission or a quota.
        case _:
            return CoordinationError(f"ZooKeeper refused the request for {path}: {error!r}")


def transaction_error(
    results: Sequence[object], operations: Sequence[Operation]
) -> CoordinationError | None:
    """The error of the operation that stopped the transaction, or None if all were done.

    ZooKeeper answers "rolled back" for the operations before it, "inconsistency" for those after.
    """
    # One result for each operation, in order; at most one of them is the error that stopped it.
    for result, operation in zip(results, operations, strict=True):
        if isinstance(result, Exception) and not isinstance(
            result, RolledBackError | RuntimeInconsistency
        ):
            return coordination_error(result, operation.path)
    return None


def node_stat(stat: KazooStat) -> NodeStat:
    """The facts of kazoo's stat that we use."""
    return NodeStat(
        version=stat.version,
        created_zxid=stat.czxid,
        modified_zxid=stat.mzxid,
        ephemeral_owner=stat.ephemeralOwner,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
    )


def parents(path: str) -> list[str]:
    """``/a/b`` for ``/a/b/c``, and so on up, the topmost first."""
    # Without the root, which exists always, or is the chroot and made when the session opens.
    names = path.split("/")[1:-1]
    return ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]


def add_operation(builder: TransactionBuilder, operation: Operation) -> None:
    """Add ``operation`` to kazoo's transaction."""
    match operation:
        case Create(path, value, is_ephemeral):
            builder.create(path, value, ephemeral=is_ephemeral)
        case Set(path, value, version):
            builder.set_data(path, value, version)
        case Delete(path, version):
            builder.delete(path, version)
        case Check(path, version):
            builder.check(path, version)
