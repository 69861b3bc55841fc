"""The session over a kazoo that a test plays: requests held and failed, sessions ended in time."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat

from geminga_runtime.coordination import (
    MAKE_PARENTS_ATTEMPTS_MAX,
    NO_SESSION,
    ConnectionLost,
    CoordinationError,
    NodeMissing,
    SessionExpired,
    SessionState,
)
from geminga_server.zookeeper import requests as module
from geminga_server.zookeeper import session as zookeeper_module
from geminga_server.zookeeper.kazoo_bridge import Answer, LoopHandler
from geminga_server.zookeeper.kazoo_client import TransactionBuilder
from geminga_server.zookeeper.requests import REQUESTS_IN_FLIGHT_MAX
from geminga_server.zookeeper.session import ZooKeeper
from geminga_simulation.event_loop.clock import SimulatedClock

STAT = ZnodeStat(1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)
Watch = Callable[[object], object]


class FakeClient:
    """A kazoo whose answers and states the test gives."""

    def __init__(self, handler: LoopHandler) -> None:
        self.handler = handler
        self.client_id: tuple[int, bytes] | None = None
        self.client_state: str = KeeperState.CONNECTING
        self.asked: list[tuple[str, Answer]] = []
        self.watches: list[Watch | None] = []
        self.is_stopped = False
        self._listener: Callable[[str], object] | None = None

    def add_listener(self, listener: Callable[[str], object]) -> None:
        self._listener = listener

    def start_async(self) -> object:
        return None

    def stop(self) -> None:
        self.is_stopped = True

    def close(self) -> None:
        assert self.is_stopped

    def say(self, kazoo_state: str, *, session_id: int | None = None) -> None:
        if session_id is not None:
            self.client_id = (session_id, b"")
        assert self._listener is not None
        self._listener(kazoo_state)

    def create_async(self, path: str, value: bytes, *, ephemeral: bool, sequence: bool) -> Answer:
        assert (value, ephemeral, sequence) == (b"", False, False)
        return self._ask(f"create {path}")

    def get_async(self, path: str, *, watch: Watch | None) -> Answer:
        return self._ask(f"get {path}", watch)

    def exists_async(self, path: str, *, watch: Watch | None) -> Answer:
        return self._ask(f"exists {path}", watch)

    def get_children_async(self, path: str, *, watch: Watch | None) -> Answer:
        return self._ask(f"children {path}", watch)

    def set_async(self, path: str, value: bytes, version: int) -> Answer:
        return self._ask(f"set {path} {value!r} {version}")

    def delete_async(self, path: str, version: int) -> Answer:
        return self._ask(f"delete {path} {version}")

    def transaction(self) -> TransactionBuilder:
        raise NotImplementedError

    def _ask(self, what: str, watch: Watch | None = None) -> Answer:
        answer = Answer()
        self.asked.append((what, answer))
        self.watches.append(watch)
        return answer


# Sessions live long in these tests, so that none ends because the machine does something else;
# but shortly where it is seen that they end.
LONG_S, SHORT_S = 1000.0, 0.2


class Stage:
    """A ZooKeeper under test, with every client it made."""

    def __init__(
        self, session_timeout_s: float = LONG_S, *, kind: type[FakeClient] = FakeClient
    ) -> None:
        self.clock = SimulatedClock()
        self._kind = kind
        self.clients: list[FakeClient] = []
        self.seen: list[SessionState] = []
        self.zookeeper = ZooKeeper(
            "played:1",
            self.clock,
            session_timeout_s=session_timeout_s,
            make_client=self._make_client,
        )
        self.zookeeper.on_session(self.seen.append)

    @property
    def client(self) -> FakeClient:
        return self.clients[-1]

    def _make_client(self, handler: LoopHandler) -> FakeClient:
        client = self._kind(handler)
        self.clients.append(client)
        if len(self.clients) == 1:
            asyncio.get_running_loop().call_soon(
                lambda: client.say(KazooState.CONNECTED, session_id=1)
            )
        return client

    def ask(self, path: str = "/a") -> asyncio.Task[object]:
        return asyncio.ensure_future(self.zookeeper.exists(path))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    async with stage.zookeeper:
        yield stage


@pytest.fixture
async def short_stage() -> AsyncIterator[Stage]:
    stage = Stage(SHORT_S)
    async with stage.zookeeper:
        yield stage


async def turns(count: int = 5) -> None:
    """Let the loop run everything that is ready."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_session_begins_with_connected(stage: Stage) -> None:
    assert stage.seen == [SessionState.CONNECTED]
    assert stage.zookeeper.session_id == 1
    assert stage.zookeeper.state is SessionState.CONNECTED


