"""ZooKeeper over kazoo against a real server: every operation, watches, lost and ended sessions."""

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
    Check,
    ConnectionLost,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NodeTooLarge,
    SessionState,
    Set,
    VersionMismatch,
    delete_tree,
    take_over_ephemeral,
)
from geminga_server.zookeeper import ZooKeeper
from geminga_server.zookeeper_requests import REQUESTS_IN_FLIGHT_MAX

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


async def test_a_node_is_created_read_changed_and_deleted(zookeeper: ZooKeeper, root: str) -> None:
    path = f"{root}/node"
    assert await zookeeper.create(path, b"one") == path
    value, stat = await zookeeper.get(path)
    assert (value, stat.version, stat.ephemeral_owner) == (b"one", 0, 0)
    assert stat.created_zxid == stat.modified_zxid > 0

    changed = await zookeeper.set(path, b"two", version=0)
    assert changed.version == 1
    assert changed.modified_zxid > changed.created_zxid
    assert await zookeeper.exists(path) == changed
    assert (await zookeeper.get(path))[0] == b"two"

    await zookeeper.delete(path, version=1)
    assert await zookeeper.exists(path) is None


async def test_every_refusal_has_its_own_error(zookeeper: ZooKeeper, root: str) -> None:
    path = f"{root}/node"
    with pytest.raises(NodeMissing, match=path):
        await zookeeper.get(path)
    with pytest.raises(NodeMissing):
        await zookeeper.children(path)
    with pytest.raises(NodeMissing):
        await zookeeper.set(path, b"")
    with pytest.raises(NodeMissing):
        await zookeeper.delete(path)
    with pytest.raises(NodeMissing):
        await zookeeper.create(f"{path}/below")
    await zookeeper.create(path)
    with pytest.raises(NodeExists) as exists:
        await zookeeper.create(path)
    assert exists.value.path == path
    with pytest.raises(VersionMismatch):
        await zookeeper.set(path, b"", version=7)
    with pytest.raises(VersionMismatch):
        await zookeeper.delete(path, version=7)
    await zookeeper.create(f"{path}/below")
    with pytest.raises(NodeNotEmpty):
        await zookeeper.delete(path)


async def test_a_node_below_an_ephemeral_one_is_refused(zookeeper: ZooKeeper, root: str) -> None:
    await zookeeper.create(f"{root}/e", ephemeral=True)
    with pytest.raises(CoordinationError, match="NoChildrenForEphemerals"):
        await zookeeper.create(f"{root}/e/below")


async def test_an_empty_value_is_read_as_empty(zookeeper: ZooKeeper, root: str) -> None:
    await zookeeper.create(f"{root}/empty")
    assert (await zookeeper.get(f"{root}/empty"))[0] == b""


async def test_parents_are_made(zookeeper: ZooKeeper, root: str) -> None:
    path = f"{root}/a/b/c/d"
    assert await zookeeper.create(path, b"deep", make_parents=True) == path
    assert (await zookeeper.get(path))[0] == b"deep"
    assert await zookeeper.create(f"{root}/a/b/x", make_parents=True) == f"{root}/a/b/x"
    with pytest.raises(NodeExists):
        await zookeeper.create(path, make_parents=True)


async def test_names_of_topics_are_names_of_nodes(zookeeper: ZooKeeper, root: str) -> None:
    name = "a%2Fb+%25%3F ü"
    await zookeeper.create(f"{root}/{name}", b"v")
    assert await zookeeper.children(root) == [name]


async def test_sequential_nodes_are_numbered_and_children_sorted(
    zookeeper: ZooKeeper, root: str
) -> None:
    made = [await zookeeper.create(f"{root}/n-", sequential=True) for _ in range(3)]
    assert made == [f"{root}/n-{number:010d}" for number in range(3)]
    await zookeeper.create(f"{root}/a")
    assert await zookeeper.children(root) == ["a", *[f"n-{number:010d}" for number in range(3)]]


async def test_a_value_too_large_is_refused_before_it_costs_the_connection(
    zookeeper: ZooKeeper, root: str
) -> None:
    with pytest.raises(NodeTooLarge, match="2000000 bytes"):
        await zookeeper.create(f"{root}/large", bytes(2_000_000))
    with pytest.raises(NodeTooLarge):
        await zookeeper.transaction([Create(f"{root}/{n}", bytes(600_000)) for n in range(2)])
    await zookeeper.create(f"{root}/large", bytes(900_000))
    assert len((await zookeeper.get(f"{root}/large"))[0]) == 900_000


