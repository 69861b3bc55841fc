"""Serves ``/metrics`` for ZooKeeper and the supervisor: one page, one asyncio protocol.

A web framework would more than double the supervisor's memory for this one page.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import cast

from geminga_runtime.network import Network
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Request line and headers; Prometheus sends about 300 bytes.
REQUEST_BYTES_MAX = 8_192
# A client that does not finish its request, or does not read the answer, is disconnected.
CONNECTION_TIMEOUT_S = 10.0
CONNECTIONS_MAX = 32

Render = Callable[[], Awaitable[str]]


class MetricsPage(Service):
    """Answers ``GET /metrics/`` with what ``render`` returns, on ``host:port`` (0: any free)."""

    def __init__(self, network: Network, host: str, port: int, render: Render) -> None:
        super().__init__()
        self._network = network
        self._host = host
        self._wanted_port = port
        self._render = render
        # Those that have not ended; their number is bounded by CONNECTIONS_MAX.
        self.connections: set[_Connection] = set()
        # The port that is listened on, once the service is open.
        self.port = 0

    async def _open(self, stack: AsyncExitStack) -> None:
        listener = await self._network.listen(
            lambda: _Connection(self), self._host, self._wanted_port
        )
        stack.push_async_callback(listener.close)

        def hang_up() -> None:
            for connection in list(self.connections):
                connection.hang_up()

        # Closing the listener leaves open connections alone.
        stack.callback(hang_up)
        self.port = listener.port

    def admit(self, connection: _Connection) -> bool:
        """Accept the connection if there are not too many already."""
        if len(self.connections) >= CONNECTIONS_MAX:
            return False
        self.connections.add(connection)
        return True

    def serve(self, connection: _Connection) -> None:
        """Render the page and send it to the connection."""

        async def answer() -> None:
            connection.answer("200 OK", await self._render())

        # A task, because ZooKeeper is asked for its part of the page.
        self.spawn(answer(), name="metrics page")


class _Connection(asyncio.Protocol):
    """One request, one answer, and the end."""

    #     connection_made ──▶ data_received ... ──▶ answer ──▶ connection_lost
    #         │ too many         │ too long: 431         │ the transport closes when all is sent
    #         ▼                  ▼
    #       aborted            answer                 hang_up: the time is over
    def __init__(self, page: MetricsPage) -> None:
        self._page = page
        # None before the connection is made, and after it is lost.
        self._transport: asyncio.Transport | None = None
        self._request = b""
        # Whether the request was read to its end, or refused.
        self._is_asked = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: uvloop's transports descend from none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        # Refused connections never enter ``connections``, so ``connection_lost`` discards nothing
        # for them.
        if not self._page.admit(self):
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(CONNECTION_TIMEOUT_S, self.hang_up)

    def data_received(self, data: bytes) -> None:
        if self._is_asked:
            return
        # Bounded: what is longer is refused below, before the next bytes are added.
        self._request += data
        if b"\r\n\r\n" not in self._request:
            if len(self._request) > REQUEST_BYTES_MAX:
                self._is_asked = True
                self.answer("431 Request Header Fields Too Large", "the request is too long\n")
            return
        self._is_asked = True
        # METHOD PATH?QUERY HTTP/1.1
        words = self._request.split(b"\r\n", 1)[0].split(b" ")
        path = words[1].split(b"?", 1)[0] if len(words) == 3 else b""
        if words[0] != b"GET":
            self.answer("405 Method Not Allowed", "only GET is served here\n", "Allow: GET")
        elif path == b"/metrics":
            # Like the pages of our other parts, and as Pulsar's do.
            self.answer("302 Found", "", "Location: /metrics/")
        elif path == b"/metrics/":
            self._page.serve(self)
        else:
            self.answer("404 Not Found", "the page here is /metrics/\n")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport = None
        self._page.connections.discard(self)

    def hang_up(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def answer(self, status: str, content: str, *headers: str) -> None:
        """Send the answer and end the connection; nothing happens if it has ended already."""
        if self._transport is None:
            return
        body = content.encode()
        head = [
            f"HTTP/1.1 {status}",
            f"Content-Type: {CONTENT_TYPE}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *headers,
        ]
        self._transport.write("\r\n".join((*head, "", "")).encode() + body)
        # After the bytes were sent; the deadline still runs for a client that does not take them.
        self._transport.close()
