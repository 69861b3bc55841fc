"""ZooKeeper over kazoo against a real server: lost and ended sessions, roots, very many requests.

What every operation does is told by ``test_zookeeper_conformance.py``, for the simulated one too.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.integration.relay import Wire
from tests.integration.waiting import POLL_S

from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import (
    ConnectionLost,
    SessionState,
    delete_tree,
    take_over_ephemeral,
)
from geminga_server.zookeeper.requests import REQUESTS_IN_FLIGHT_MAX
from geminga_server.zookeeper.session import ZooKeeper

pytestmark = pytest.mark.integration


class Sessions:
    """What happened to a session, for tests to wait on."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.seen: list[SessionState] = []
        self._changed = asyncio.Event()
        zookeeper.on_session(self._note)

    def _note(self, state: SessionState) -> None:
        self.seen.append(state)
        self._changed.set()

    async def wait_for(self, *states: SessionState) -> None:
        async with asyncio.timeout(60):
            while self.seen != list(states):
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def zookeeper(zookeeper_address: str) -> AsyncIterator[ZooKeeper]:
    async with ZooKeeper(zookeeper_address, SystemClock()) as session:
        yield session


@pytest.fixture
async def root(zookeeper: ZooKeeper) -> AsyncIterator[str]:
    path = f"/geminga-test-{uuid.uuid4().hex}"
    await zookeeper.create(path)
    yield path
    await delete_tree(zookeeper, path)


async def test_thousands_of_requests_at_once_are_all_answered(
    zookeeper: ZooKeeper, root: str
) -> None:
    count = REQUESTS_IN_FLIGHT_MAX * 10
    paths = [f"{root}/{number:05d}" for number in range(count)]
    assert await asyncio.gather(*[zookeeper.create(path) for path in paths]) == paths
    assert len(await zookeeper.children(root)) == count
    await asyncio.gather(*[zookeeper.delete(path) for path in paths])


async def test_a_broken_connection_comes_back_with_the_same_session(
    zookeeper_address: str, root: str
) -> None:
    async with (
        Wire(zookeeper_address) as wire,
        ZooKeeper(wire.address, SystemClock()) as zookeeper,
    ):
        sessions = Sessions(zookeeper)
        session_id = zookeeper.session_id
        path = f"{root}/mine"
        await zookeeper.create(path, ephemeral=True)
        watched = asyncio.Event()
        await zookeeper.get(path, on_change=watched.set)
        wire.cut()
        await sessions.wait_for(SessionState.SUSPENDED, SessionState.CONNECTED)
        assert zookeeper.session_id == session_id
        assert watched.is_set(), "a watch is called when changes may have been missed"
        stat = await zookeeper.exists(path)
        assert stat is not None
        assert stat.ephemeral_owner == session_id


async def test_requests_made_while_the_connection_is_gone_are_carried_out_in_order(
    zookeeper_address: str, root: str
) -> None:
    async with (
        Wire(zookeeper_address) as wire,
        ZooKeeper(wire.address, SystemClock()) as zookeeper,
    ):
        sessions = Sessions(zookeeper)
        wire.refuses = True
        wire.cut()
        await sessions.wait_for(SessionState.SUSPENDED)
        held = [
            asyncio.ensure_future(zookeeper.create(f"{root}/n-", sequential=True))
            for _ in range(20)
        ]
        wire.refuses = False
        assert await asyncio.gather(*held) == [f"{root}/n-{n:010d}" for n in range(20)]


async def test_a_session_ended_by_the_server_is_reported_and_a_new_one_begun(
    zookeeper_address: str, root: str
) -> None:
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(Wire(zookeeper_address))
        victim = ZooKeeper(wire.address, SystemClock(), session_timeout_s=20)
        await stack.enter_async_context(victim)
        sessions = Sessions(victim)
        old_session = victim.session_id
        await victim.create(f"{root}/mine", ephemeral=True)
        await close_session_of(victim, zookeeper_address)
        wire.cut()
        await sessions.wait_for(
            SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED
        )
        assert victim.session_id != old_session
        assert await victim.exists(f"{root}/mine") is None
        await victim.create(f"{root}/mine", ephemeral=True)


