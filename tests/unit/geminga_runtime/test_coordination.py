"""Helpers of the interface: trees deleted, ephemeral nodes taken over, requests measured."""

from __future__ import annotations

import pytest

from geminga_runtime.coordination import (
    REQUEST_BYTES_MAX,
    Check,
    Coordination,
    CoordinationError,
    Delete,
    NodeTooLarge,
    Set,
    VersionMismatch,
    check_size,
    delete_tree,
    operation_bytes,
    take_over_ephemeral,
)
from geminga_simulation.zookeeper.interception import InstantSession


@pytest.fixture
async def session() -> InstantSession:
    """A session with an empty ZooKeeper."""
    return InstantSession()


def node(session: InstantSession, path: str) -> tuple[bytes, int, int]:
    """Value, version and owner."""
    value, stat = session.zookeeper.tree.get(path)
    return value, stat.version, stat.ephemeral_owner


async def left_behind(session: InstantSession) -> None:
    """An earlier session holds the node, and has written it once."""
    other = session.another()
    await other.create("/me", b"older", ephemeral=True)
    await other.set("/me", b"old")


async def test_a_tree_is_deleted_from_the_leaves_up(session: InstantSession) -> None:
    for path in ("/a/b/c", "/a/d", "/other"):
        session.zookeeper.put(path)
    coordination: Coordination = session
    await delete_tree(coordination, "/a")
    assert list(session.zookeeper.tree.values()) == ["/other"]
    await delete_tree(coordination, "/a")


async def test_below_the_root_names_have_one_slash(session: InstantSession) -> None:
    session.zookeeper.put("/a/b")
    with pytest.raises(CoordinationError, match="the root cannot be deleted"):
        await delete_tree(session, "/")
    assert session.zookeeper.tree.values() == {}


async def test_a_missing_node_is_created(session: InstantSession) -> None:
    await take_over_ephemeral(session, "/me", b"v")
    assert node(session, "/me") == (b"v", 0, session.session_id)


async def test_a_node_of_this_session_gets_the_new_value(session: InstantSession) -> None:
    await session.create("/me", b"old", ephemeral=True)
    await take_over_ephemeral(session, "/me", b"new")
    assert node(session, "/me") == (b"new", 1, session.session_id)


async def test_a_node_of_an_earlier_session_is_replaced_in_one_transaction(
    session: InstantSession,
) -> None:
    await left_behind(session)
    await take_over_ephemeral(session, "/me", b"new")
    assert node(session, "/me") == (b"new", 0, session.session_id)
    assert session.requests == ["exists /me", "transaction 2"]


async def test_a_node_that_goes_or_changes_meanwhile_is_looked_at_again(
    session: InstantSession,
) -> None:
    await left_behind(session)
    disturb = [
        lambda: session.zookeeper.put("/me", b"stolen"),
        lambda: session.zookeeper.remove("/me"),
    ]
    session.before = lambda verb, _: disturb.pop(0)() if verb == "transaction" else None
    await take_over_ephemeral(session, "/me", b"new")
    assert disturb == []
    assert node(session, "/me") == (b"new", 0, session.session_id)


async def test_a_take_over_that_another_process_keeps_undoing_fails_in_the_end(
    session: InstantSession,
) -> None:
    await left_behind(session)
    session.before = lambda verb, _: (
        session.zookeeper.put("/me", b"stolen") if verb == "transaction" else None
    )
    with pytest.raises(VersionMismatch):
        await take_over_ephemeral(session, "/me", b"new")
    assert session.zookeeper.tree.get("/me")[0] == b"stolen"


def test_operations_are_values() -> None:
    assert Check("/a", 1) == Check("/a", 1)
    assert Set("/a", b"", 2) != Set("/a", b"", 3)


def test_a_request_over_the_limit_is_refused_with_its_size() -> None:
    check_size("/a", REQUEST_BYTES_MAX - 2)
    with pytest.raises(NodeTooLarge, match="node /a would hold 1000000 bytes") as refused:
        check_size("/a", REQUEST_BYTES_MAX)
    assert refused.value.size_bytes == REQUEST_BYTES_MAX
    assert operation_bytes(Set("/abc", b"12")) == 6
    assert operation_bytes(Delete("/abc")) == 4
