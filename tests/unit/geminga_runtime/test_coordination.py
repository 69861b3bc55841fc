"""Helpers of the interface: trees deleted, ephemeral nodes taken over, requests measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from geminga_runtime.coordination import (
    ANY_VERSION,
    REQUEST_BYTES_MAX,
    Check,
    Coordination,
    Create,
    Delete,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NodeStat,
    NodeTooLarge,
    OnChange,
    OnSession,
    Operation,
    Set,
    VersionMismatch,
    check_size,
    delete_tree,
    operation_bytes,
    take_over_ephemeral,
)


@dataclass
class Tree:
    """The least of a coordination that the helpers need; ``disturb`` acts before transactions."""

    session_id: int = 1
    nodes: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)
    disturb: list[tuple[str, int]] = field(default_factory=list)
    transactions: list[list[Operation]] = field(default_factory=list)

    def put(self, path: str, value: bytes = b"", *, owner: int = 0, version: int = 0) -> None:
        self.nodes[path] = (value, version, owner)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        assert make_parents
        assert not sequential
        if path in self.nodes:
            raise NodeExists(path)
        self.put(path, value, owner=self.session_id if ephemeral else 0)
        return path

    async def get(self, path: str, *, on_change: OnChange | None = None) -> tuple[bytes, NodeStat]:
        raise NotImplementedError

    async def exists(self, path: str, *, on_change: OnChange | None = None) -> NodeStat | None:
        assert on_change is None
        if path not in self.nodes:
            return None
        _, version, owner = self.nodes[path]
        return NodeStat(version=version, created_zxid=1, modified_zxid=1, ephemeral_owner=owner)

    async def children(self, path: str, *, on_change: OnChange | None = None) -> list[str]:
        assert on_change is None
        if path != "/" and path not in self.nodes:
            raise NodeMissing(path)
        prefix = path.rstrip("/") + "/"
        below = [node.removeprefix(prefix) for node in self.nodes if node.startswith(prefix)]
        return sorted(name for name in below if "/" not in name)

    async def set(self, path: str, value: bytes, *, version: int = ANY_VERSION) -> NodeStat:
        _, current, owner = self.nodes[path]
        assert version == current
        self.put(path, value, owner=owner, version=version + 1)
        return NodeStat(version + 1, 1, 2, owner)

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        assert version == ANY_VERSION
        if path != "/" and await self.children(path):
            raise NodeNotEmpty(path)
        self.nodes.pop(path, None)

    async def transaction(self, operations: Sequence[Operation]) -> None:
        self.transactions.append(list(operations))
        if self.disturb:
            path, owner = self.disturb.pop(0)
            if owner:
                self.put(path, b"stolen", owner=owner, version=self.nodes[path][1] + 1)
            else:
                del self.nodes[path]
        for operation in operations:
            if isinstance(operation, Delete):
                if operation.path not in self.nodes:
                    raise NodeMissing(operation.path)
                if self.nodes[operation.path][1] != operation.version:
                    raise VersionMismatch(operation.path)
                del self.nodes[operation.path]
            else:
                assert isinstance(operation, Create)
                assert operation.is_ephemeral
                self.put(operation.path, operation.value, owner=self.session_id)

    def on_session(self, callback: OnSession) -> None:
        raise NotImplementedError


@pytest.fixture
def tree() -> Tree:
    return Tree()


async def test_a_tree_is_deleted_from_the_leaves_up(tree: Tree) -> None:
    for path in ("/a", "/a/b", "/a/b/c", "/a/d", "/other"):
        tree.put(path)
    coordination: Coordination = tree
    await delete_tree(coordination, "/a")
    assert list(tree.nodes) == ["/other"]
    await delete_tree(coordination, "/a")


async def test_below_the_root_names_have_one_slash(tree: Tree) -> None:
    tree.put("/a")
    tree.put("/a/b")
    await delete_tree(tree, "/")
    assert tree.nodes == {}


async def test_a_missing_node_is_created(tree: Tree) -> None:
    await take_over_ephemeral(tree, "/me", b"v")
    assert tree.nodes == {"/me": (b"v", 0, 1)}


async def test_a_node_of_this_session_gets_the_new_value(tree: Tree) -> None:
    tree.put("/me", b"old", owner=1, version=4)
    await take_over_ephemeral(tree, "/me", b"new")
    assert tree.nodes == {"/me": (b"new", 5, 1)}


async def test_a_node_of_an_earlier_session_is_replaced_in_one_transaction(tree: Tree) -> None:
    tree.put("/me", b"old", owner=99, version=3)
    await take_over_ephemeral(tree, "/me", b"new")
    assert tree.nodes == {"/me": (b"new", 0, 1)}
    assert tree.transactions == [[Delete("/me", 3), Create("/me", b"new", is_ephemeral=True)]]


async def test_a_node_that_goes_or_changes_meanwhile_is_looked_at_again(tree: Tree) -> None:
    tree.put("/me", b"old", owner=99)
    tree.disturb = [("/me", 98), ("/me", 0)]
    await take_over_ephemeral(tree, "/me", b"new")
    assert tree.nodes == {"/me": (b"new", 0, 1)}


async def test_two_who_fight_for_a_node_do_not_fight_for_ever(tree: Tree) -> None:
    tree.put("/me", b"old", owner=99)
    tree.disturb = [("/me", 98)] * 100
    with pytest.raises(VersionMismatch):
        await take_over_ephemeral(tree, "/me", b"new")


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