async def test_requests_are_held_while_suspended_and_sent_in_order(stage: Stage) -> None:
    stage.client.say(KazooState.SUSPENDED)
    await turns()
    tasks = [stage.ask(f"/{number}") for number in range(3)]
    await turns()
    assert stage.client.asked == []
    stage.client.say(KazooState.CONNECTED)
    await turns()
    assert [what for what, _ in stage.client.asked] == ["exists /0", "exists /1", "exists /2"]
    for _, answer in stage.client.asked:
        answer.set(None)
    assert await asyncio.gather(*tasks) == [None] * 3


async def test_no_more_than_the_limit_are_on_the_way(stage: Stage) -> None:
    tasks = [stage.ask(f"/{number}") for number in range(REQUESTS_IN_FLIGHT_MAX + 3)]
    await turns()
    assert len(stage.client.asked) == REQUESTS_IN_FLIGHT_MAX
    for _, answer in stage.client.asked[:2]:
        answer.set(STAT)
    await turns()
    assert len(stage.client.asked) == REQUESTS_IN_FLIGHT_MAX + 2
    for _, answer in stage.client.asked[2:]:
        answer.set(STAT)
    await turns()
    stage.client.asked[-1][1].set(STAT)
    await asyncio.gather(*tasks)


async def test_more_than_the_limit_waiting_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REQUESTS_HELD_MAX", 2)
    stage.client.say(KazooState.SUSPENDED)
    await turns()
    tasks = [stage.ask() for _ in range(2)]
    await turns()
    with pytest.raises(ConnectionLost, match="2 requests wait"):
        await stage.ask()
    for task in tasks:
        task.cancel()


async def test_a_cancelled_request_that_was_held_is_never_sent(stage: Stage) -> None:
    stage.client.say(KazooState.SUSPENDED)
    await turns()
    task = stage.ask()
    await turns()
    task.cancel()
    stage.client.say(KazooState.CONNECTED)
    await turns()
    assert stage.client.asked == []


async def test_a_request_without_an_answer_fails_in_time(short_stage: Stage) -> None:
    with pytest.raises(ConnectionLost, match=r"within 0\.2 s"):
        await short_stage.ask()
    short_stage.client.asked[0][1].set(STAT)  # too late: no caller waits, nothing breaks
    await turns()


async def test_each_of_many_fails_in_its_own_time_sent_or_held(short_stage: Stage) -> None:
    stage, loop = short_stage, asyncio.get_running_loop()
    tasks = [stage.ask() for _ in range(REQUESTS_IN_FLIGHT_MAX + 2)]
    later: list[tuple[float, asyncio.Task[object]]] = []
    loop.call_later(SHORT_S / 2, lambda: later.append((loop.time(), stage.ask())))
    failed = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in failed} == {ConnectionLost}
    ((asked_at_s, task),) = later
    with pytest.raises(ConnectionLost):
        await task
    assert loop.time() - asked_at_s > 0.9 * SHORT_S, "it has its own time, by the loop's clock"
    assert len(stage.client.asked) == REQUESTS_IN_FLIGHT_MAX, "what was sent is on the way for ever"
    stage.client.asked[0][1].set(STAT)
    last = stage.ask("/last")
    await turns()
    assert stage.client.asked[-1][0] == "exists /last"
    stage.client.asked[-1][1].set(STAT)
    await last


async def test_what_was_on_the_way_when_the_connection_broke_fails(stage: Stage) -> None:
    task = stage.ask()
    await turns()
    stage.client.asked[0][1].set_exception(ConnectionLoss())
    with pytest.raises(ConnectionLost):
        await task


