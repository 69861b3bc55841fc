"""What happens between a client of the simulated ZooKeeper and its server: connections, requests on
their way, answers and events on the way back.

What the server does for a request is a function of it, which runs when the request arrives there.
Requests, answers and events each keep their order, as ZooKeeper promises for a session.

A session may be connected to a follower that learns of changes late. It then reads what was there
before, also nodes of a session that has ended meanwhile. Its writes are made at once, by the
leader, and answered when the follower learns of them; requests behind a write wait for that. So a
session never reads a state older than what it wrote or read before, with one exception that real
clients have as well: a client that got no answer to a write, and reconnects to such a follower,
reads as if the write was not made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from geminga_runtime.coordination import (
    DOUBT_FRACTION,
    NO_SESSION,
    ConnectionLost,
    CoordinationError,
    OnChange,
    OnSession,
    SessionExpired,
    SessionState,
)
from geminga_simulation.event_loop.incarnation import CURRENT
from geminga_simulation.zookeeper.node_tree import NodeTree
from geminga_simulation.zookeeper.requests import Follower, Replica, Request, Watch
from geminga_simulation.zookeeper.write_troubles import Trouble

if TYPE_CHECKING:
    from geminga_simulation.zookeeper.server import SimulatedZooKeeper

ResultT = TypeVar("ResultT")

# How much later a write is made, or answered, that meets with such a trouble.
TROUBLE_LATE_S_MAX = 1.0


# The states of a session, as its client sees them:
#
#     EXPIRED ──connect──▶ CONNECTED ──break noticed──▶ SUSPENDED ──nothing heard──▶ DOUBTFUL
#        ▲                     ▲                            │                           │
#        │                     └──── connect, the session lives ────────────────────────┤
#        └───────────────────── connect, the server has ended it ───────────────────────┘
#
# and the way of a request:
#
#     ask ─▶ _held (no connection) ─▶ _in_flight and _requests ─▶ _serve ─▶ _answers ─▶ settle
#
# A break drops ``_requests`` and ``_answers`` and, when the client notices it, fails what is in
# ``_in_flight``; ``_held`` waits for the next connection.
class SessionLink:
    """A session without the interface of ``Coordination``: the base of ``SimulatedSession``.

    Some methods run at the server and some in the client, which are told apart in their docstrings:
    what one side knows, the other learns later.
    """

    def __init__(
        self, server: SimulatedZooKeeper, host: str, context: Context, timeout_s: float
    ) -> None:
        self.host = host
        # That of the process which opened the session: answers and events come in it.
        self.context = context
        self.incarnation = context.get(CURRENT) or server.loop.main
        self.timeout_s = timeout_s
        # ``NO_SESSION`` between two sessions.
        self.session_id = NO_SESSION
        # What the session is worth now, as far as this client knows.
        self.state = SessionState.EXPIRED
        # The server's view of the connection; the client notices a break later.
        self.is_link_up = False
        # The server that it is connected to, and the last change that an answer has shown it.
        self.replica = server.leader
        self.seen_zxid = 0
        # Closed, or its process died.
        self.is_over = False
        self.server = server
        # Set from the first connection on.
        self.connected = asyncio.Event()
        # Called with each new state, in a turn of their own.
        self.callbacks: list[OnSession] = []
        # Requests made while there is no connection, to be sent in this order.
        self._held: deque[Request] = deque()
        # Sent and not answered; of these, ``_requests`` are still on their way to the server.
        self._in_flight: dict[Request, None] = {}
        self._requests: deque[Request] = deque()
        # On their way to the client, each with the moment up to which the server knew all changes
        # when it was sent.
        self._answers: deque[tuple[float, Callable[[], None]]] = deque()
        # Since when the server sends it nothing more, for it ended the session or the connection
        # broke; None while it does.
        self.deaf_since_s: float | None = None
        # At a follower that lags: how many writes it has not learned of, and the requests that wait
        # behind one.
        self._unheard = 0
        self._postponed: deque[Request] = deque()
        # Set at the server, as far as this client knows, and not fired.
        self._watches: dict[Watch, None] = {}
        # Counts connections: what belongs to an earlier one is dropped where it arrives.
        self._link = 0
        # When the last request arrives, and the last answer: later ones come no earlier.
        self._arrival_s = 0.0
        self._answer_s = 0.0
        # When the server was last heard of, before the connection broke.
        self._heard_s = 0.0
        self._doubt_timer: asyncio.TimerHandle | None = None

    def die(self) -> None:
        """The process died: it sends and receives nothing more, and the session times out."""
        self.cut_link()
        self.finish()

    def finish(self) -> None:
        """Send and receive nothing from now on."""
        self.is_over = True
        self.is_link_up = False
        if self._doubt_timer is not None:
            self._doubt_timer.cancel()

    @property
    def knows_until_s(self) -> float:
        """The moment until which the client knows of all changes. Only an outside observer can ask
        this: a checker of what clients were told."""
        if self.deaf_since_s is not None:
            return self.deaf_since_s
        return self._answers[0][0] if self._answers else self._server_knows_until_s

    @property
    def _server_knows_until_s(self) -> float:
        """The same of the server that the client is connected to."""
        replica = self.replica
        return replica.since_s if isinstance(replica, Follower) else self.server.loop.now_s

    # --- requests ---------------------------------------------------------------------------

    def ask(
        self,
        path: str,
        work: Callable[[NodeTree], ResultT],
        on_change: OnChange | None = None,
        *,
        verb: str = "",
        watches_children: bool = False,
    ) -> asyncio.Future[ResultT]:
        """Send a request, now or when there is a connection; the future has its answer."""
        loop = self.server.loop
        future = loop.create_future()
        watch = None if on_change is None else Watch(self, on_change)
        request = Request(
            path=path,
            verb=verb,
            work=work,
            future=future,
            watch=watch,
            watches_children=watches_children,
        )
        if self.is_over:
            # A dead process gets no answer at all, not even a refusal.
            if self.incarnation.is_alive:
                request.settle(None, ConnectionLost("the session is closed"))
        else:
            timed_out = ConnectionLost(f"no answer for {path} in time")
            # Also for a request that is held: its caller is not left waiting while ZooKeeper is
            # away.
            request.timer = loop.call_later(self.timeout_s, request.settle, None, timed_out)
            if self.state is SessionState.CONNECTED:
                self._send(request)
            else:
                self._held.append(request)
        return cast("asyncio.Future[ResultT]", future)

    def _send(self, request: Request) -> None:
        server = self.server
        self._in_flight[request] = None
        if not self.is_link_up:
            return  # broken, and not noticed yet: the request fails with the others when it is
        self._requests.append(request)
        conditions, chance = server.conditions, server.random
        # Never before the one sent before it: a session's requests keep their order.
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
        # A connection breaks after a request more often than before one: the interesting question
        # is whether the request was carried out, and ``cut_link`` draws that.
        if loss_probability and chance.random() < loss_probability:
            self.cut_link()

    def _arrive(self, link: int) -> None:
        """At the server: the oldest request arrives, on the connection that it was sent on."""
        if link != self._link:
            return
        request = self._requests.popleft()
        match request.trouble:
            case Trouble.REFUSED:
                self._requests.clear()  # nothing behind it may arrive either
                self.cut_link()
            case Trouble.UNANSWERED:
                # The answer is queued, and dropped by the cut: the client never learns of it.
                self._serve(request)
                self.cut_link()
            case Trouble.EXPIRED:
                self.server.expire(self)
            case Trouble.EXPIRED_BEHIND:
                self._serve(request)
                self.server.expire(self)
            case Trouble.ANSWERED_LATE:
                late_s = self.server.random.random() * TROUBLE_LATE_S_MAX
                self._answer_s = max(self._answer_s, self.server.loop.now_s) + late_s
                self._serve(request)
            case _:
                self._serve(request)

    def _serve(self, request: Request) -> None:
        """At the server: do the work, leave the watch, answer. A session that has expired gets the
        end of its connection for an answer, as soon as its server knows."""
        server, replica = self.server, self.replica
        follower = replica if isinstance(replica, Follower) else None
        # Behind a write that a lagging follower has not learned of, everything waits. Reads behind
        # an unheard write wait, so that a client reads what it wrote; writes go on to the leader,
        # unless something waits already: order is kept.
        if self._postponed or (self._unheard and not request.verb):
            self._postponed.append(request)
            return
        # The leader, which makes all writes, knows of the end of a session; a lagging follower goes
        # on answering reads.
        if not server.is_alive(self.session_id) and (follower is None or request.verb):
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
            watches = (
                replica.children_watches if request.watches_children else replica.value_watches
            )
            # At the server that answered: the watch and the value read are of one state of the
            # tree.
            watches.setdefault(request.path, []).append(watch)

        def answer() -> None:
            """In the client: the answer has come."""
            self.seen_zxid = max(self.seen_zxid, zxid)
            self._in_flight.pop(request, None)
            if watch is not None and error is None:
                self._watches[watch] = None
                # The caller is gone, and its watch with it: as ``Watch`` of the real adapter.
                if request.future.cancelled():
                    watch.is_spent = True
            request.settle(result, error)

        if follower is not None and request.verb:
            # The leader has made the write; the follower answers once it has learned of it.
            self._unheard += 1
            follower.behind.append(partial(self._answer, answer, self._link))
        else:
            self._answer(answer, self._link)

    def go_on(self, leader: Replica) -> None:
        """At the server, which now knows of all changes: serve the requests that waited for it."""
        self.replica = leader
        self._unheard = 0
        postponed, self._postponed = self._postponed, deque()
        link = self._link
        for request in postponed:
            if link == self._link:  # serving one may break the connection
                self._serve(request)

    def send_event(self, watch: Watch) -> None:
        """At the server: tell the client that a watch fired, behind all answers sent before. A
        session that is over has no connection there any more, even if its client does not know."""
        if self.server.is_alive(self.session_id):
            self._answer(lambda: self._fire(watch), self._link)

    def _answer(self, deliver: Callable[[], None], link: int) -> None:
        """At the server: send the client something, unless that connection is gone by now."""
        if self.is_link_up and link == self._link:
            server = self.server
            self._answers.append((self._server_knows_until_s, deliver))
            self._answer_s = max(self._answer_s, server.loop.now_s + server.delay_s())
            server.loop.at(self._answer_s, self._receive, self._link, context=self.context)

    def _receive(self, link: int) -> None:
        if link == self._link and not self.is_over:
            self._answers.popleft()[1]()

    def _fire(self, watch: Watch) -> None:
        """In the client: call the watch, if it was not called yet."""
        self._watches.pop(watch, None)
        if not watch.is_spent:
            watch.is_spent = True
            # In a later turn, as the real adapter does: behind tasks that an answer just woke.
            self.server.loop.call_soon(watch.on_change)

    def fail_all(self, error_type: type[CoordinationError], why: str) -> None:
        """In the client: fail all requests that have no answer."""
        # In the order in which they were made. Both are emptied first: a caller that is told of the
        # failure may ask again at once.
        waiting = [*self._in_flight, *self._held]
        self._in_flight.clear()
        self._held.clear()
        for request in waiting:
            request.settle(None, error_type(f"{why}, before the answer for {request.path}"))

    # --- the connection ---------------------------------------------------------------------

    def cut_link(self, session_id: int | None = None) -> None:
        """The connection breaks: some of what is on the way still reaches the server.

        Nothing happens if the client has another session than ``session_id`` by now.
        """
        if not self.is_link_up or session_id not in (None, self.session_id):
            return
        # Before the answers are dropped, which ``knows_until_s`` looks at.
        self.deaf_since_s = self.knows_until_s
        server = self.server
        # First, so that what is served now is carried out and not answered.
        self.is_link_up = False
        arriving = server.random.randrange(len(self._requests) + 1)
        for _ in range(arriving if server.is_alive(self.session_id) else 0):
            self._serve(self._requests.popleft())
        # Timers of arrivals stay set. They compare this number, and do nothing.
        self._link += 1
        self._requests.clear()
        self._answers.clear()
        # The silence counts from the last heartbeat, up to a third of the time-out ago.
        quiet_s = server.count_silence(self.session_id, self.timeout_s)
        self._heard_s = server.loop.now_s - quiet_s
        # ZooKeeper's watches end with the connection; the client fires its own when it notices.
        self.replica.forget(self)
        self.replica = server.leader
        self._unheard = 0
        self._postponed.clear()
        server.loop.after(server.delay_s(), self._notice_cut, context=self.context)

    def _notice_cut(self) -> None:
        """In the client: the connection is gone."""
        if self.is_over or self.state is not SessionState.CONNECTED:
            return
        # In this order, as the real adapter: the state, failed requests, then watches, since a
        # change may have gone unseen.
        self._change_state(SessionState.SUSPENDED)
        for request in list(self._in_flight):
            lost = ConnectionLost(f"the connection broke before the answer for {request.path}")
            request.settle(None, lost)
        self._in_flight.clear()
        for watch in list(self._watches):
            self._fire(watch)
        loop = self.server.loop
        left_s = self._heard_s + self.timeout_s * DOUBT_FRACTION - loop.now_s

        def doubt() -> None:
            # The server may soon end the session, for it was not heard of for long.
            if not self.is_over and self.state is SessionState.SUSPENDED:
                self._change_state(SessionState.DOUBTFUL)

        self._doubt_timer = loop.call_later(max(0.0, left_s), doubt)
        self.reconnect_later()

    def reconnect_later(self) -> None:
        """Try to connect again soon. A session that cannot get through then is called again when
        that has changed (``restore``, ``come_back``)."""
        server = self.server
        delay_s = server.random.random() * server.conditions.reconnect_s_max
        server.loop.after(delay_s, self.connect, context=self.context)

    def connect(self) -> None:
        """In the client: connect, with the old session while it may live, else with a new one."""
        server = self.server
        if self.is_over or self.is_link_up:
            return
        if server.is_away or self.host in server.isolated_hosts:
            return
        if self.state is SessionState.CONNECTED:
            return  # it has not noticed yet that the connection broke
        # Only the server knows that a session has expired: the client learns of it here.
        is_known = self.state is not SessionState.EXPIRED
        if is_known and not server.is_alive(self.session_id):
            # Before the state: code that is told of the end must not find the id of a session that
            # is over.
            self.session_id = NO_SESSION
            self._change_state(SessionState.EXPIRED)
            self.fail_all(SessionExpired, "the session expired")
        if self.state is SessionState.EXPIRED:
            self.session_id = server.begin()
        else:
            self.replica = server.replica_for(self)
        server.stop_silence(self.session_id)
        # What the former connection still has on its way is dropped where it arrives.
        self._link += 1
        # Before the held requests are sent, and before the callbacks: what they ask goes out at
        # once.
        self.is_link_up = True
        self.deaf_since_s = None
        self._change_state(SessionState.CONNECTED)
        self.connected.set()
        # In the order in which they were asked for, and before anything that is asked from now on.
        held, self._held = self._held, deque()
        for request in held:
            # Its caller may have given up, or its time-out has passed.
            if not request.future.done():
                self._send(request)

    def _change_state(self, state: SessionState) -> None:
        if self._doubt_timer is not None:
            self._doubt_timer.cancel()
            self._doubt_timer = None
        # At once, its callbacks a turn later: code that asks sees the state before it is told of
        # it.
        self.state = state
        for callback in self.callbacks:
            self.server.loop.call_soon(callback, state)
