"""The tree of nodes: ZooKeeper's versions, zxids and names; failed transactions leave no trace."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_runtime.coordination import (
    Check,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    Operation,
    Set,
    VersionMismatch,
)
from geminga_simulation.zookeeper.node_tree import Event, NodeTree


class Watched:
    """A tree and what it told."""

    def __init__(self) -> None:
        self.events: list[tuple[Event, str]] = []
        self.tree = NodeTree(lambda event, path: self.events.append((event, path)))


def test_a_sequential_name_counts_all_creations_below_its_parent() -> None:
    tree = Watched().tree
    tree.create("/p", b"")
    assert tree.create("/p/a-", b"", is_sequential=True) == "/p/a-0000000000"
    tree.create("/p/plain", b"")
    tree.delete("/p/plain")
    assert tree.create("/p/b-", b"", is_sequential=True) == "/p/b-0000000002"
    assert tree.create("/p/", b"", is_sequential=True) == "/p/0000000003"


def test_every_change_has_its_zxid_and_a_transaction_one() -> None:
    tree = Watched().tree
    tree.create("/a", b"")
    tree.transaction([Create("/b"), Create("/c"), Set("/a", b"1")], 0)
    stats = [tree.get(path)[1] for path in ("/a", "/b", "/c")]
    assert stats[1].created_zxid == stats[2].created_zxid == stats[0].modified_zxid
    assert stats[0].created_zxid < stats[1].created_zxid
    assert [stat.version for stat in stats] == [1, 0, 0]


def test_watchers_are_told_after_the_whole_change() -> None:
    watched = Watched()
    watched.tree.create("/a", b"")
    watched.events.clear()
    watched.tree.transaction([Create("/a/b"), Set("/a", b"x"), Delete("/a/b")], 0)
    assert watched.events == [
        (Event.CREATED, "/a/b"),
        (Event.CHILDREN, "/a"),
        (Event.CHANGED, "/a"),
        (Event.DELETED, "/a/b"),
        (Event.CHILDREN, "/a"),
    ]


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/a/../b", "/."])
def test_paths_that_are_none_are_refused(path: str) -> None:
    tree = Watched().tree
    with pytest.raises(CoordinationError, match="no path"):
        tree.create(path, b"")
    with pytest.raises(CoordinationError, match="no path"):
        tree.exists(path)


def test_the_root_is_there_and_stays() -> None:
    tree = Watched().tree
    assert tree.get("/") == (b"", tree.exists("/"))
    with pytest.raises(NodeExists):
        tree.create("/", b"")
    with pytest.raises(CoordinationError, match="root"):
        tree.delete("/")


def test_an_ephemeral_node_has_no_children_and_dies_with_its_session() -> None:
    watched = Watched()
    tree = watched.tree
    tree.create("/e", b"", 7)
    tree.create("/f", b"", 7)
    tree.create("/g", b"", 8)
    with pytest.raises(CoordinationError, match="ephemeral"):
        tree.create("/e/child", b"")
    watched.events.clear()
    tree.delete_ephemerals(7)
    assert tree.children("/") == ["g"]
    assert [path for event, path in watched.events if event is Event.DELETED] == ["/e", "/f"]


def test_a_node_keeps_the_time_it_was_made_and_that_of_its_last_change() -> None:
    times_ms = iter((5, 9))
    tree = NodeTree(lambda _event, _path: None, times_ms.__next__)
    tree.create("/a", b"")
    assert tree.get("/a")[1].modified_ms == 5
    stat = tree.set("/a", b"new")
    assert (stat.created_ms, stat.modified_ms) == (5, 9)


def state_of(tree: NodeTree) -> object:
    """Everything one could ever see of a tree, without the zxid counter."""
    return {
        path: (node.value, node.stat, sorted(node.children), node.creations)
        for path, node in sorted(tree._nodes.items())
    }


PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/z", "/a/x/deep"])
VERSIONS = st.integers(-1, 2)
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=2), st.booleans()),
    st.builds(Set, PATHS, st.binary(max_size=2), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


@given(batches=st.lists(st.lists(OPERATIONS, max_size=6), max_size=8))
@settings(max_examples=200)
def test_a_transaction_that_fails_changes_nothing_and_fires_no_watch(
    batches: list[list[Operation]],
) -> None:
    watched = Watched()
    for batch in batches:
        before, told = state_of(watched.tree), len(watched.events)
        try:
            watched.tree.transaction(batch, 5)
        except CoordinationError:
            assert state_of(watched.tree) == before
            assert len(watched.events) == told


def test_the_error_is_that_of_the_first_operation_that_fails() -> None:
    tree = Watched().tree
    tree.create("/a", b"")
    tree.create("/a/b", b"")
    failures: list[tuple[Operation, type[CoordinationError]]] = [
        (Create("/a"), NodeExists),
        (Create("/none/x"), NodeMissing),
        (Set("/a", b"", 9), VersionMismatch),
        (Delete("/a"), NodeNotEmpty),
        (Delete("/a", 9), VersionMismatch),
        (Check("/none", 0), NodeMissing),
        (Check("/a", 9), VersionMismatch),
    ]
    for operation, error in failures:
        with pytest.raises(error):
            tree.transaction([Create("/new"), operation, Delete("/nowhere")], 0)
    assert tree.exists("/new") is None