async def test_everything_that_waits_fails_when_the_session_expires(stage: Stage) -> None:
    sent = stage.ask("/sent")
    await turns()
    stage.client.say(KazooState.SUSPENDED)
    await turns()
    held = stage.ask("/held")
    await turns()
    stage.client.client_state = KeeperState.EXPIRED_SESSION
    stage.client.say(KazooState.LOST)
    for task in (sent, held):
        with pytest.raises(SessionExpired):
            await task
    assert stage.seen[1:] == [SessionState.SUSPENDED, SessionState.EXPIRED]
    assert stage.zookeeper.session_id == NO_SESSION
    assert len(stage.clients) == 1, "kazoo begins the new session itself"
    stage.client.say(KazooState.CONNECTED, session_id=2)
    await turns()
    assert stage.seen[3:] == [SessionState.CONNECTED]
    assert stage.zookeeper.session_id == 2


async def test_a_session_unheard_of_for_too_long_is_in_doubt_and_goes_on_where_it_is_known(
    short_stage: Stage,
) -> None:
    stage, client = short_stage, short_stage.client
    doubted = doubt(stage)
    client.say(KazooState.SUSPENDED)
    await asyncio.wait_for(doubted.wait(), 60)
    assert stage.zookeeper.session_id == 1
    client.say(KazooState.CONNECTED, session_id=1)
    await turns()
    assert stage.seen[1:] == [
        SessionState.SUSPENDED,
        SessionState.DOUBTFUL,
        SessionState.CONNECTED,
    ]
    assert stage.zookeeper.session_id == 1


async def test_a_session_in_doubt_that_zookeeper_has_ended_is_followed_by_a_new_one(
    short_stage: Stage,
) -> None:
    stage, client = short_stage, short_stage.client
    doubted = doubt(stage)
    client.say(KazooState.SUSPENDED)
    await asyncio.wait_for(doubted.wait(), 60)
    client.client_state = KeeperState.EXPIRED_SESSION
    client.say(KazooState.LOST)
    await turns()
    assert stage.zookeeper.session_id == NO_SESSION
    client.say(KazooState.CONNECTED, session_id=2)
    await turns()
    assert stage.seen[1:] == [
        SessionState.SUSPENDED,
        SessionState.DOUBTFUL,
        SessionState.EXPIRED,
        SessionState.CONNECTED,
    ]
    assert stage.zookeeper.session_id == 2


async def test_silence_before_the_connection_broke_counts(stage: Stage) -> None:
    stage.clock.advance(LONG_S)
    doubted = doubt(stage)
    stage.client.say(KazooState.SUSPENDED)
    await asyncio.wait_for(doubted.wait(), 60)  # and not for the whole of a session's time


async def test_a_session_is_in_doubt_by_the_timeout_that_the_server_granted(stage: Stage) -> None:
    stage.client.handler.granted_timeout_s = SHORT_S
    doubted = doubt(stage)
    stage.client.say(KazooState.SUSPENDED)
    await asyncio.wait_for(doubted.wait(), 60)  # and not after the longer time that was asked for


def doubt(stage: Stage) -> asyncio.Event:
    """Set when the session is in doubt."""
    doubted = asyncio.Event()
    stage.zookeeper.on_session(
        lambda state: doubted.set() if state is SessionState.DOUBTFUL else None
    )
    return doubted


async def test_a_kazoo_that_died_is_replaced(stage: Stage) -> None:
    stage.client.client_state = KeeperState.CLOSED
    stage.client.say(KazooState.LOST)
    await turns()
    assert stage.seen[1:] == [SessionState.EXPIRED]
    assert len(stage.clients) == 2


async def test_a_connection_that_comes_back_keeps_the_session(stage: Stage) -> None:
    stage.client.say(KazooState.SUSPENDED)
    stage.client.say(KazooState.CONNECTED, session_id=1)
    await turns()
    assert stage.seen[1:] == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert stage.zookeeper._doubt_timer is None


async def test_missing_parents_are_made_in_one_go(stage: Stage) -> None:
    task = asyncio.ensure_future(stage.zookeeper.create("/a/b/c", make_parents=True))
    await turns()
    stage.client.asked[0][1].set_exception(NoNodeError())
    await turns()
    assert [what for what, _ in stage.client.asked[1:]] == ["create /a", "create /a/b"]
    for _, answer in stage.client.asked[1:]:
        answer.set("made")
    await turns()
    assert stage.client.asked[3][0] == "create /a/b/c"
    stage.client.asked[3][1].set("/a/b/c")
    assert await task == "/a/b/c"