async def test_a_transaction_is_done_as_a_whole(zookeeper: ZooKeeper, root: str) -> None:
    await zookeeper.create(f"{root}/a", b"1")
    await zookeeper.create(f"{root}/b")
    await zookeeper.transaction(
        [
            Check(f"{root}/a", 0),
            Set(f"{root}/a", b"2", 0),
            Delete(f"{root}/b", 0),
            Create(f"{root}/c", b"3", is_ephemeral=True),
        ]
    )
    assert (await zookeeper.get(f"{root}/a"))[0] == b"2"
    assert (await zookeeper.get(f"{root}/c"))[1].ephemeral_owner == zookeeper.session_id
    assert await zookeeper.children(root) == ["a", "c"]
    await zookeeper.transaction([])


async def test_a_transaction_that_cannot_be_done_names_the_operation_and_changes_nothing(
    zookeeper: ZooKeeper, root: str
) -> None:
    await zookeeper.create(f"{root}/a")
    with pytest.raises(VersionMismatch) as mismatch:
        await zookeeper.transaction(
            [Create(f"{root}/new"), Set(f"{root}/a", b"", 3), Delete(f"{root}/gone")]
        )
    assert mismatch.value.path == f"{root}/a"
    with pytest.raises(NodeMissing) as missing:
        await zookeeper.transaction([Create(f"{root}/new"), Delete(f"{root}/gone")])
    assert missing.value.path == f"{root}/gone"
    assert await zookeeper.children(root) == ["a"]


async def test_thousands_of_requests_at_once_are_all_answered(
    zookeeper: ZooKeeper, root: str
) -> None:
    count = REQUESTS_IN_FLIGHT_MAX * 10
    paths = [f"{root}/{number:05d}" for number in range(count)]
    assert await asyncio.gather(*[zookeeper.create(path) for path in paths]) == paths
    assert len(await zookeeper.children(root)) == count
    await asyncio.gather(*[zookeeper.delete(path) for path in paths])


async def test_a_watch_is_called_once_and_before_the_change_can_be_read(
    zookeeper: ZooKeeper, root: str
) -> None:
    path = f"{root}/node"
    await zookeeper.create(path, b"0")
    events: list[str] = []
    await zookeeper.get(path, on_change=lambda: events.append("changed"))
    for number in range(1, 20):
        await zookeeper.set(path, b"%d" % number)
        value, _ = await zookeeper.get(path)
        events.append(value.decode())
    assert events == ["changed", *map(str, range(1, 20))]


async def test_watches_see_creation_deletion_and_children(zookeeper: ZooKeeper, root: str) -> None:
    events: list[str] = []
    path = f"{root}/node"
    await zookeeper.exists(path, on_change=lambda: events.append("created"))
    await zookeeper.children(root, on_change=lambda: events.append("child added"))
    await zookeeper.create(path)
    await zookeeper.get(path, on_change=lambda: events.append("deleted"))
    await zookeeper.children(root, on_change=lambda: events.append("child removed"))
    await zookeeper.delete(path)
    await zookeeper.exists(root)
    assert sorted(events) == ["child added", "child removed", "created", "deleted"]


async def test_a_read_that_found_nothing_leaves_no_watch(zookeeper: ZooKeeper, root: str) -> None:
    events: list[str] = []
    with pytest.raises(NodeMissing):
        await zookeeper.get(f"{root}/node", on_change=lambda: events.append("watch"))
    await zookeeper.create(f"{root}/node")
    await zookeeper.exists(root)
    assert events == []


async def test_an_ephemeral_node_goes_with_the_session_at_once(
    zookeeper: ZooKeeper, zookeeper_address: str, root: str
) -> None:
    path = f"{root}/mine"
    async with ZooKeeper(zookeeper_address, SystemClock()) as other:
        await other.create(path, ephemeral=True)
        stat = await zookeeper.exists(path)
        assert stat is not None
        assert stat.ephemeral_owner == other.session_id != zookeeper.session_id
    assert await zookeeper.exists(path) is None


async def test_an_ephemeral_node_of_an_earlier_life_is_taken_over_at_once(
    zookeeper: ZooKeeper, zookeeper_address: str, root: str
) -> None:
    path = f"{root}/parent/broker-1"
    async with ZooKeeper(zookeeper_address, SystemClock()) as earlier:
        await take_over_ephemeral(earlier, path, b"earlier")
        await take_over_ephemeral(zookeeper, path, b"now")
        value, stat = await zookeeper.get(path)
        assert (value, stat.ephemeral_owner) == (b"now", zookeeper.session_id)
    assert (await zookeeper.get(path))[0] == b"now"
    await take_over_ephemeral(zookeeper, path, b"again")
    assert (await zookeeper.get(path))[0] == b"again"


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
        assert SessionState.DOUBTFUL in ended_by_the_server, "nobody else may own it before"

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


async def test_nobody_at_the_address_is_said_within_the_deadline() -> None:
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
