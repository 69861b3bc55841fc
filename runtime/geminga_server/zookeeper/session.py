"""A session with a real ZooKeeper: ``Coordination`` over kazoo.

kazoo's thread never runs our code: answers, watches and session events come to the event loop
through ``kazoo_bridge``, in the order in which the connection read them. So a watch is called
before any answer that already shows the change, as ZooKeeper promises.

What this module adds to kazoo:

* **Every request ends.** It has a deadline. While there is no connection, requests are held
  (``requests``) and sent, in order, when it is back; what was on the way when it broke fails with
  ``ConnectionLost``, since it may or may not have been carried out.
* **Doubt comes before the server ends the session.** kazoo learns of an expiry only once it
  reaches the server again, when another may long own what was ours. So a session that heard nothing
  for ``DOUBT_FRACTION`` of its time-out, as the server granted it, is reported as ``DOUBTFUL``,
  and ``CONNECTED`` or ``EXPIRED`` follows when the server is reached.
* **A watch is called once, also when the connection breaks**, because a change may then go
  unseen: read again, with a new watch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import cast

from geminga_runtime.clock import Clock
from geminga_runtime.coordination import (
    ANY_VERSION,
    DOUBT_FRACTION,
    MAKE_PARENTS_ATTEMPTS_MAX,
    NO_SESSION,
    SESSION_TIMEOUT_S,
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
from geminga_runtime.service import Service
from geminga_server.zookeeper.kazoo_bridge import Answer, LoopHandler
from geminga_server.zookeeper.kazoo_client import Client, connect_kazoo, stop_client
from geminga_server.zookeeper.kazoo_words import (
    DEAD_STATES,
    SESSION_STATES,
    KazooStat,
    add_operation,
    node_stat,
    parents,
    transaction_error,
)
from geminga_server.zookeeper.requests import Requests, Watch
from geminga_server.zookeeper.startup_wait import logged_wait

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
# How long a closing part waits for the server to confirm that its session is over.
CLOSE_TIMEOUT_S = 2.0
ClientFactory = Callable[[LoopHandler], Client]


# The states of a session, and what leads from one to the next:
#
#     EXPIRED ----- connected ------> CONNECTED <-- connected again --+
#        ^                                |                           |
#        |                        connection lost                     |
#        |                                v                           |
#        +-- the server says so -- SUSPENDED --- nothing heard ---> DOUBTFUL
#        +-- the server says so -----------------------------------------+
#
# From SUSPENDED, too, a connection in time leads back to CONNECTED, with the same session.
class ZooKeeper(Service):
    """A session with the ZooKeeper at ``hosts`` (``HOST:PORT[,HOST:PORT...][/CHROOT]``).

    Opening connects within ``connect_timeout_s`` seconds or raises ``ConnectionLost``; closing
    ends the session, so that its ephemeral nodes are gone at once. Every request is answered or
    fails within ``session_timeout_s`` seconds. After ``EXPIRED`` a new session begins by itself. A
    missing chroot is made, unless ``makes_chroot`` is False: commands that only read pass that.
    """

    def __init__(
        self,
        hosts: str,
        clock: Clock,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        makes_chroot: bool = True,
        make_client: ClientFactory | None = None,
    ) -> None:
        super().__init__()
        self._hosts = hosts
        self._clock = clock
        self._session_timeout_s = session_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._makes_chroot = makes_chroot
        self._make_client: ClientFactory = make_client or (
            lambda handler: connect_kazoo(hosts, session_timeout_s, handler)
        )
        # What the session is worth now; ``EXPIRED`` also before the first connection.
        self.state = SessionState.EXPIRED
        # ``NO_SESSION`` between two sessions.
        self.session_id = NO_SESSION
        # The kazoo client of now, and its handler. A client that kazoo gave up is replaced by a new
        # one; what the old one still posts is ignored.
        self._client: Client | None = None
        self._handler: LoopHandler | None = None
        # What kazoo still reports of the session's end is ignored then.
        self._is_closed = False
        # Set from the first connection on.
        self._connected = asyncio.Event()
        # Called in the order of registration.
        self._callbacks: list[OnSession] = []
        self._requests = Requests(session_timeout_s)
        self._ask = self._requests.ask
        # Reports the session as doubtful when it fires; set while there is no connection.
        self._doubt_timer: asyncio.TimerHandle | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            self._begin()
        except ValueError as error:
            expected = "HOST:PORT[,HOST:PORT...][/CHROOT]"
            raise CoordinationError(
                f"{self._hosts!r} is not a ZooKeeper address; it should look like {expected}"
            ) from error
        # Before the wait: a client that does not connect in time has to be stopped too.
        stack.push_async_callback(self._end)
        try:
            with logged_wait("waiting for zookeeper", self._first_connection):
                async with asyncio.timeout(self._connect_timeout_s):
                    await self._connected.wait()
        except TimeoutError as error:
            raise ConnectionLost(
                f"no ZooKeeper answered at {self._hosts} within {self._connect_timeout_s:g} s "
                f"({self._first_connection()['last']}); is it running there?"
            ) from error
        # ZooKeeper accepts a session below a chroot that does not exist, and then answers each
        # request that its node is missing.
        if "/" in self._hosts and self._makes_chroot:
            # Paths are below the chroot: its own node is "/".
            with suppress(NodeExists):
                try:
                    await self.create("/")
                except NodeMissing as error:
                    raise CoordinationError(
                        f"the parent of the node in {self._hosts} does not exist; create it first"
                    ) from error

    def _first_connection(self) -> Mapping[str, object]:
        """How far the first attempt to connect has come, as facts for logs and errors."""
        assert self._handler is not None
        return {
            "hosts": self._hosts,
            "last": self._handler.progress,
            "at_most_s": self._connect_timeout_s,
        }

    # --- Coordination ------------------------------------------------------------------------

    def hurry(self) -> None:
        """The process ends: from now on nothing waits long for a ZooKeeper that does not answer."""
        self._requests.hurry()

    def on_session(self, callback: OnSession) -> None:
        """Call ``callback`` at every change of the session's state, in order."""
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
        """Create a node, return its path (with the number, where sequential).

        Missing parents are made when the first attempt finds them missing, all in one go.
        """
        check_size(path, len(value))

        def send(client: Client) -> Answer:
            return client.create_async(path, value, ephemeral=ephemeral, sequence=sequential)

        # The node is tried first: nearly always its parents exist, and that costs one request.
        for _ in range(MAKE_PARENTS_ATTEMPTS_MAX):
            try:
                return cast("str", await self._ask(path, send))
            except NodeMissing:
                if not make_parents:
                    raise
            # Sent one behind the other without waiting: ZooKeeper keeps the order of a session.
            requests = [self._ask(parent, _creation_of(parent)) for parent in parents(path)]
            # Another client may make and delete parents meanwhile: then the node is tried again.
            for result in await asyncio.gather(*requests, return_exceptions=True):
                if isinstance(result, BaseException) and not isinstance(
                    result, NodeExists | NodeMissing
                ):
                    raise result
        raise NodeMissing(path)

    async def get(self, path: str, *, on_change: OnChange | None = None) -> tuple[bytes, NodeStat]:
        """Value and stat; ``on_change`` is called once, at the next change or deletion."""
        # One object for each request: kazoo keeps a set of the watches of a node, and calls a
        # callback that was given to it twice only once.
        watch = Watch(on_change) if on_change else None
        # ``_ask`` calls the lambda when it sends the request: that may be later, and to another
        # client.
        answer = self._ask(path, lambda client: client.get_async(path, watch=watch), watch)
        # A node may have been created without a value, which is as good as an empty one.
        value, stat = cast("tuple[bytes | None, KazooStat]", await answer)
        return value or b"", node_stat(stat)

    async def exists(self, path: str, *, on_change: OnChange | None = None) -> NodeStat | None:
        """Stat, or None; ``on_change`` is called once, at creation, change or deletion."""
        watch = Watch(on_change) if on_change else None
        # Of a missing node, too: this is the one read that leaves a watch where there is no node.
        answer = self._ask(path, lambda client: client.exists_async(path, watch=watch), watch)
        stat = cast("KazooStat | None", await answer)
        return None if stat is None else node_stat(stat)

    async def children(self, path: str, *, on_change: OnChange | None = None) -> list[str]:
        """Names of the children, sorted; ``on_change`` once when the list changes."""
        watch = Watch(on_change) if on_change else None
        answer = self._ask(path, lambda client: client.get_children_async(path, watch=watch), watch)
        return sorted(cast("list[str]", await answer))

    async def set(self, path: str, value: bytes, *, version: int = ANY_VERSION) -> NodeStat:
        """Replace the value, if the node still has ``version``."""
        check_size(path, len(value))
        answer = self._ask(path, lambda client: client.set_async(path, value, version))
        return node_stat(cast("KazooStat", await answer))

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        """Delete a node, if it still has ``version``."""
        await self._ask(path, lambda client: client.delete_async(path, version))

    async def transaction(self, operations: Sequence[Operation]) -> None:
        """All or nothing. Raises the error of the operation that could not be done."""
        if not operations:
            return
        # Errors about the whole transaction name its first path.
        first = operations[0].path
        check_size(first, sum(map(operation_bytes, operations)))

        def send(client: Client) -> Answer:
            # Made when it is sent: kazoo's builder belongs to one client, and goes out once.
            builder = client.transaction()
            for operation in operations:
                add_operation(builder, operation)
            return builder.commit_async()

        results = cast("list[object]", await self._ask(first, send))
        error = transaction_error(results, operations)
        if error is not None:
            raise error

    # --- the session -------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start a new kazoo client, and with it a new session."""
        # A handler for each client: whatever a former client still posts carries a former handler,
        # by which ``_session_changed`` knows it.
        handler = LoopHandler(self._clock)
        client = self._make_client(handler)

        def listener(kazoo_state: str) -> None:  # on kazoo's thread: only posts
            # Read here and not on the loop: they are those of this event.
            identity = client.client_id
            session_id = identity[0] if identity else 0
            is_over = client.client_state in DEAD_STATES
            handler.post(self._session_changed, handler, kazoo_state, session_id, is_over)

        # Before the client starts: its first event would be missed else.
        client.add_listener(listener)
        self._client, self._handler = client, handler
        client.start_async()

    def _session_changed(
        self,
        handler: LoopHandler,
        kazoo_state: str,
        session_id: int,
        is_over: bool,  # noqa: FBT001
    ) -> None:
        client = self._client
        if handler is not self._handler or client is None or self._is_closed:
            return
        state = SESSION_STATES[kazoo_state]
        if state is SessionState.CONNECTED:
            # After a reconnect in time it is the session of before, with its ephemeral nodes.
            is_new = session_id != self.session_id
            self.session_id = session_id
            log.info(
                "zookeeper session begun" if is_new else "zookeeper connection is back",
                extra={"session": f"{session_id & 0xFFFFFFFFFFFFFFFF:#x}", "hosts": self._hosts},
            )
            # In one turn up to the end of this branch: the callbacks, which come later, find the
            # held requests sent already.
            self._change_state(SessionState.CONNECTED)
            self._connected.set()
            # Last: requests that were held are sent in the session that is reported now.
            self._requests.connected(client, handler)
        elif state is SessionState.SUSPENDED:
            log.warning("zookeeper connection lost", extra={"hosts": self._hosts})
            self._change_state(SessionState.SUSPENDED)
            # The server grants less than it was asked for where that is beyond its own limits (2 to
            # 20 of its ticks by default), and ends the session by what it granted. Where it grants
            # more, the session is in doubt earlier than it need be.
            timeout_s = min(
                self._session_timeout_s, handler.granted_timeout_s or self._session_timeout_s
            )
            # The server counts from what it last heard of us, which was not later than what we last
            # heard of it.
            quiet_s = self._clock.monotonic() - handler.heard_at_s
            left_s = max(0.0, timeout_s * DOUBT_FRACTION - quiet_s)
            # Cancelled by the next change of state, whatever that is.
            self._doubt_timer = asyncio.get_running_loop().call_later(left_s, self._doubt)
        else:
            if self.state is not SessionState.EXPIRED:
                log.warning("zookeeper session expired", extra={"hosts": self._hosts})
                # The callbacks are scheduled first, then the waiters of the requests that fail: an
                # owner gives up what it owned before its own requests return.
                self.session_id = NO_SESSION
                self._change_state(SessionState.EXPIRED)
                self._requests.fail_all(SessionExpired, "the ZooKeeper session expired")
            if is_over:
                # The server refused the client, which gives up for good: begin anew with another.
                # Before ``_begin``, which sets both anew: events of the client that ends are
                # ignored from here on.
                self._client = self._handler = None
                handler.detach()
                # In a thread: stopping waits for kazoo's own.
                threading.Thread(
                    target=stop_client, args=(client,), name="kazoo-stop", daemon=True
                ).start()
                self._begin()

    def _doubt(self) -> None:
        log.warning("zookeeper session in doubt", extra={"hosts": self._hosts})
        self._change_state(SessionState.DOUBTFUL)

    def _change_state(self, state: SessionState) -> None:
        if self._doubt_timer is not None:
            self._doubt_timer.cancel()
            self._doubt_timer = None
        # Before callbacks run: their requests must not go to a connection that is gone.
        if state is not SessionState.CONNECTED:
            self._requests.disconnected()
        if state is self.state:
            return
        self.state = state
        # In a later turn: a callback sees a session whose change is complete.
        loop = asyncio.get_running_loop()
        for callback in self._callbacks:
            loop.call_soon(callback, state)

    async def _end(self) -> None:
        """End the session, within ``CLOSE_TIMEOUT_S``; requests without an answer fail."""
        self._is_closed = True
        if self._doubt_timer is not None:
            self._doubt_timer.cancel()
        # No state is reported any more: services that listened were opened later, and are closed
        # already. What still waits fails now, and not after its time-out.
        self._requests.close()
        client, handler = self._client, self._handler
        if client is None or handler is None:
            return
        handler.detach()
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()

        def stop_then_report() -> None:
            # On this thread: it waits for kazoo's, which waits for the server.
            stop_client(client)
            try:
                loop.call_soon_threadsafe(stopped.set)
            except RuntimeError:  # the loop was closed while we waited
                log.debug("zookeeper client stopped late")

        # In a thread of its own, not in one of asyncio's: those hold up the end of the process.
        threading.Thread(target=stop_then_report, name="kazoo-stop", daemon=True).start()
        requests = self._requests
        # Without a connection no server can confirm anything: it ends the session by its time-out.
        is_heard = self.state is SessionState.CONNECTED and not requests.is_given_up
        try:
            async with asyncio.timeout(min(CLOSE_TIMEOUT_S, requests.timeout_s) if is_heard else 0):
                await stopped.wait()
        except TimeoutError:
            if self.session_id != NO_SESSION:  # else there is none to end
                log.warning("zookeeper did not confirm the end of the session")


def _creation_of(parent: str) -> Callable[[Client], Answer]:
    return lambda client: client.create_async(parent, b"", ephemeral=False, sequence=False)
