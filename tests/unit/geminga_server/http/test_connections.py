"""However many connections idle, an HTTP server answers, and keeps to its share of open files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from geminga_server.http.server import AsgiApp, HttpServer, Receive, Scope, Send
from geminga_server.metrics import PartMetrics

ROOM = 3
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
END_OF_ANSWER = b"\r\n0\r\n\r\n"


async def hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


class Client:
    """One connection of a client's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self) -> bytes:
        """One request on the open connection; the whole answer."""
        self.writer.write(REQUEST)
        return await self.reader.readuntil(END_OF_ANSWER)

    async def is_closed(self) -> bool:
        """Wait for the server to close it."""
        async with asyncio.timeout(60):
            return await self.reader.read() == b""


Connect = Callable[[], Awaitable[Client]]


@asynccontextmanager
async def serving(app: AsgiApp, metrics: PartMetrics | None = None) -> AsyncGenerator[Connect]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            HttpServer(app, "127.0.0.1", 0, connections_max=ROOM, metrics=metrics)
        )

        async def connect() -> Client:
            client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
            stack.callback(client.writer.close)
            return client

        yield connect


async def test_the_connection_that_was_silent_longest_makes_room() -> None:
    async with serving(hello) as connect:
        clients = [await connect() for _ in range(ROOM)]
        for each in clients:
            await each.ask()
        await clients[0].ask()
        newcomer = await connect()
        assert (await newcomer.ask()).startswith(b"HTTP/1.1 200 ")
        assert await clients[1].is_closed()
        assert (await clients[0].ask()).startswith(b"HTTP/1.1 200 ")
        assert (await clients[2].ask()).startswith(b"HTTP/1.1 200 ")


async def test_connections_without_a_request_make_room_for_a_new_one() -> None:
    async with serving(hello) as connect:
        idle = [await connect() for _ in range(ROOM)]
        half = idle[0]
        half.writer.write(b"GET / HT")
        assert (await (await connect()).ask()).startswith(b"HTTP/1.1 200 ")


async def test_where_all_are_being_answered_a_newcomer_is_told_to_try_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, goes_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.release()
        await goes_on.wait()
        await hello(scope, receive, send)

    async with serving(slow) as connect:
        asking = [asyncio.ensure_future((await connect()).ask()) for _ in range(ROOM)]
        for _ in range(ROOM):
            await begun.acquire()
        newcomer = await connect()
        answer = await newcomer.reader.read()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert answer.endswith(b'try again"}')
        goes_on.set()
        assert all(each.startswith(b"HTTP/1.1 200 ") for each in await asyncio.gather(*asking))
    assert [record.getMessage() for record in caplog.records] == [
        "too many http connections: idle ones are closed"
    ]


async def test_two_servers_of_a_process_share_their_bound_and_their_metrics() -> None:
    metrics = PartMetrics("bookie")
    plain = HttpServer(hello, "127.0.0.1", 0, connections_max=ROOM, metrics=metrics)
    async with plain, HttpServer(hello, "127.0.0.1", 0, beside=plain) as other:
        clients: list[Client] = []
        for server in (plain, other, other, other):
            clients.append(Client(*await asyncio.open_connection("127.0.0.1", server.port)))
            await clients[-1].ask()
        assert await clients[0].is_closed()
        text = metrics.text().decode()
        for client in clients:
            client.writer.close()
    assert "geminga_bookie_http_connections 3.0" in text.splitlines()
    assert "geminga_bookie_http_evicted_connections_total 1.0" in text.splitlines()


async def test_metrics_show_connections_and_how_many_were_closed() -> None:
    metrics = PartMetrics("bookie")
    async with serving(hello, metrics) as connect:
        for _ in range(ROOM + 2):
            await (await connect()).ask()
        text = metrics.text().decode()
    for line in (
        "geminga_bookie_http_connections 3.0",
        "geminga_bookie_http_connections_max 3.0",
        "geminga_bookie_http_evicted_connections_total 2.0",
        "geminga_bookie_http_refused_connections_total 0.0",
    ):
        assert line in text.splitlines()
    assert "geminga_bookie_http_connections" not in metrics.text().decode()
