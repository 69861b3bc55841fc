"""What a part asks ZooKeeper: held while there is no connection, sent in order, answered or failed.

Every request has a deadline. While there is no connection, or too many requests are on the way,
they are held here and sent, in order, when there is room. Nothing here knows of sessions:
``zookeeper`` says when there is a connection, and when everything that waits is to fail.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import chain

from geminga_runtime.coordination import (
    ConnectionLost,
    CoordinationError,
    OnChange,
    SessionExpired,
)
from geminga_server.zookeeper.kazoo_bridge import Answer, LoopHandler
from geminga_server.zookeeper.kazoo_client import Client
from geminga_server.zookeeper.kazoo_words import coordination_error

# More than this on the way only makes the server's queue longer (its own limit is 1000 for all).
REQUESTS_IN_FLIGHT_MAX = 128
# Requests held back while there is no connection or too many are on the way. A broker that loads
# 10,000 topics at once asks about this many questions; more waiting than that is a mistake.
REQUESTS_HELD_MAX = 65_536
# A part that ends has a second or two for all of it. So long it waits for an answer that says
# whether there is still a ZooKeeper: less than the second that some give each step of their end.
HURRIED_S = 0.75
# Then the session counts as over: who tries again after a lost connection shall not, now.
GIVEN_UP = "ZooKeeper does not answer, and this process ends"


class _Request:
    """One question: how to send it, who waits for the answer, and until when (the loop's time)."""

    __slots__ = ("deadline_s", "future", "path", "send")

    def __init__(
        self,
        path: str,
        send: Callable[[Client], Answer],
        future: asyncio.Future[object],
        deadline_s: float,
    ) -> None:
        self.path = path
        self.send = send
        self.future = future
        self.deadline_s = deadline_s

    def succeed(self, value: object) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: CoordinationError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Watch:
    """Calls ``on_change`` once, and only for somebody who was told that the watch is set."""

    __slots__ = ("asked_by", "on_change")

    def __init__(self, on_change: OnChange) -> None:
        self.on_change = on_change
        self.asked_by: asyncio.Future[object] | None = None

    def __call__(self, _event: object) -> None:
        """kazoo's call, on the loop."""
        future = self.asked_by
        if future is None or not future.done() or future.cancelled() or future.exception():
            return
        # Behind the waiter that the answer just woke; an error in it is the loop's to report.
        asyncio.get_running_loop().call_soon(self.on_change)


class Requests:
    """Those of one part, over all its sessions; each is answered or fails in ``timeout_s``."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        # Whether an answer failed to come while the part ended: there will be none.
        self.is_given_up = False
        self._is_hurried = False
        self._is_closed = False
        # Where requests are sent now; None while there is no connection.
        self._connection: tuple[Client, LoopHandler] | None = None
        # Both in the order of asking, which is that of their deadlines: one timer is enough.
        self._in_flight: dict[_Request, None] = {}
        self._held: deque[_Request] = deque()
        self._deadline: asyncio.TimerHandle | None = None

    def ask(
        self, path: str, send: Callable[[Client], Answer], watch: Watch | None = None
    ) -> asyncio.Future[object]:
        """Send a request, now or when there is a connection; the future has its answer."""
        assert path.startswith("/"), f"a node's path begins with '/', this one does not: {path!r}"
        loop = asyncio.get_running_loop()
        request = _Request(path, send, loop.create_future(), loop.time() + self.timeout_s)
        if watch is not None:
            watch.asked_by = request.future
        if self._is_closed:
            request.fail(ConnectionLost("the connection to ZooKeeper is closed"))
        elif self.is_given_up:
            request.fail(SessionExpired(GIVEN_UP))
        elif len(self._held) >= REQUESTS_HELD_MAX:
            request.fail(ConnectionLost(f"{REQUESTS_HELD_MAX} requests wait for ZooKeeper already"))
        else:
            self._held.append(request)
            self._watch_deadlines()
            self._send_held()
        return request.future

    def connected(self, client: Client, handler: LoopHandler) -> None:
        """There is a connection: send what is held."""
        self._connection = client, handler
        self._send_held()

    def disconnected(self) -> None:
        """There is none: hold what is asked."""
        self._connection = None

    def hurry(self) -> None:
        """The part ends: wait ``HURRIED_S`` for each answer, and for none at all after the first
        that does not come."""
        self._is_hurried = True
        self.timeout_s = min(self.timeout_s, HURRIED_S)
        limit_s = asyncio.get_running_loop().time() + self.timeout_s
        for request in chain(self._in_flight, self._held):
            request.deadline_s = min(request.deadline_s, limit_s)
        self._watch_deadlines(anew=True)

    def fail_all(self, error_type: type[CoordinationError], why: str) -> None:
        """Fail everything that waits."""
        waiting = [*self._in_flight, *self._held]
        self._in_flight.clear()
        self._held.clear()
        for request in waiting:
            request.fail(error_type(f"{why}, before the answer for {request.path}"))

    def close(self) -> None:
        """Fail everything that waits, and whatever is still asked."""
        self._is_closed = True
        if self._deadline is not None:
            self._deadline.cancel()
        self.fail_all(ConnectionLost, "the connection to ZooKeeper was closed")

    def _send_held(self) -> None:
        if self._connection is None:
            return
        client, handler = self._connection
        while self._held and len(self._in_flight) < REQUESTS_IN_FLIGHT_MAX:
            request = self._held.popleft()
            if request.future.done():  # cancelled, or out of time, before it was sent
                continue
            self._in_flight[request] = None
            handler.post_when_ready(request.send(client), self._answered, request)

    def _answered(self, request: _Request, answer: Answer) -> None:
        self._in_flight.pop(request, None)
        error = answer.exception
        if error is None:
            request.succeed(answer.get())
        else:
            request.fail(coordination_error(error, request.path))
        if self._held:
            self._send_held()

    def _watch_deadlines(self, *, anew: bool = False) -> None:
        """Have a timer for the request that waits longest."""
        if self._deadline is not None:
            if not anew:
                return
            self._deadline.cancel()
            self._deadline = None
        for request in chain(self._in_flight, self._held):
            if not request.future.done():
                loop = asyncio.get_running_loop()
                self._deadline = loop.call_at(request.deadline_s, self._give_up_overdue)
                return

    def _give_up_overdue(self) -> None:
        """Fail what has waited for too long, and look again when the next one has."""
        self._deadline = None
        now_s, limit_s = asyncio.get_running_loop().time(), f"{self.timeout_s:g} s"
        # What was given up after it was sent stays in flight, for kazoo still has it; a later read
        # of this session is answered after it, so who reads before trying again sees what became
        # of it.
        for request in chain(self._in_flight, self._held):
            if request.future.done():
                continue
            if request.deadline_s > now_s:
                break
            why = f"no answer from ZooKeeper for {request.path} within {limit_s}"
            request.fail(ConnectionLost(why))
            self.is_given_up = self._is_hurried
        while self._held and self._held[0].future.done():
            self._held.popleft()
        if self.is_given_up:
            self.fail_all(SessionExpired, GIVEN_UP)
        self._watch_deadlines()
