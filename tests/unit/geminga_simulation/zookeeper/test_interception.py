"""Requests of one session are listed, and go wrong on order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from geminga_runtime.coordination import Check, ConnectionLost, Create, NodeMissing
from geminga_simulation.conditions import INSTANT
from geminga_simulation.zookeeper.interception import InstantSession, InterceptedSession
from geminga_simulation.zookeeper.server import SimulatedZooKeeper

ResultT = TypeVar("ResultT")


@pytest.fixture
async def session() -> InterceptedSession:
    """A session with an empty ZooKeeper."""
    return InterceptedSession(SimulatedZooKeeper(conditions=INSTANT).session())


async def test_every_request_is_listed_and_made(session: InterceptedSession) -> None:
    await session.create("/a/b", b"one", make_parents=True)
    assert (await session.get("/a/b"))[0] == b"one"
    await session.set("/a/b", b"two", version=0)
    assert await session.exists("/a/c") is None
    assert await session.children("/a") == ["b"]
    await session.transaction([Check("/a/b", 1), Create("/a/c")])
    await session.delete("/a/b", version=1)
    assert session.requests == [
        "create /a/b",
        "get /a/b",
        "set /a/b",
        "exists /a/c",
        "children /a",
        "transaction 2",
        "delete /a/b",
    ]


async def test_a_lost_request_was_done_or_not_as_ordered(session: InterceptedSession) -> None:
    await session.create("/a", b"one")
    session.lose("set", "/a", is_done=False)
    session.lose("set", "/b", is_done=False)
    with pytest.raises(ConnectionLost):
        await session.set("/a", b"two")
    assert (await session.get("/a"))[0] == b"one"
    session.lose("set", is_done=True)
    with pytest.raises(ConnectionLost):
        await session.set("/a", b"two")
    assert (await session.get("/a"))[0] == b"two"
    await session.set("/a", b"three")


async def test_a_test_steps_in_before_each_request() -> None:
    session = InstantSession()
    session.zookeeper.put("/a/b", b"one")

    def before(verb: str, path: str) -> None:
        if verb == "delete":
            raise ConnectionLost(path)
        session.zookeeper.put(path, verb.encode())

    session.before = before
    assert (await session.get("/a/b"))[0] == b"get"
    with pytest.raises(ConnectionLost):
        await session.delete("/a/b")
    session.zookeeper.remove("/a/b")
    assert session.zookeeper.tree.values() == {"/a": b""}


async def test_an_interceptor_stands_around_each_request(session: InterceptedSession) -> None:
    order: list[str] = []

    async def intercept(request: str, act: Callable[[], Awaitable[ResultT]]) -> ResultT:
        order.append(request)
        try:
            return await act()
        finally:
            order.append("done")

    session.intercept = intercept
    await session.create("/a")
    with pytest.raises(NodeMissing):
        await session.get("/b")
    assert order == ["create /a", "done", "get /b", "done"]


async def test_a_session_tells_the_same_as_the_one_behind_it(session: InterceptedSession) -> None:
    assert session.session_id == session.session.session_id
    await session.create("/a", ephemeral=True)
    _, stat = await session.get("/a")
    assert stat.ephemeral_owner == session.session_id
