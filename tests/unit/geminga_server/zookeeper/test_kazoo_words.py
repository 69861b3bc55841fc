"""kazoo's words become ours: every state, every error, the operation that stopped a transaction."""

from __future__ import annotations

import asyncio

import kazoo.exceptions
import pytest
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat

from geminga_runtime.clock import SystemClock
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
    Set,
    VersionMismatch,
)
from geminga_server.zookeeper import kazoo_words
from geminga_server.zookeeper.kazoo_bridge import Answer, LoopHandler
from geminga_server.zookeeper.kazoo_client import connect_kazoo, stop_client


def test_every_state_of_kazoo_has_a_meaning() -> None:
    theirs = {state for name, state in vars(KazooState).items() if name.isupper()}
    assert set(kazoo_words.SESSION_STATES) == theirs


def test_every_dead_state_is_one_of_kazoo() -> None:
    assert {getattr(KeeperState, state) for state in ("CLOSED", "AUTH_FAILED")} == (
        kazoo_words.DEAD_STATES
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (kazoo.exceptions.NoNodeError, NodeMissing),
        (kazoo.exceptions.NodeExistsError, NodeExists),
        (kazoo.exceptions.NotEmptyError, NodeNotEmpty),
        (kazoo.exceptions.BadVersionError, VersionMismatch),
        (kazoo.exceptions.SessionExpiredError, SessionExpired),
        (kazoo.exceptions.ConnectionClosedError, ConnectionLost),
        (kazoo.exceptions.ConnectionLoss, ConnectionLost),
        (kazoo.exceptions.OperationTimeoutError, ConnectionLost),
        (kazoo.exceptions.SessionMovedError, ConnectionLost),
        (kazoo.exceptions.ThrottledOpError, ConnectionLost),
        (kazoo.exceptions.NoAuthError, CoordinationError),
        (kazoo.exceptions.QuotaExceededError, CoordinationError),
        (RuntimeError, CoordinationError),
    ],
)
def test_every_error_of_kazoo_becomes_one_of_ours(
    theirs: type[Exception], ours: type[CoordinationError]
) -> None:
    error = kazoo_words.coordination_error(theirs(), "/a/node")
    assert type(error) is ours
    assert "/a/node" in str(error)


def test_no_error_of_kazoo_escapes() -> None:
    errors = [kind for kind in vars(kazoo.exceptions).values() if isinstance(kind, type)]
    for kind in errors:
        if issubclass(kind, kazoo.exceptions.KazooException):
            assert isinstance(kazoo_words.coordination_error(kind(), "/a"), CoordinationError)


OPERATIONS: list[Operation] = [Create("/a"), Set("/b", b""), Delete("/c"), Check("/d", 3)]


@pytest.mark.parametrize("failed", range(4))
def test_the_error_is_that_of_the_operation_that_stopped_the_transaction(failed: int) -> None:
    results: list[object] = [kazoo.exceptions.RolledBackError() for _ in range(failed)]
    results.append(kazoo.exceptions.BadVersionError())
    results += [kazoo.exceptions.RuntimeInconsistency() for _ in range(3 - failed)]
    error = kazoo_words.transaction_error(results, OPERATIONS)
    assert isinstance(error, VersionMismatch)
    assert error.path == OPERATIONS[failed].path


def test_a_transaction_that_was_done_has_no_error() -> None:
    assert kazoo_words.transaction_error(["/a", object(), True, True], OPERATIONS) is None


def test_a_stat_keeps_version_zxids_owner_and_times() -> None:
    stat = ZnodeStat(11, 12, 21, 22, 3, 0, 0, -7, 5, 0, 13)
    assert kazoo_words.node_stat(stat) == NodeStat(
        version=3,
        created_zxid=11,
        modified_zxid=12,
        ephemeral_owner=-7,
        created_ms=21,
        modified_ms=22,
    )


def test_parents_come_topmost_first() -> None:
    assert kazoo_words.parents("/a/b/c") == ["/a", "/a/b"]
    assert kazoo_words.parents("/a") == []


class Builder:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def create(self, path: str, value: bytes, *, ephemeral: bool) -> None:
        self.told.append(("create", path, value, ephemeral))

    def set_data(self, path: str, value: bytes, version: int) -> None:
        self.told.append(("set", path, value, version))

    def delete(self, path: str, version: int) -> None:
        self.told.append(("delete", path, version))

    def check(self, path: str, version: int) -> None:
        self.told.append(("check", path, version))

    def commit_async(self) -> Answer:
        return Answer()


def test_operations_are_said_in_kazoos_words() -> None:
    builder = Builder()
    operations: list[Operation] = [
        Create("/a", b"v", is_ephemeral=True),
        Set("/b", b"w", 2),
        Delete("/c", 3),
        Check("/d", 4),
    ]
    for operation in operations:
        kazoo_words.add_operation(builder, operation)
    assert builder.told == [
        ("create", "/a", b"v", True),
        ("set", "/b", b"w", 2),
        ("delete", "/c", 3),
        ("check", "/d", 4),
    ]


async def test_a_client_that_hangs_on_stopping_is_left_alone() -> None:
    client = connect_kazoo("127.0.0.1:1", 5, LoopHandler(SystemClock()))

    def hang() -> None:
        raise kazoo.exceptions.WriterNotClosedException

    client.stop = hang  # type: ignore[method-assign]
    await asyncio.to_thread(stop_client, client)
