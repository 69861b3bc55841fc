"""The client's side of a session with the simulated ZooKeeper, and of its bad days.

What the server (``coordination.py``) does is handed over as a function of each request and runs
when the request arrives there. Requests, answers and events each keep their order, as ZooKeeper
promises for a session.

A session may be connected to a follower that hears late of changes. It reads what was there before,
also of a session that has ended meanwhile. Writes are made at once, by the leader, and answered
when the follower hears of them; what the session asks behind one waits for that. So nobody reads
what is older than what he wrote or saw, with one exception that real clients have as well: whoever
had no answer to a write, and connects to such a follower, reads as if it was not made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, cast

from geminga_runtime.coordination import (
    ANY_VERSION,
    DOUBT_FRACTION,
    MAKE_PARENTS_ATTEMPTS_MAX,
    NO_SESSION,
    ConnectionLost,
    CoordinationError,
    NodeExists,
    NodeMissing,
    NodeStat,
    OnChange,
    OnSession,
    Operation,
    SessionExpired,
    SessionState,
    check_size,
    operation_bytes,
)
from geminga_simulation.event_loop.incarnation import CURRENT
from geminga_simulation.zookeeper.node_tree import NodeTree
from geminga_simulation.zookeeper.requests import Follower, Replica, Request, Server, Watch
from geminga_simulation.zookeeper.write_troubles import Trouble

ResultT = TypeVar("ResultT")

CONNECT_TIMEOUT_S = 10.0
# How late is late, of a write that meets with it.
TROUBLE_LATE_S_MAX = 1.0


class SimulatedSession:
    """A client's session: implements ``geminga_runtime.coordination.Coordination``.

    Usable at once; ``async with`` waits for the connection first and ends the session at the end.
    """

    def __init__(self, server: Server, host: str, context: Context, timeout_s: float) -> None:
        self.host = host
        self.context = context
        self.incarnation = context.get(CURRENT) or server.loop.main
        self.timeout_s = timeout_s
        self.is_link_up = False
        # The server that it is connected to, and the last change that it was told to know of.
        self.replica = server.leader
        self.seen_zxid = 0
        # Closed, or its process died.
        self.is_over = False
        self._server = server
        self._session_id = NO_SESSION
        self._state = SessionState.EXPIRED
        self._connected = asyncio.Event()
        self._callbacks: list[OnSession] = []
        self._held: deque[Request] = deque()
        # Sent and not answered; the first ``len(_requests)`` of the youngest are not served yet.
        self._in_flight: dict[Request, None] = {}
        self._requests: deque[Request] = deque()
        # On their way to the client, each with the moment up to which the server knew all by then.
        self._answers: deque[tuple[float, Callable[[], None]]] = deque()
        self._deaf_since_s: float | None = None  # the server tells it nothing
        # At a follower that lags: writes it has not heard of, and requests that wait behind one.
        self._unheard = 0
        self._postponed: deque[Request] = deque()
        self._watches: dict[Watch, None] = {}
        # Counts connections: what belongs to an earlier one is dropped where it arrives.
        self._link = 0
        self._arrival_s = 0.0
        self._answer_s = 0.0
        self._heard_s = 0.0
        self._doubt_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._connected.wait()
        except TimeoutError as error:
            raise ConnectionLost(f"no ZooKeeper answers {self.host}") from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session at the server, if it can be reached; what still waits fails."""
        if self.is_over:
            return
        if self.is_link_up:
            session_id = self._session_id
            goodbye = self._ask("/", lambda _: self._server.end(session_id))
            with suppress(CoordinationError):
                await goodbye
        self._finish()
        self._fail_all(ConnectionLost, "the session was closed")

    def die(self) -> None:
        """The process died: nothing more is sent or told, the server hears silence."""
        self.cut_link()
        self._finish()

    def _finish(self) -> None:
        self.is_over = True
        self.is_link_up = False
        if self._doubt_timer is not None:
            self._doubt_timer.cancel()

    def go_deaf(self) -> None:
        """The server ends the session, or the connection breaks."""
        self._deaf_since_s = self.knows_until_s

    @property
    def knows_until_s(self) -> float:
        """Of all changes before, the client has heard; only an outside observer can know this."""
        told_s = self._answers[0][0] if self._answers else self._server_knows_until_s
        return told_s if self._deaf_since_s is None else self._deaf_since_s

    @property
    def _server_knows_until_s(self) -> float:
        """Of all changes before, the server that the client is connected to has heard."""
        replica = self.replica
        return replica.since_s if isinstance(replica, Follower) else self._server.loop.now_s

    # --- Coordination -----------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        """This session's id; ``NO_SESSION`` between two sessions."""
        return self._session_id

    @property
    def state(self) -> SessionState:
        """What the session is worth now, as far as this client knows."""
        return self._state

    def on_session(self, callback: OnSession) -> None:
        """As ``Coordination.on_session``."""
        self._callbacks.append(callback)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """As ``Coordination.create``."""
        check_size(path, len(value))

        def work(tree: NodeTree) -> str:
            owner = self._session_id if ephemeral else 0
            return tree.create(path, value, owner, is_sequential=sequential)

        for _ in range(MAKE_PARENTS_ATTEMPTS_MAX):
            try:
                return await self._ask_to_change("create", path, work)
            except NodeMissing:
                if not make_parents:
                    raise
            await self._make_parents(path)
        raise NodeMissing(path)

    async def _make_parents(self, path: str) -> None:
        names = path.split("/")[1:-1]
        for depth in range(1, len(names) + 1):
            try:
                await self.create("/" + "/".join(names[:depth]))
            except (NodeExists, NodeMissing):
                continue

    async def get(self, path: str, *, on_change: OnChange | None = None) -> tuple[bytes, NodeStat]:
        """As ``Coordination.get``."""
        return await self._ask(path, lambda tree: tree.get(path), on_change)

    async def exists(self, path: str, *, on_change: OnChange | None = None) -> NodeStat | None:
        """As ``Coordination.exists``."""
        return await self._ask(path, lambda tree: tree.exists(path), on_change)

    async def children(self, path: str, *, on_change: OnChange | None = None) -> list[str]:
        """As ``Coordination.children``."""
        names = self._ask(path, lambda tree: tree.children(path), on_change, watches_children=True)
        return await names

    async def set(self, path: str, value: bytes, *, version: int = ANY_VERSION) -> NodeStat:
        """As ``Coordination.set``."""
        check_size(path, len(value))
        return await self._ask_to_change("set", path, lambda tree: tree.set(path, value, version))

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        """As ``Coordination.delete``."""
        await self._ask_to_change("delete", path, lambda tree: tree.delete(path, version))

    async def transaction(self, operations: Sequence[Operation]) -> None:
        """As ``Coordination.transaction``."""
        if not operations:
            return
        batch = tuple(operations)
        check_size(batch[0].path, sum(map(operation_bytes, batch)))
        await self._ask_to_change(
            "transaction", batch[0].path, lambda tree: tree.transaction(batch, self._session_id)
        )

    # --- requests ---------------------------------------------------------------------------

    def _ask_to_change(
        self, verb: str, path: str, work: Callable[[NodeTree], ResultT]
    ) -> asyncio.Future[ResultT]:
        return self._ask(path, work, verb=verb)

    def _ask(
        self,
        path: str,
        work: Callable[[NodeTree], ResultT],
        on_change: OnChange | None = None,
        *,
        verb: str = "",
        watches_children: bool = False,
    ) -> asyncio.Future[ResultT]:
        """Send a request, now or when there is a connection; the future has its answer."""
        loop = self._server.loop
        future = loop.create_future()
        watch = None if on_change is None else Watch(self, on_change)
        request = Request(path, work, future, watch, verb=verb, watches_children=watches_children)
        if self.is_over:
            if self.incarnation.is_alive:
                request.settle(None, ConnectionLost("the session is closed"))
        else:
            request.timer = loop.call_later(self.timeout_s, self._give_up_waiting, request)
            if self._state is SessionState.CONNECTED:
                self._send(request)
            else:
                self._held.append(request)
        return cast("asyncio.Future[ResultT]", future)

    def _give_up_waiting(self, request: Request) -> None:
        request.settle(None, ConnectionLost(f"no answer for {request.path} in time"))

    def _send(self, request: Request) -> None:
        server = self._server
        self._in_flight[request] = None
        if not self.is_link_up:
            return  # broken, and not noticed yet: it fails when it is
        self._requests.append(request)
        conditions, chance = server.conditions, server.random
        self._arrival_s = max(self._arrival_s, server.loop.now_s + server.delay_s())
        if conditions.late_probability and chance.random() < conditions.late_probability:
            self._arrival_s += chance.random() * conditions.late_s_max
        loss_probability = conditions.loss_probability
        if request.verb:
            loss_probability += conditions.write_loss_probability
            request.trouble = server.troubles.meet(request.verb, request.path)
            if request.trouble is Trouble.LATE:
                self._arrival_s += chance.random() * TROUBLE_LATE_S_MAX
        server.loop.at(self._arrival_s, self._arrive, self._link, context=server.context)
        if loss_probability and chance.random() < loss_probability:
            self.cut_link()

    def _arrive(self, link: int) -> None:
        if link != self._link:
            return
        request = self._requests.popleft()
        match request.trouble:
            case Trouble.REFUSED:
                self._requests.clear()  # nothing behind it may arrive either
                self.cut_link()
            case Trouble.UNANSWERED:
                self._serve(request)
                self.cut_link()
            case Trouble.EXPIRED:
                self._server.expire(self)
            case Trouble.EXPIRED_BEHIND:
                self._serve(request)
                self._server.expire(self)
            case Trouble.ANSWERED_LATE:
                late_s = self._server.random.random() * TROUBLE_LATE_S_MAX
                self._answer_s = max(self._answer_s, self._server.loop.now_s) + late_s
                self._serve(request)
            case _:
                self._serve(request)

    def _serve(self, request: Request) -> None:
        """At the server: do it, leave the watch, answer. A session that has expired gets the end of
        its connection for an answer, as soon as its server knows."""
        server, replica = self._server, self.replica
        follower = replica if isinstance(replica, Follower) else None
        if self._postponed or (self._unheard and not request.verb):
            self._postponed.append(request)
            return
        if not server.is_alive(self._session_id) and (follower is None or request.verb):
            self.cut_link()
            return
        server.loop.trace.note(f"{self.host} asks {request.path}")
        tree = server.leader.tree if request.verb else replica.tree
        result: object = None
        error: CoordinationError | None = None
        try:
            result = request.work(tree)
        except CoordinationError as refusal:
            # Without this frame: it holds the error, and the two would keep each other.
            error = refusal.with_traceback(None)
        watch, zxid = request.watch, tree.zxid
        if watch is not None and error is None:
            replica.watch(request, watch)

        def answer() -> None:
            self.seen_zxid = max(self.seen_zxid, zxid)
            self._in_flight.pop(request, None)
            if watch is not None and error is None:
                self._watches[watch] = None
                if request.future.cancelled():
                    watch.is_spent = True
            request.settle(result, error)

        if follower is not None and request.verb:
            self._unheard += 1
            follower.behind.append(partial(self._answer_of, self._link, answer))
        else:
            self._answer(answer)

    def _answer_of(self, link: int, deliver: Callable[[], None]) -> None:
        """Answer, unless the connection is another by now."""
        if link == self._link:
            self._answer(deliver)

    def go_on(self, leader: Replica) -> None:
        """At the server, which has heard of all changes: serve what waited for that."""
        self.replica = leader
        self._unheard = 0
        postponed, self._postponed = self._postponed, deque()
        link = self._link
        for request in postponed:
            if link == self._link:
                self._serve(request)

    def send_event(self, watch: Watch) -> None:
        """At the server: tell the client that a watch fired, behind all answers sent before. A
        session that is over has no connection there any more, whatever its client believes."""
        if self._server.is_alive(self._session_id):
            self._answer(lambda: self._fire(watch))

    def _answer(self, deliver: Callable[[], None]) -> None:
        if self.is_link_up:
            server = self._server
            self._answers.append((self._server_knows_until_s, deliver))
            self._answer_s = max(self._answer_s, server.loop.now_s + server.delay_s())
            server.loop.at(self._answer_s, self._receive, self._link, context=self.context)

    def _receive(self, link: int) -> None:
        if link == self._link and not self.is_over:
            self._answers.popleft()[1]()

    def _fire(self, watch: Watch) -> None:
        """In the client: call whoever watched, once, behind those whom an answer just woke."""
        self._watches.pop(watch, None)
        if not watch.is_spent:
            watch.is_spent = True
            self._server.loop.call_soon(watch.on_change)

    def _fail_all(self, error_type: type[CoordinationError], why: str) -> None:
        waiting = [*self._in_flight, *self._held]
        self._in_flight.clear()
        self._held.clear()
        for request in waiting:
            request.settle(None, error_type(f"{why}, before the answer for {request.path}"))

    # --- the connection ---------------------------------------------------------------------

    def cut_link(self) -> None:
        """The connection breaks: some of what is on the way still reaches the server."""
        if not self.is_link_up:
            return
        self.go_deaf()
        server = self._server
        self.is_link_up = False
        arriving = server.random.randrange(len(self._requests) + 1)
        for _ in range(arriving if server.is_alive(self._session_id) else 0):
            self._serve(self._requests.popleft())
        self._link += 1
        self._requests.clear()
        self._answers.clear()
        quiet_s = server.count_silence(self._session_id, self.timeout_s)
        self._heard_s = server.loop.now_s - quiet_s
        self.replica.forget(self)
        self.replica = server.leader
        self._unheard = 0
        self._postponed.clear()
        server.loop.after(server.delay_s(), self._notice_cut, context=self.context)

    def cut_link_of(self, session_id: int) -> None:
        """The connection breaks, unless the client has another session by now."""
        if session_id == self._session_id:
            self.cut_link()

    def _notice_cut(self) -> None:
        """In the client: the connection is gone."""
        if self.is_over or self._state is not SessionState.CONNECTED:
            return
        self._change_state(SessionState.SUSPENDED)
        for request in list(self._in_flight):
            lost = ConnectionLost(f"the connection broke before the answer for {request.path}")
            request.settle(None, lost)
        self._in_flight.clear()
        for watch in list(self._watches):
            self._fire(watch)
        loop = self._server.loop
        left_s = self._heard_s + self.timeout_s * DOUBT_FRACTION - loop.now_s
        self._doubt_timer = loop.call_later(max(0.0, left_s), self._doubt)
        self.reconnect_later()

    def reconnect_later(self) -> None:
        """Try to connect again soon; one that cannot get through tries when it
        can."""
        server = self._server
        delay_s = server.random.random() * server.conditions.reconnect_s_max
        server.loop.after(delay_s, self.connect, context=self.context)

    def connect(self) -> None:
        """In the client: connect, with the old session while it may live, else with a new one."""
        server = self._server
        if self.is_over or self.is_link_up:
            return
        if server.is_away or self.host in server.isolated_hosts:
            return
        if self._state is SessionState.CONNECTED:
            return  # it has not noticed yet that it must
        is_known = self._state is not SessionState.EXPIRED
        if is_known and not server.is_alive(self._session_id):
            self._expire()
        if self._state is SessionState.EXPIRED:
            self._session_id = server.begin()
        else:
            self.replica = server.replica_for(self)
        server.stop_silence(self._session_id)
        self._link += 1
        self.is_link_up = True
        self._deaf_since_s = None
        self._change_state(SessionState.CONNECTED)
        self._connected.set()
        held, self._held = self._held, deque()
        for request in held:
            if not request.future.done():
                self._send(request)

    def _doubt(self) -> None:
        """In the client: too long without a word."""
        if not self.is_over and self._state is SessionState.SUSPENDED:
            self._change_state(SessionState.DOUBTFUL)

    def _expire(self) -> None:
        self._session_id = NO_SESSION
        self._change_state(SessionState.EXPIRED)
        self._fail_all(SessionExpired, "the session expired")

    def _change_state(self, state: SessionState) -> None:
        if self._doubt_timer is not None:
            self._doubt_timer.cancel()
            self._doubt_timer = None
        self._state = state
        for callback in self._callbacks:
            self._server.loop.call_soon(callback, state)
