"""What every ``Coordination`` must do, ours in memory and the one over a real ZooKeeper.

Derive a test class and give it a fixture ``coordinations``: an async function that returns a fresh
session with the same, otherwise unused, ZooKeeper each time it is called. Nothing here needs
virtual time: what must happen is waited for, with a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import pytest

from geminga_runtime.coordination import (
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NodeStat,
    NodeTooLarge,
    Operation,
    Set,
    VersionMismatch,
    delete_tree,
    take_over_ephemeral,
)

DEADLINE_S = 60.0


class Closable(Coordination, Protocol):
    """A session that can be ended."""

    async def close(self) -> None: ...


Coordinations = Callable[[], Awaitable[Closable]]


class Heard:
    """Counts the calls of a watch and can be waited for."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._event.set()

    async def wait(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self._event.wait()


class CoordinationConformance:
    """See the module's text."""

    async def test_a_node_is_created_read_set_and_deleted(
        self, coordinations: Coordinations
    ) -> None:
        session = await coordinations()
        assert await session.create("/a", b"one") == "/a"
        value, stat = await session.get("/a")
        assert (value, stat.version, stat.ephemeral_owner) == (b"one", 0, 0)
        assert stat.created_zxid == stat.modified_zxid > 0
        changed = await session.set("/a", b"two", version=0)
        assert changed.version == 1
        assert changed.created_zxid == stat.created_zxid < changed.modified_zxid
        assert await session.get("/a") == (b"two", changed)
        assert await session.exists("/a") == changed
        await session.delete("/a", version=1)
        assert await session.exists("/a") is None

    async def test_an_empty_value_stays_empty(self, coordinations: Coordinations) -> None:
        session = await coordinations()
        await session.create("/empty")
        assert (await session.get("/empty"))[0] == b""

    async def test_a_version_that_is_not_the_nodes_is_refused(
        self, coordinations: Coordinations
    ) -> None:
        session = await coordinations()
        await session.create("/a", b"0")
        with pytest.raises(VersionMismatch) as caught:
            await session.set("/a", b"1", version=3)
        assert caught.value.path == "/a"
        with pytest.raises(VersionMismatch):
            await session.delete("/a", version=3)
        assert (await session.set("/a", b"1")).version == 1
        await session.delete("/a")

    async def test_of_two_sessions_that_compare_and_set_one_wins(
        self, coordinations: Coordinations
    ) -> None:
        first, second = await coordinations(), await coordinations()
        await first.create("/a", b"0")
        results = await asyncio.gather(
            first.set("/a", b"first", version=0),
            second.set("/a", b"second", version=0),
            return_exceptions=True,
        )
        assert sorted(type(result).__name__ for result in results) == [
            "NodeStat",
            "VersionMismatch",
        ]
        winner = b"second" if isinstance(results[0], VersionMismatch) else b"first"
        await second.get("/a")  # a read may lag behind another session's write; ours may not
        assert (await (first if winner == b"first" else second).get("/a"))[0] == winner

    async def test_missing_present_and_occupied_nodes_are_said_so(
        self, coordinations: Coordinations
    ) -> None:
        session = await coordinations()
        for ask in (session.get, session.children, session.delete):
            with pytest.raises(NodeMissing):
                await ask("/none")
        with pytest.raises(NodeMissing):
            await session.set("/none", b"")
        with pytest.raises(NodeMissing):
            await session.create("/none/child")
        await session.create("/a")
        with pytest.raises(NodeExists):
            await session.create("/a")
        await session.create("/a/child")
        with pytest.raises(NodeNotEmpty):
            await session.delete("/a")

    async def test_missing_parents_are_made_on_demand(self, coordinations: Coordinations) -> None:
        session = await coordinations()
        assert await session.create("/x/y/z", b"deep", make_parents=True) == "/x/y/z"
        assert await session.create("/x/y/w", make_parents=True) == "/x/y/w"
        assert await session.children("/x/y") == ["w", "z"]
        assert (await session.get("/x"))[0] == b""
        with pytest.raises(NodeExists):
            await session.create("/x/y/z", make_parents=True)

    async def test_sequential_names_have_ten_digits_that_grow(
        self, coordinations: Coordinations
    ) -> None:
        session = await coordinations()
        await session.create("/q")
        made = [await session.create("/q/id-", sequential=True) for _ in range(3)]
        assert made == ["/q/id-0000000000", "/q/id-0000000001", "/q/id-0000000002"]
        assert await session.children("/q") == [path[3:] for path in made]
        again = await session.create("/deep/er/id-", sequential=True, make_parents=True)
        assert again == "/deep/er/id-0000000000"

    async def test_children_come_sorted(self, coordinations: Coordinations) -> None:
        session = await coordinations()
        for name in ("b", "a", "c10", "c2"):
            await session.create(f"/p/{name}", make_parents=True)
        assert await session.children("/p") == ["a", "b", "c10", "c2"]

    async def test_an_ephemeral_node_is_gone_when_its_session_ends(
        self, coordinations: Coordinations
    ) -> None:
        owner, other = await coordinations(), await coordinations()
        await owner.create("/e", b"mine", ephemeral=True)
        await owner.create("/s-", ephemeral=True, sequential=True)
        gone = Heard()
        value, stat = await eventually(lambda: other.get("/e", on_change=gone))
        assert (value, stat.ephemeral_owner) == (b"mine", owner.session_id)
        assert owner.session_id != other.session_id
        await owner.close()
        await gone.wait()
        assert await other.exists("/e") is None

    async def test_a_watch_on_a_value_is_called_once(self, coordinations: Coordinations) -> None:
        session, other = await coordinations(), await coordinations()
        await session.create("/a", b"0")
        heard = Heard()
        await session.get("/a", on_change=heard)
        await session.create("/a/child")
        await other.set("/a", b"1")
        await heard.wait()
        await session.set("/a", b"2")
        await session.delete("/a/child")
        await session.get("/a")
        assert heard.count == 1

    async def test_a_watch_is_called_before_its_own_session_sees_the_change(
        self, coordinations: Coordinations
    ) -> None:
        session, other = await coordinations(), await coordinations()
        await session.create("/a", b"0")
        for number in range(1, 20):
            heard = Heard()
            await session.get("/a", on_change=heard)
            setting = asyncio.ensure_future(other.set("/a", b"%d" % number))
            value = b""
            while value != b"%d" % number:
                value, _ = await session.get("/a")
            await asyncio.sleep(0)
            assert heard.count == 1
            await setting

    async def test_a_watch_on_a_missing_node_is_called_when_it_is_created(
        self, coordinations: Coordinations
    ) -> None:
        session = await coordinations()
        created, never = Heard(), Heard()
        assert await session.exists("/a", on_change=created) is None
        with pytest.raises(NodeMissing):
            await session.get("/a", on_change=never)
        await session.create("/a")
        await created.wait()
        await session.exists("/a")
        assert never.count == 0

    async def test_a_watch_is_called_when_its_node_is_deleted(
        self, coordinations: Coordinations
    ) -> None:
        session = await coordinations()
        await session.create("/a")
        value, existence, children = Heard(), Heard(), Heard()
        await session.get("/a", on_change=value)
        await session.exists("/a", on_change=existence)
        await session.children("/a", on_change=children)
        await session.delete("/a")
        for heard in (value, existence, children):
            await heard.wait()
            assert heard.count == 1

    async def test_a_watch_on_children_hears_of_births_and_deaths_not_of_values(
        self, coordinations: Coordinations
    ) -> None:
        session = await coordinations()
        await session.create("/p")
        born = Heard()
        await session.children("/p", on_change=born)
        await session.set("/p", b"value")
        await session.exists("/p")
        assert born.count == 0
        await session.create("/p/child")
        await born.wait()
        died = Heard()
        assert await session.children("/p", on_change=died) == ["child"]
        await session.set("/p/child", b"value")
        await session.create("/p/child/grandchild")
        await session.exists("/p")
        assert died.count == 0
        await session.delete("/p/child/grandchild")
        await session.delete("/p/child")
        await died.wait()
        assert born.count == 1

    async def test_a_read_that_found_nothing_leaves_no_watch(
        self, coordinations: Coordinations
    ) -> None:
        session, heard = await coordinations(), Heard()
        for read in (session.get, session.children):
            with pytest.raises(NodeMissing):
                await read("/a", on_change=heard)
        await session.create("/a")
        await session.create("/a/child")
        await session.exists("/a")
        assert heard.count == 0

    async def test_an_ephemeral_node_has_no_children(self, coordinations: Coordinations) -> None:
        session = await coordinations()
        await session.create("/e", ephemeral=True)
        with pytest.raises(CoordinationError, match="phemeral"):
            await session.create("/e/below")

    async def test_names_of_topics_are_names_of_nodes(self, coordinations: Coordinations) -> None:
        session = await coordinations()
        name = "a%2Fb+%25%3F ü"
        await session.create(f"/{name}", b"v")
        assert await session.children("/") in ([name], [name, "zookeeper"])
        assert (await session.get(f"/{name}"))[0] == b"v"

    async def test_a_value_too_large_is_refused_before_it_costs_the_connection(
        self, coordinations: Coordinations
    ) -> None:
        session = await coordinations()
        with pytest.raises(NodeTooLarge, match="2000000 bytes"):
            await session.create("/large", bytes(2_000_000))
        with pytest.raises(NodeTooLarge):
            await session.transaction([Create(f"/{n}", bytes(600_000)) for n in range(2)])
        await session.create("/large", bytes(900_000))
        assert len((await session.get("/large"))[0]) == 900_000

    async def test_an_operation_that_cannot_be_done_is_named_by_its_path(
        self, coordinations: Coordinations
    ) -> None:
        session = await coordinations()
        await session.create("/a")
        with pytest.raises(VersionMismatch) as mismatch:
            await session.transaction([Create("/new"), Set("/a", b"", 3), Delete("/gone")])
        assert mismatch.value.path == "/a"
        with pytest.raises(NodeMissing) as missing:
            await session.transaction([Create("/new"), Delete("/gone")])
        assert missing.value.path == "/gone"
        assert await session.exists("/new") is None

    async def test_a_transaction_does_all(self, coordinations: Coordinations) -> None:
        session = await coordinations()
        await session.create("/a", b"0")
        await session.create("/old")
        await session.transaction(
            [
                Check("/a", 0),
                Set("/a", b"1", 0),
                Create("/a/new", b"n"),
                Create("/e", b"e", is_ephemeral=True),
                Delete("/old"),
            ]
        )
        assert (await session.get("/a"))[0] == b"1"
        assert await session.children("/a") == ["new"]
        assert (await session.get("/e"))[1].ephemeral_owner == session.session_id
        assert await session.exists("/old") is None
        await session.transaction([])

    @pytest.mark.parametrize(
        ("failing", "error", "path"),
        [
            (Create("/a"), NodeExists, "/a"),
            (Create("/none/x"), NodeMissing, "/none/x"),
            (Set("/a", b"", 5), VersionMismatch, "/a"),
            (Set("/none", b""), NodeMissing, "/none"),
            (Delete("/a"), NodeNotEmpty, "/a"),
            (Check("/a", 5), VersionMismatch, "/a"),
            (Check("/none", 0), NodeMissing, "/none"),
        ],
    )
    async def test_a_transaction_does_nothing_when_one_operation_fails(
        self,
        coordinations: Coordinations,
        failing: Operation,
        error: type[NodeMissing],
        path: str,
    ) -> None:
        session = await coordinations()
        await session.create("/a/b", make_parents=True)
        operations: Sequence[Operation] = [Create("/new"), failing, Delete("/nowhere")]
        with pytest.raises(error) as caught:
            await session.transaction(operations)
        assert caught.value.path == path
        assert await session.exists("/new") is None

    async def test_requests_of_a_session_are_done_in_order(
        self, coordinations: Coordinations
    ) -> None:
        session = await coordinations()
        await session.create("/a")
        stats = await asyncio.gather(*(session.set("/a", b"%d" % turn) for turn in range(50)))
        assert [stat.version for stat in stats] == list(range(1, 51))

    async def test_a_tree_is_deleted_whole(self, coordinations: Coordinations) -> None:
        session = await coordinations()
        await session.create("/t/a/b", make_parents=True)
        await session.create("/t/c")
        await delete_tree(session, "/t")
        await delete_tree(session, "/t")
        assert await session.exists("/t") is None

    async def test_an_ephemeral_node_of_an_earlier_life_is_taken_over_at_once(
        self, coordinations: Coordinations
    ) -> None:
        before, after = await coordinations(), await coordinations()
        await take_over_ephemeral(before, "/loadbalance/brokers/me", b"before")
        await eventually(lambda: after.get("/loadbalance/brokers/me"))
        await take_over_ephemeral(after, "/loadbalance/brokers/me", b"after")
        await before.close()
        value, stat = await after.get("/loadbalance/brokers/me")
        assert (value, stat.ephemeral_owner) == (b"after", after.session_id)


async def eventually(
    ask: Callable[[], Awaitable[tuple[bytes, NodeStat]]],
) -> tuple[bytes, NodeStat]:
    """A read of one session may lag behind another session's write: ask until it is there."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await ask()
            except NodeMissing:
                await asyncio.sleep(0.001)
