"""The simulated ZooKeeper's side of a session: when it lives, is silent, and ends."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_simulation.coordination_conformance import (
    CoordinationConformance,
    Coordinations,
    Heard,
)

from geminga_runtime.coordination import NodeMissing, SessionExpired, SessionState
from geminga_simulation.conditions import CoordinationConditions
from geminga_simulation.zookeeper.server import SimulatedZooKeeper
from geminga_simulation.zookeeper.session import SimulatedSession


class TestSimulatedZooKeeper(CoordinationConformance):
    """The simulated one keeps to what every one must do."""

    @pytest.fixture
    async def coordinations(self) -> Coordinations:
        zookeeper = SimulatedZooKeeper()

        async def begin() -> SimulatedSession:
            return zookeeper.session()

        return begin


async def test_an_expired_session_loses_its_nodes_before_its_client_knows() -> None:
    zookeeper = SimulatedZooKeeper()
    owner, other = zookeeper.session("owner"), zookeeper.session("other")
    states: list[tuple[float, SessionState]] = []
    loop = asyncio.get_running_loop()
    owner.on_session(lambda state: states.append((loop.time(), state)))
    await owner.create("/e", ephemeral=True)
    first_id = owner.session_id
    zookeeper.expire(owner)
    assert await other.exists("/e") is None
    seen_s = loop.time()
    await asyncio.sleep(2)
    assert [state for _, state in states] == [
        SessionState.SUSPENDED,
        SessionState.EXPIRED,
        SessionState.CONNECTED,
    ]
    assert states[1][0] > seen_s - 0.01
    assert owner.session_id != first_id
    await owner.create("/e", ephemeral=True)


async def test_a_process_that_dies_is_expired_within_its_timeout() -> None:
    zookeeper = SimulatedZooKeeper()
    loop = zookeeper.loop
    life = loop.incarnate("host")
    context = life.context.copy()
    session = context.run(zookeeper.session, "host")
    await loop.create_task(session.create("/e", ephemeral=True), context=context)
    observer = zookeeper.session()
    gone = Heard()
    await observer.get("/e", on_change=gone)
    died_s = loop.time()
    loop.kill(life)
    zookeeper.kill(life)
    await gone.wait()
    assert 3.9 < loop.time() - died_s < 6.1
    assert zookeeper.sessions("host") == []


async def test_a_paused_host_is_expired_before_it_can_give_up() -> None:
    zookeeper = SimulatedZooKeeper()
    loop = zookeeper.loop
    life = loop.incarnate("host")
    context = life.context.copy()
    session = context.run(zookeeper.session, "host")
    states: list[SessionState] = []
    session.on_session(states.append)
    await loop.create_task(session.create("/e", ephemeral=True), context=context)
    loop.pause(life, loop.time() + 20)
    zookeeper.silence("host")
    await asyncio.sleep(10)
    assert await zookeeper.session().exists("/e") is None
    assert session.state is SessionState.CONNECTED
    await asyncio.sleep(12)
    zookeeper.hear("host")
    assert states == [
        SessionState.SUSPENDED,
        SessionState.DOUBTFUL,
        SessionState.EXPIRED,
        SessionState.CONNECTED,
    ]


async def test_a_short_pause_costs_nothing() -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session("host")
    first_id = session.session_id
    zookeeper.silence("host")
    await asyncio.sleep(3)
    zookeeper.hear("host")
    await asyncio.sleep(100)
    assert (session.state, session.session_id) == (SessionState.CONNECTED, first_id)


async def test_a_host_that_is_isolated_doubts_before_the_server_ends_its_session() -> None:
    zookeeper = SimulatedZooKeeper()
    loop = zookeeper.loop
    session = zookeeper.session("host")
    doubted_s: list[float] = []
    session.on_session(
        lambda state: doubted_s.append(loop.time()) if state is SessionState.DOUBTFUL else None
    )
    first_id = session.session_id
    await session.create("/e", ephemeral=True)
    observer = zookeeper.session("observer")
    gone = Heard()
    await observer.get("/e", on_change=gone)
    zookeeper.isolate("host")
    await gone.wait()
    assert doubted_s[0] < loop.time()
    assert session.session_id == first_id
    late = asyncio.ensure_future(session.create("/late"))
    await asyncio.sleep(1)
    assert not late.done()
    zookeeper.restore("host")
    with pytest.raises(SessionExpired):  # it was asked in the session that has ended
        await late
    assert await session.create("/late") == "/late"
    assert session.session_id != first_id
    assert session.state is SessionState.CONNECTED


@pytest.mark.parametrize("keeps_sessions", [True, False])
async def test_a_zookeeper_that_was_away_ends_no_session_or_all(
    keeps_sessions: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    zookeeper = SimulatedZooKeeper()
    session, dead = zookeeper.session("host"), zookeeper.session("dead")
    first_id = session.session_id
    await session.create("/e", ephemeral=True)
    await dead.create("/dead", ephemeral=True)
    zookeeper.go_away()
    dead.die()
    newcomer = zookeeper.session("new")
    await asyncio.sleep(60)
    assert session.state is SessionState.DOUBTFUL
    assert newcomer.state is SessionState.EXPIRED
    assert zookeeper.tree.exists("/e") is not None
    zookeeper.come_back(keeps_sessions=keeps_sessions)
    async with newcomer:
        assert (await newcomer.exists("/e") is not None) is keeps_sessions
        await asyncio.sleep(7)
        assert (session.session_id == first_id) is keeps_sessions
        assert await newcomer.exists("/dead") is None


async def test_a_host_that_starts_isolated_connects_when_it_can() -> None:
    zookeeper = SimulatedZooKeeper()
    zookeeper.isolate("host")
    session = zookeeper.session("host")
    assert session.state is SessionState.EXPIRED
    zookeeper.restore("host")
    async with session:
        assert await session.exists("/") is not None


async def test_a_deaf_zookeeper_forgets_watches() -> None:
    zookeeper = SimulatedZooKeeper()
    zookeeper.is_deaf = True
    session = zookeeper.session()
    await session.create("/a")
    heard = [Heard() for _ in range(500)]
    for watch in heard:
        await session.get("/a", on_change=watch)
        await session.set("/a", b"")
    await session.exists("/a")
    assert 450 < sum(watch.count for watch in heard) < 500


async def test_a_lost_connection_may_or_may_not_have_lost_the_operation() -> None:
    zookeeper = SimulatedZooKeeper(conditions=CoordinationConditions(loss_probability=0.3))
    session = zookeeper.session()
    outcomes: list[tuple[bool, bool]] = []
    for number in range(100):
        path = f"/n{number}"
        (answer,) = await asyncio.gather(session.create(path), return_exceptions=True)
        zookeeper.conditions = CoordinationConditions()
        try:
            await session.get(path)
            is_there = True
        except NodeMissing:
            is_there = False
        zookeeper.conditions = CoordinationConditions(loss_probability=0.3)
        outcomes.append((answer == path, is_there))
    assert set(outcomes) == {(True, True), (False, True), (False, False)}


async def test_a_session_that_has_ended_hears_of_nothing_until_it_is_told() -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session("host")
    heard = Heard()
    await session.create("/a")
    await session.get("/a", on_change=heard)
    zookeeper.expire(session, noticed_s=2.0)
    await zookeeper.session().set("/a", b"changed")
    await asyncio.sleep(1)
    assert (session.state, heard.count) == (SessionState.CONNECTED, 0)
    await asyncio.sleep(1.1)
    assert heard.count == 1