async def close_session_of(victim: ZooKeeper, address: str) -> None:
    """Come back as the same session over another connection, and close it: the server ends it."""
    client = victim._client
    assert client is not None
    identity = client.client_id

    def end() -> None:
        from kazoo.client import KazooClient

        twin = KazooClient(hosts=address, client_id=identity)
        twin.start()
        twin.stop()
        twin.close()

    await asyncio.to_thread(end)


async def test_a_session_that_hears_nothing_is_in_doubt_before_the_server_ends_it(
    zookeeper: ZooKeeper, zookeeper_address: str, root: str
) -> None:
    path = f"{root}/mine"
    async with (
        Wire(zookeeper_address) as wire,
        ZooKeeper(wire.address, SystemClock(), session_timeout_s=10) as partitioned,
    ):
        sessions = Sessions(partitioned)
        old_session = partitioned.session_id
        await partitioned.create(path, ephemeral=True)
        ended_by_the_server: list[SessionState] = []
        await zookeeper.exists(path, on_change=lambda: ended_by_the_server.extend(sessions.seen))
        wire.is_deaf = True
        unanswered = asyncio.ensure_future(partitioned.exists(root))
        with pytest.raises(ConnectionLost):
            await unanswered
        held = asyncio.ensure_future(partitioned.exists(root))
        with pytest.raises(ConnectionLost):
            await held
        assert sessions.seen == [SessionState.SUSPENDED, SessionState.DOUBTFUL]
        while await zookeeper.exists(path) is not None:  # noqa: ASYNC110 - an event of the server
            await asyncio.sleep(POLL_S)
        assert SessionState.DOUBTFUL in ended_by_the_server, "no other session may own it before"

        wire.is_deaf = False
        wire.cut()
        await sessions.wait_for(
            SessionState.SUSPENDED,
            SessionState.DOUBTFUL,
            SessionState.EXPIRED,
            SessionState.CONNECTED,
        )
        assert partitioned.session_id != old_session
        await take_over_ephemeral(partitioned, path, b"new life")


async def test_a_session_is_told_the_timeout_that_the_server_grants(
    zookeeper_address: str,
) -> None:
    for asked_s, granted_s in ((10.0, 10.0), (3_600.0, 60.0)):
        async with ZooKeeper(
            zookeeper_address, SystemClock(), session_timeout_s=asked_s
        ) as zookeeper:
            handler = zookeeper._handler
            assert handler is not None
            assert handler.granted_timeout_s == granted_s, "the embedded server grants up to 60 s"


async def test_an_address_without_a_zookeeper_is_reported_within_the_deadline() -> None:
    with pytest.raises(
        ConnectionLost,
        match=r"no ZooKeeper answered at 127\.0\.0\.1:1 within 0\.2 s "
        r"\(127\.0\.0\.1:1: Connection refused\)",
    ):
        async with ZooKeeper("127.0.0.1:1", SystemClock(), connect_timeout_s=0.2):
            pass


async def test_a_closed_session_takes_no_more_requests(zookeeper_address: str) -> None:
    async with ZooKeeper(zookeeper_address, SystemClock()) as zookeeper:
        pending = asyncio.ensure_future(zookeeper.exists("/"))
        await asyncio.sleep(0)
    with pytest.raises(ConnectionLost):
        await zookeeper.exists("/")
    with pytest.raises(ConnectionLost, match="closed"):
        await pending


async def test_a_chroot_is_made_and_used(
    zookeeper: ZooKeeper, zookeeper_address: str, root: str
) -> None:
    await zookeeper.delete(root)
    async with ZooKeeper(f"{zookeeper_address}{root}", SystemClock()) as inside:
        await inside.create("/a", b"v")
        assert (await zookeeper.get(f"{root}/a"))[0] == b"v"


async def test_who_only_looks_makes_no_chroot(
    zookeeper: ZooKeeper, zookeeper_address: str, root: str
) -> None:
    await zookeeper.delete(root)
    hosts = f"{zookeeper_address}{root}"
    async with ZooKeeper(hosts, SystemClock(), makes_chroot=False) as inside:
        assert await inside.exists("/a") is None
    assert await zookeeper.exists(root) is None
    await zookeeper.create(root)
