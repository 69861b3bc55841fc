"""One HTTP request to another server and its answer, streamed both ways.

Each request has a connection of its own: requests are rare, and a new connection cannot have been
closed meanwhile, as a kept one can. Reads are bounded by the stream's buffer and writes by the
transport's, so the slower side holds up the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

import h11

from geminga_runtime.network import Network
from geminga_server.errors import ServerSilent, ServerUnreachable

# The longest piece of an answer that is read at a time. A stream buffers twice as much before it
# stops reading from the socket.
READ_BYTES = 64 * 1024
DEFAULT_PORTS = {"http": 80, "https": 443}

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request."""

    method: bytes
    # The path with its query.
    target: bytes
    # Without Host and Connection, which the exchange adds; they say how the body is framed.
    headers: Headers


@dataclass(slots=True, eq=False)
class HttpExchange:
    """One request and its answer: ``begin``, then ``send_body`` beside ``head`` and ``body``."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    # How long the server may neither read nor send anything.
    timeout_s: float
    # Frames what is sent, and parses what is read; it refuses anything out of order.
    http: h11.Connection = field(default_factory=partial(h11.Connection, h11.CLIENT))

    async def begin(self, request: Request, host: str) -> None:
        """Send the request's head."""
        # ``close``: the server need not keep a connection that is used once.
        headers = [(b"host", host.encode()), (b"connection", b"close"), *request.headers]
        head = h11.Request(method=request.method, target=request.target, headers=headers)
        await self._send(head)

    async def send_body(self, pieces: AsyncIterator[bytes]) -> None:
        """Send the request's body, as fast as the server takes it.

        Raises nothing for a connection that breaks, or pieces that end with ``ServerUnreachable``.
        """
        # Whatever is wrong with the connection, reading the answer fails as well, and reports it.
        with suppress(OSError, h11.LocalProtocolError, ServerUnreachable):
            # Where the server takes nothing for ``timeout_s``, sending ends (a TimeoutError is an
            # OSError).
            async for piece in pieces:
                await self._send(h11.Data(data=piece))
            await self._send(h11.EndOfMessage())

    async def head(self) -> h11.Response:
        """The status and the headers of the answer; informational answers (1xx) are skipped."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            # The only other event before an answer is the end of the connection.
            if not isinstance(event, h11.InformationalResponse):
                raise ServerUnreachable("it closed the connection without an answer")

    async def body(self) -> AsyncIterator[bytes]:
        """The pieces of the answer's body."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise ServerUnreachable("it closed the connection before its answer was complete")

    async def _send(self, event: h11.Event) -> None:
        # Empty for the end of a body whose length was announced. Raises ``LocalProtocolError`` for
        # more or fewer bytes than Content-Length says: a body of a client is never sent on with a
        # wrong length.
        encoded = self.http.send(event)
        if encoded:
            self.writer.write(encoded)
            async with asyncio.timeout(self.timeout_s):
                await self.writer.drain()

    async def _next(self) -> object:
        """The next event of the answer; raises ``TimeoutError`` where the server is silent."""
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            # The time-out begins anew with each read: a long answer may take longer than that.
            async with asyncio.timeout(self.timeout_s):
                # Empty at the end of the stream, which tells h11 that the connection was closed.
                self.http.receive_data(await self.reader.read(READ_BYTES))


@asynccontextmanager
async def exchange(
    network: Network, url: str, *, connect_timeout_s: float, timeout_s: float
) -> AsyncGenerator[HttpExchange]:
    """A connection to the server at ``http://HOST:PORT``, or ``https`` where ``network`` secures
    connections, for one request.

    ``timeout_s`` is how long the server may neither read nor send anything. Raises
    ``ServerUnreachable`` where it refuses or breaks the connection, ``ServerSilent`` on time-out.
    """
    split = urlsplit(url)
    # asyncio's ``open_connection``, but over ``network``, which a simulation replaces.
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=READ_BYTES, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    try:
        async with asyncio.timeout(connect_timeout_s):
            transport, _ = await network.connect(
                lambda: protocol, split.hostname or "", split.port or DEFAULT_PORTS[split.scheme]
            )
    except OSError as error:  # a TimeoutError is one
        raise ServerUnreachable(
            f"{url} cannot be reached: {error!r}", is_connected=False
        ) from error
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    try:
        yield HttpExchange(reader, writer, timeout_s)
    # Before OSError, of which TimeoutError is a kind.
    except TimeoutError as error:
        raise ServerSilent(url, timeout_s) from error
    except (OSError, h11.RemoteProtocolError) as error:
        raise ServerUnreachable(f"{url} does not answer: {error!r}") from error
    finally:
        # The answer was read to its end, or is not wanted: nothing more is to be sent.
        transport.abort()
