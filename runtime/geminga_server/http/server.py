"""Serves an ASGI application on the running event loop, and logs one event for each request.

uvicorn does the HTTP, without its signal handlers, its access log, its lifespan protocol (our
services open before the server does) and its ten wake-ups a second. Applications find the path as
it was sent in ``scope["raw_path"]``, and may say who asked in ``scope["state"]["principal"]``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.service import Service
from geminga_server.authorization import ANONYMOUS, Principal
from geminga_server.errors import ServerStartError
from geminga_server.open_files import HTTP_MAX
from geminga_server.ports import cannot_listen, family_of

if TYPE_CHECKING:
    from ssl import SSLContext

    from uvicorn import Server

    from geminga_server.http.connections import HttpConnections
    from geminga_server.metrics import PartMetrics

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

# Answers under way when the server closes get this long.
CLOSE_TIMEOUT_S = 1.0
# Connections that wait to be accepted, and how long an idle one is kept.
BACKLOG = 128
KEEP_ALIVE_S = 75
# Paths of ``part_app`` that machines poll every few seconds (``RequestLog``).
ROUTINE_PATHS = frozenset({"/health", "/metrics", "/metrics/"})
# How often the Date header is renewed.
TICK_S = 1.0


class HttpServer(Service):
    """Answers HTTP/1.1 on ``host:port`` (0: any free port) with ``app`` while it is open.

    At most ``connections_max`` connections are open; idle ones make room for new ones. Opening
    raises ``ServerStartError`` where it cannot listen there. ``metrics`` show the connections while
    it is open. ``beside`` is an open server of the same process: its bound and its metrics hold for
    both together. ``routine_paths`` are polled all the time (``RequestLog``). With ``tls`` it is
    HTTPS. Closing takes no new connections, lets answers under way finish for a second, then cuts
    them off.
    """

    def __init__(
        self,
        app: AsgiApp,
        host: str,
        port: int,
        *,
        clock: Clock | None = None,
        connections_max: int = HTTP_MAX,
        metrics: PartMetrics | None = None,
        beside: HttpServer | None = None,
        routine_paths: Collection[str] = ROUTINE_PATHS,
        tls: SSLContext | None = None,
    ) -> None:
        super().__init__()
        self._app = RequestLog(app, clock or SystemClock(), routine_paths)
        self._connections_max = connections_max
        self._metrics = metrics
        self._beside = beside
        self._tls = tls
        # Made on opening, or those of ``beside``.
        self.connections: HttpConnections | None = None
        self._host = host
        self._wanted_port = port
        self._socket: socket.socket | None = None

    @property
    def port(self) -> int:
        """The TCP port, known once the server is open."""
        assert self._socket is not None, "the server is not open"
        return int(self._socket.getsockname()[1])

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            # Bound here and not by uvicorn, so that an address in use is an error of ours.
            listening = socket.create_server(
                (self._host, self._wanted_port), family=family_of(self._host), backlog=BACKLOG
            )
        except OSError as error:
            raise ServerStartError(cannot_listen(self._host, self._wanted_port, error)) from error
        stack.callback(listening.close)
        self._socket = listening
        # Imports uvicorn, which takes 60 ms: not before the server is opened.
        from geminga_server.http.connections import HttpConnections  # noqa: PLC0415

        # Both are open: the bound of ``beside`` holds for all of its connections and ours together.
        shared = self._beside.connections if self._beside is not None else None
        if shared is None:
            shared = HttpConnections(self._connections_max)
        connections = self.connections = shared
        if self._metrics is not None:
            collect = partial(connections.families, self._metrics.part)
            self._metrics.collectors.append(collect)
            stack.callback(self._metrics.collectors.remove, collect)
        # Listening already, the kernel holds connections back until ``startup`` begins to accept.
        server = _make_server(self._app, connections, self._tls)
        # The first tick makes the headers that every answer carries.
        await server.on_tick(0)
        await server.startup(sockets=[listening])
        # Closed before the socket: it is pushed later.
        stack.push_async_callback(self._shut, server, listening)

        async def renew_date() -> None:
            # uvicorn's own loop does this, and nine other times a second nothing.
            await server.on_tick(0)

        self.spawn_every(TICK_S, renew_date, name="http date")

    async def _shut(self, server: Server, listening: socket.socket) -> None:
        state = server.server_state
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                # uvicorn closes idle connections, and waits for those that are being answered.
                await server.shutdown(sockets=[listening])
        except TimeoutError:
            log.warning("requests cut off", extra={"requests": len(state.tasks)})
            # Cancelled, an application still runs its ``finally`` blocks: they are waited for.
            for task in list(state.tasks):
                task.cancel()
            await asyncio.gather(*state.tasks, return_exceptions=True)
        # Connections that were not being answered, or whose client does not take its answer.
        for connection in list(state.connections):
            connection.transport.abort()


@dataclass(frozen=True, slots=True)
class RequestLog:
    """ASGI middleware: logs one event for each request, when its answer is complete.

    Health checks and scrapes come every few seconds: requests of ``routine_paths`` that went well
    are logged at level DEBUG.
    """

    app: AsgiApp
    clock: Clock
    routine_paths: Collection[str] = ROUTINE_PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and note the status of the answer."""
        # Such as a web socket, which no application of ours serves.
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 0  # stays so if the client goes away before the answer

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # The duration ends with the last piece of the answer that the application hands over, not
        # when the client has it.
        begun_s = self.clock.monotonic()
        try:
            await self.app(scope, receive, send_and_note)
        except BaseException:
            status = status or 500  # what uvicorn answers then, also to a request that is cut off
            raise
        finally:
            duration_s = self.clock.monotonic() - begun_s
            # A probe that fails is logged like any other request.
            is_routine = scope["path"] in self.routine_paths and 200 <= status < 400
            level = logging.DEBUG if is_routine else logging.INFO
            principal: Principal = scope.get("state", {}).get("principal") or ANONYMOUS
            raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
            facts = {
                "method": scope["method"],
                "path": raw_path.decode("latin-1"),
                "status": status,
                "duration_ms": round(duration_s * 1000, 3),
                "principal": principal.role or "anonymous",
            }
            log.log(level, "http request", extra=facts)


def _make_server(app: AsgiApp, connections: HttpConnections, tls: SSLContext | None) -> Server:
    from uvicorn import Config, Server  # noqa: PLC0415 - as above

    from geminga_server.http.connections import HttpConnection  # noqa: PLC0415

    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = Config(
        app,
        loop="none",
        # uvicorn calls it for each connection, with keywords only.
        http=cast("type[asyncio.Protocol]", partial(HttpConnection, connections)),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    # As uvicorn's own ``serve`` would; that one also takes the signals over.
    config.load()
    config.ssl = tls  # uvicorn would read files, once, and never again
    server = Server(config)
    # Asked by ``startup`` and ``shutdown``, even where lifespan is off.
    server.lifespan = config.lifespan_class(config)
    return server