async def test_parents_that_vanish_for_ever_are_not_made_for_ever(stage: Stage) -> None:
    task = asyncio.ensure_future(stage.zookeeper.create("/a/b", make_parents=True))
    while not task.done():
        await turns(1)
        for _, answer in stage.client.asked:
            answer.set_exception(NoNodeError())
    with pytest.raises(NodeMissing):
        await task
    assert len(stage.client.asked) == 2 * MAKE_PARENTS_ATTEMPTS_MAX


async def test_a_watch_comes_after_the_answer_that_set_it(stage: Stage) -> None:
    events: list[str] = []
    task = asyncio.ensure_future(
        stage.zookeeper.children("/a", on_change=lambda: events.append("changed"))
    )
    task.add_done_callback(lambda _: events.append("answered"))
    await turns()
    watch = stage.client.watches[0]
    assert watch is not None
    stage.client.asked[0][1].set(["b", "a"])
    stage.client.handler.post(watch, "event")
    assert await task == ["a", "b"]
    await turns()
    assert sorted(events) == ["answered", "changed"]


async def test_a_watch_is_not_called_where_its_request_was_cancelled(stage: Stage) -> None:
    events: list[str] = []
    task = asyncio.ensure_future(
        stage.zookeeper.exists("/a", on_change=lambda: events.append("changed"))
    )
    await turns()
    task.cancel()
    await turns()
    watch = stage.client.watches[0]
    assert watch is not None
    stage.client.asked[0][1].set(None)
    stage.client.handler.post(watch, "event")
    await turns()
    assert events == []


async def test_closing_fails_what_waits_and_ends_the_session() -> None:
    stage = Stage()
    async with stage.zookeeper:
        task = stage.ask()
        await turns()
    with pytest.raises(ConnectionLost, match="closed"):
        await task
    with pytest.raises(ConnectionLost, match="closed"):
        await stage.zookeeper.exists("/a")
    assert stage.client.is_stopped
    stage.client.say(KazooState.LOST)
    await turns()
    assert stage.seen == [SessionState.CONNECTED], "the end we made ourselves is no expiry"
    gc.collect()  # nothing is left that complains of an error that was not looked at


async def test_a_process_that_ends_waits_shortly_for_one_answer_and_then_for_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HURRIED_S", 0.05)
    before = [stage.ask("/before"), stage.ask("/too")]
    await turns()
    stage.zookeeper.hurry()
    failed = await asyncio.gather(*before, return_exceptions=True)
    assert {type(each) for each in failed} <= {ConnectionLost, SessionExpired}
    asked = len(stage.client.asked)
    with pytest.raises(SessionExpired, match="this process ends"):
        await stage.ask("/after")
    assert len(stage.client.asked) == asked


async def test_a_process_that_ends_works_with_a_zookeeper_that_answers(stage: Stage) -> None:
    stage.zookeeper.hurry()
    for number in range(3):
        task = stage.ask(f"/{number}")
        await turns()
        stage.client.asked[-1][1].set(STAT)
        assert await task is not None


class StuckClient(FakeClient):
    """A kazoo that does not end as long as its server does not answer."""

    def __init__(self, handler: LoopHandler) -> None:
        super().__init__(handler)
        self.goes_on = threading.Event()

    def stop(self) -> None:
        self.goes_on.wait()
        super().stop()


async def test_the_end_of_a_session_without_a_connection_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_module, "CLOSE_TIMEOUT_S", LONG_S)
    stage = Stage(kind=StuckClient)
    async with asyncio.timeout(60):
        async with stage.zookeeper:
            stage.client.say(KazooState.SUSPENDED)
            await turns()
    client = stage.client
    assert isinstance(client, StuckClient)
    client.goes_on.set()


async def test_no_answer_to_the_connect_is_an_error_that_says_where() -> None:
    zookeeper = ZooKeeper(
        "played:1", SimulatedClock(), connect_timeout_s=0.01, make_client=FakeClient
    )
    with pytest.raises(ConnectionLost, match=r"no ZooKeeper answered at played:1 within 0\.01 s"):
        await zookeeper.__aenter__()


@pytest.mark.parametrize("hosts", ["", "host:port", ":"])
async def test_an_address_that_is_none_is_refused_with_the_form_it_should_have(hosts: str) -> None:
    with pytest.raises(CoordinationError, match="HOST:PORT"):
        await ZooKeeper(hosts, SimulatedClock()).__aenter__()
