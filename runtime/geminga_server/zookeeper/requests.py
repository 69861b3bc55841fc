"""Requests to ZooKeeper: held while there is no connection, sent in order, answered or failed.

Every request has a deadline. While there is no connection, or too many requests are on the way,
they are held here and sent, in order, when there is room. Nothing here knows of sessions:
``session`` reports when there is a connection, and when all requests must fail.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
# 10,000 topics at once makes about this many; more than that are a mistake.
REQUESTS_HELD_MAX = 65_536
# A part that ends has a second or two for all of it. It waits so long for an answer that shows
# whether there is still a ZooKeeper: less than the second that some parts give each step.
HURRIED_S = 0.75
# Said with ``SessionExpired``: callers that try again after ``ConnectionLost`` must not do so now.
GIVEN_UP = "ZooKeeper does not answer, and this process ends"


@dataclass(slots=True, eq=False)
class _Request:
    path: str
    # Hands the request to kazoo.
    send: Callable[[Client], Answer]
    # Has the answer.
    future: asyncio.Future[object]
    # By the loop's time.
    deadline_s: float

    def fail(self, error: CoordinationError) -> None:
        # It is done already where its task was cancelled or its deadline has passed.
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class Watch:
    """Calls ``on_change`` once, if the request that set the watch was answered."""

    on_change: OnChange
    asked_by: asyncio.Future[object] | None = None

    def __call__(self, _event: object) -> None:
        """The node changed, or the connection broke; kazoo calls this, on the loop."""
        # Without an answer the caller knows of no watch: it got an error, and has to read again.
        future = self.asked_by
        if future is None or not future.done() or future.cancelled() or future.exception():
            return
        # Behind the waiter that the answer just woke; an error in it is the loop's to report.
        asyncio.get_running_loop().call_soon(self.on_change)


# The way of one request; its future is done at the end of each line:
#
#     ask --> held --> in flight --> answered       by kazoo, in the order of sending
#              |           |
#              |           +-------> out of time    fails, and stays in flight until kazoo answers
#              +-------------------> out of time    fails, and is never sent
#     held or in flight -----------> failed         at the end of the session (``fail_all``)
class Requests:
    """The requests of one part, over all its sessions."""

    def __init__(self, timeout_s: float) -> None:
        # Each request is answered or fails within so many seconds.
        self.timeout_s = timeout_s
        # An answer failed to come while the part ended: every request fails from now on.
        self.is_given_up = False
        # ``hurry`` was called: the process ends.
        self._is_hurried = False
        self._is_closed = False
        # Where requests are sent now; None while there is no connection.
        self._connection: tuple[Client, LoopHandler] | None = None
        # Both in the order of the requests, which is that of their deadlines: one timer, for the
        # first that has no answer, is enough.
        self._in_flight: dict[_Request, None] = {}
        self._held: deque[_Request] = deque()
        # The timer of the oldest request that has no answer.
        self._deadline: asyncio.TimerHandle | None = None

    def ask(
        self, path: str, send: Callable[[Client], Answer], watch: Watch | None = None
    ) -> asyncio.Future[object]:
        """Send a request, now or when there is a connection; the future has its answer."""
        assert path.startswith("/"), f"a node's path begins with '/', this one does not: {path!r}"
        loop = asyncio.get_running_loop()
        request = _Request(path, send, loop.create_future(), loop.time() + self.timeout_s)
        # Before the request is sent: the watch looks at this future when it is called.
        if watch is not None:
            watch.asked_by = request.future
        if self._is_closed:
            request.fail(ConnectionLost("the connection to ZooKeeper is closed"))
        elif self.is_given_up:
            request.fail(SessionExpired(GIVEN_UP))
        elif len(self._held) >= REQUESTS_HELD_MAX:
            request.fail(ConnectionLost(f"{REQUESTS_HELD_MAX} requests wait for ZooKeeper already"))
        else:
            # Through the queue even while there is a connection: requests keep their order.
            self._held.append(request)
            self._set_deadline_timer()
            self._send_held()
        return request.future

    def connected(self, client: Client, handler: LoopHandler) -> None:
        """There is a connection: send what is held."""
        # Requests that were on the way before are not sent again: kazoo has failed them, and their
        # callers decide.
        self._connection = client, handler
        self._send_held()

    def disconnected(self) -> None:
        """The connection is gone: hold requests. kazoo fails those on the way."""
        self._connection = None

    def hurry(self) -> None:
        """The part ends: wait ``HURRIED_S`` for each answer, and for no answer at all once one has
        failed to come."""
        self._is_hurried = True
        self.timeout_s = min(self.timeout_s, HURRIED_S)
        # Deadlines stay in the order of the requests: all that were later become this one.
        limit_s = asyncio.get_running_loop().time() + self.timeout_s
        for request in chain(self._in_flight, self._held):
            request.deadline_s = min(request.deadline_s, limit_s)
        # The timer was set for the old deadline, which is later.
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._set_deadline_timer()

    def fail_all(self, error_type: type[CoordinationError], why: str) -> None:
        """Fail all requests that have no answer."""
        waiting = [*self._in_flight, *self._held]
        # Before any request fails: none of them counts against the bound any more.
        self._in_flight.clear()
        self._held.clear()
        for request in waiting:
            request.fail(error_type(f"{why}, before the answer for {request.path}"))

    def close(self) -> None:
        """Fail all requests that have no answer, and those still to come."""
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
            # kazoo's thread sets the answer; the loop takes it, in the order of reading. Where the
            # answer is there before ``rawlink`` is called, the loop posts it to itself.
            request.send(client).rawlink(partial(handler.post, self._answered, request))

    def _answered(self, request: _Request, answer: Answer) -> None:
        # It may be gone already: ``fail_all`` does not wait for kazoo, which answers later.
        self._in_flight.pop(request, None)
        error = answer.exception
        if error is not None:
            request.fail(coordination_error(error, request.path))
        elif not request.future.done():  # else the answer came too late
            request.future.set_result(answer.get())
        # There is room for one more in flight.
        if self._held:
            self._send_held()

    def _set_deadline_timer(self) -> None:
        """Have a timer for the oldest request that has no answer, unless there is a timer."""
        if self._deadline is not None:
            return
        for request in chain(self._in_flight, self._held):
            if not request.future.done():
                loop = asyncio.get_running_loop()
                self._deadline = loop.call_at(request.deadline_s, self._fail_overdue)
                return

    def _fail_overdue(self) -> None:
        """Fail the requests whose deadline has passed, and set the timer for the next one."""
        self._deadline = None
        now_s, limit_s = asyncio.get_running_loop().time(), f"{self.timeout_s:g} s"
        # A request that times out after it was sent stays in flight, for kazoo still has it. Later
        # reads of this session are answered after it: a caller that reads before it tries again
        # sees whether it was carried out.
        for request in chain(self._in_flight, self._held):
            if request.future.done():
                continue
            # The deadlines of those that follow are no earlier.
            if request.deadline_s > now_s:
                break
            why = f"no answer from ZooKeeper for {request.path} within {limit_s}"
            request.fail(ConnectionLost(why))
            # One answer that does not come is enough: a process that ends has no time for a second
            # wait.
            self.is_given_up = self._is_hurried
        # Requests that were never sent go altogether: kazoo owes no answer for them.
        while self._held and self._held[0].future.done():
            self._held.popleft()
        if self.is_given_up:
            self.fail_all(SessionExpired, GIVEN_UP)
        self._set_deadline_timer()
