"""A follower that hears of changes late: what its clients read, and what ZooKeeper promises them.

https://zookeeper.apache.org/doc/current/zookeeperInternals.html#sc_consistency
"""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_simulation.coordination_conformance import Heard

from geminga_runtime.coordination import ConnectionLost, NodeExists, SessionExpired
from geminga_simulation.zookeeper.server import SimulatedZooKeeper
from geminga_simulation.zookeeper.session import SimulatedSession
from geminga_simulation.zookeeper.write_troubles import Trouble


@pytest.fixture
async def zookeeper() -> SimulatedZooKeeper:
    return SimulatedZooKeeper()


async def of_a_follower(zookeeper: SimulatedZooKeeper) -> SimulatedSession:
    """A session that is connected to a follower, which lags from now on."""
    session = zookeeper.session("behind")
    await session.exists("/")
    zookeeper.fall_behind([session])
    return session


async def test_a_session_reads_what_was_there_until_its_server_hears(
    zookeeper: SimulatedZooKeeper,
) -> None:
    other = zookeeper.session("other")
    await other.create("/a", b"old")
    session = await of_a_follower(zookeeper)
    await other.set("/a", b"new")
    await other.create("/a/child")
    await other.create("/b")
    value, stat = await session.get("/a")
    assert (value, stat.version) == (b"old", 0)
    assert await session.children("/a") == []
    assert await session.exists("/b") is None
    assert (await other.get("/a"))[0] == b"new"
    zookeeper.catch_up()
    assert (await session.get("/a"))[0] == b"new"
    assert await session.children("/a") == ["child"]


async def test_a_write_is_made_at_once_and_answered_when_its_server_has_heard(
    zookeeper: SimulatedZooKeeper,
) -> None:
    other = zookeeper.session("other")
    await other.create("/a", b"old")
    session = await of_a_follower(zookeeper)
    await other.set("/a", b"new")
    creating = asyncio.ensure_future(session.create("/mine"))
    reading = asyncio.ensure_future(session.get("/a"))  # behind a write: waits for its answer
    refused = asyncio.ensure_future(session.create("/a"))
    await asyncio.sleep(1)
    assert await other.exists("/mine") is not None
    assert not any(each.done() for each in (creating, reading, refused))
    zookeeper.catch_up()
    assert await creating == "/mine"
    assert (await reading)[0] == b"new"
    with pytest.raises(NodeExists):
        await refused


async def test_a_watch_fires_when_its_server_hears_and_before_the_change_is_read(
    zookeeper: SimulatedZooKeeper,
) -> None:
    other = zookeeper.session("other")
    await other.create("/a", b"old")
    early = Heard()
    reader = zookeeper.session("behind")
    await reader.get("/a", on_change=early)
    zookeeper.fall_behind([reader])
    await other.set("/a", b"new")
    late = Heard()
    assert (await reader.get("/a", on_change=late))[0] == b"old"  # the change has been made
    new_child = Heard()
    assert await reader.children("/", on_change=new_child) == ["a"]
    await asyncio.sleep(1)
    assert (early.count, late.count) == (0, 0)
    zookeeper.catch_up()
    assert (await reader.get("/a"))[0] == b"new"
    assert (early.count, late.count, new_child.count) == (1, 1, 0)
    await other.create("/b")
    await new_child.wait()  # left at the follower, and spent by what comes later


async def test_who_reconnects_sees_nothing_older_than_before(
    zookeeper: SimulatedZooKeeper,
) -> None:
    sessions = [zookeeper.session(f"host-{number}") for number in range(20)]
    zookeeper.put("/a", b"old")
    zookeeper.fall_behind([])
    zookeeper.put("/a", b"new")
    read = dict.fromkeys(sessions, b"old")
    for _ in range(5):
        for session, last in read.items():
            session.cut_link()
            await asyncio.sleep(1)
            value, _ = await session.get("/a")
            assert value == b"new" or last == b"old"
            read[session] = value
    assert set(read.values()) == {b"old", b"new"}


async def test_a_client_without_an_answer_to_its_write_may_read_as_if_it_was_not_made(
    zookeeper: SimulatedZooKeeper,
) -> None:
    seen = set[bool]()
    for number in range(20):
        session = zookeeper.session("behind")
        await session.exists("/")
        zookeeper.fall_behind([])
        zookeeper.troubles.waiting.append((Trouble.UNANSWERED, lambda _: None))
        with pytest.raises(ConnectionLost):
            await session.create(f"/{number}")
        seen.add(await session.exists(f"/{number}") is not None)
        zookeeper.catch_up()
        assert await session.exists(f"/{number}") is not None
        await session.close()
    assert seen == {False, True}


async def test_a_session_that_has_ended_reads_on_and_writes_nothing(
    zookeeper: SimulatedZooKeeper,
) -> None:
    session = zookeeper.session("behind")
    await session.create("/mine", ephemeral=True)
    zookeeper.fall_behind([session])
    zookeeper.expire(session, noticed_s=60.0)
    assert await zookeeper.session("other").exists("/mine") is None
    assert await session.exists("/mine") is not None
    with pytest.raises((ConnectionLost, SessionExpired)):
        await session.create("/late")
    assert zookeeper.tree.exists("/late") is None


async def test_a_restart_ends_all_lag(zookeeper: SimulatedZooKeeper) -> None:
    session = await of_a_follower(zookeeper)
    zookeeper.put("/a")
    zookeeper.go_away()
    zookeeper.come_back(keeps_sessions=True)
    await asyncio.sleep(1)
    assert await session.exists("/a") is not None
    assert zookeeper.follower is None
    zookeeper.catch_up()
