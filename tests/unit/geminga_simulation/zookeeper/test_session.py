"""The client's side of a session: what waits, what fails, which callbacks are called."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_simulation.coordination_conformance import Heard

from geminga_runtime.coordination import (
    ConnectionLost,
    Create,
    NodeTooLarge,
    SessionExpired,
    SessionState,
)
from geminga_simulation.zookeeper.node_tree import Event
from geminga_simulation.zookeeper.server import SimulatedZooKeeper


@pytest.fixture
async def zookeeper() -> SimulatedZooKeeper:
    return SimulatedZooKeeper()


async def test_a_lost_connection_fails_what_is_on_the_way_and_calls_every_watch_once(
    zookeeper: SimulatedZooKeeper,
) -> None:
    session = zookeeper.session()
    states: list[SessionState] = []
    session.on_session(states.append)
    await session.create("/a")
    heard = Heard()
    await session.get("/a", on_change=heard)
    asking = asyncio.ensure_future(session.get("/a"))
    await asyncio.sleep(0)
    session.cut_link()
    with pytest.raises(ConnectionLost):
        await asking
    await heard.wait()
    await session.set("/a", b"changed")
    await session.get("/a")
    assert heard.count == 1
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]


async def test_requests_are_held_while_there_is_no_connection(
    zookeeper: SimulatedZooKeeper,
) -> None:
    session = zookeeper.session("host")
    zookeeper.isolate("host")
    await asyncio.sleep(0.1)
    assert session.state is SessionState.SUSPENDED
    waiting = asyncio.ensure_future(session.create("/held"))
    abandoned = asyncio.ensure_future(session.create("/abandoned"))
    await asyncio.sleep(1)
    abandoned.cancel()
    zookeeper.restore("host")
    assert await waiting == "/held"
    assert await session.children("/") == ["held"]


async def test_held_requests_end_with_the_session(zookeeper: SimulatedZooKeeper) -> None:
    session = zookeeper.session("host")
    zookeeper.isolate("host")
    await asyncio.sleep(10)
    assert session.state is SessionState.DOUBTFUL
    waiting = asyncio.ensure_future(session.create("/never"))
    await asyncio.sleep(0.1)
    zookeeper.restore("host")
    with pytest.raises(SessionExpired):
        await waiting


async def test_a_request_that_finds_no_connection_for_long_fails(
    zookeeper: SimulatedZooKeeper,
) -> None:
    zookeeper.isolate("host")
    session = zookeeper.session("host")
    with pytest.raises(ConnectionLost, match="in time"):
        await session.create("/never")
    with pytest.raises(ConnectionLost, match="no ZooKeeper"):
        await session.__aenter__()


async def test_a_closed_session_is_closed(zookeeper: SimulatedZooKeeper) -> None:
    async with zookeeper.session() as session:
        await session.create("/e", ephemeral=True)
    await session.close()
    with pytest.raises(ConnectionLost, match="closed"):
        await session.exists("/e")
    assert await zookeeper.session().exists("/e") is None


async def test_closing_without_a_connection_leaves_the_server_to_find_out(
    zookeeper: SimulatedZooKeeper,
) -> None:
    session = zookeeper.session("host")
    await session.create("/e", ephemeral=True)
    zookeeper.isolate("host")
    await asyncio.sleep(0.1)
    held = asyncio.ensure_future(session.create("/x"))
    await asyncio.sleep(0.1)
    await session.close()
    with pytest.raises(ConnectionLost):
        await held
    observer = zookeeper.session()
    assert await observer.exists("/e") is not None
    await asyncio.sleep(7)
    assert await observer.exists("/e") is None


async def test_too_large_a_value_is_refused(zookeeper: SimulatedZooKeeper) -> None:
    session = zookeeper.session()
    with pytest.raises(NodeTooLarge):
        await session.create("/big", bytes(1_000_001))
    halves = [Create("/one", bytes(500_000)), Create("/two", bytes(500_000))]
    with pytest.raises(NodeTooLarge):
        await session.transaction(halves)


async def test_a_dead_process_hears_nothing_and_asks_in_vain(
    zookeeper: SimulatedZooKeeper,
) -> None:
    loop = zookeeper.loop
    life = loop.incarnate("host")
    context = life.context.copy()
    session = context.run(zookeeper.session, "host")
    heard = Heard()
    states: list[SessionState] = []
    session.on_session(states.append)
    await loop.create_task(session.exists("/a", on_change=heard), context=context)
    loop.kill(life)
    zookeeper.kill(life)
    await zookeeper.session().create("/a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.create("/ghost"), 60)
    assert (heard.count, states) == (0, [])
    assert zookeeper.tree.exists("/ghost") is None


async def test_an_observer_sees_a_change_at_once_and_until_when_a_client_knows_all(
    zookeeper: SimulatedZooKeeper,
) -> None:
    now_s = asyncio.get_running_loop().time
    seen: list[tuple[Event, str]] = []
    zookeeper.observers.append(lambda event, path: seen.append((event, path)))
    session = zookeeper.session("host")
    await session.create("/a")
    heard = Heard()
    await session.get("/a", on_change=heard)
    assert session.knows_until_s == now_s()
    zookeeper.remove("/a")
    assert (Event.DELETED, "/a") in seen
    changed_s = now_s()
    await asyncio.sleep(zookeeper.conditions.delay_s_min / 2)
    assert heard.count == 0
    assert session.knows_until_s == changed_s
    await heard.wait()
    assert session.knows_until_s == now_s()


@pytest.mark.parametrize("does_session_end", [True, False])
async def test_a_client_knows_no_more_while_it_hears_nothing(
    zookeeper: SimulatedZooKeeper, *, does_session_end: bool
) -> None:
    now_s = asyncio.get_running_loop().time
    session = zookeeper.session("host")
    await session.create("/a")
    if does_session_end:
        zookeeper.expire(session, noticed_s=2.0)
    else:
        zookeeper.isolate("host")
    silent_s = now_s()
    await asyncio.sleep(1)
    assert session.knows_until_s == silent_s
    zookeeper.restore("host")
    await asyncio.sleep(3)
    assert session.state is SessionState.CONNECTED
    assert session.knows_until_s == now_s()
