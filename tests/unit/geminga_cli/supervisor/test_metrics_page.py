"""Proves the small page server: its one page, its refusals, its bounds, its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from geminga_cli.supervisor import metrics_page
from geminga_cli.supervisor.metrics_page import MetricsPage
from geminga_runtime.network import AsyncioNetwork

HOST = "127.0.0.1"


async def render() -> str:
    return "uptime 7\n"


@pytest.fixture
async def page() -> AsyncIterator[MetricsPage]:
    async with MetricsPage(AsyncioNetwork(), HOST, 0, render) as opened:
        yield opened


@asynccontextmanager
async def client(
    page: MetricsPage,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
    """A connection to the page, closed at the end whatever became of it."""
    reader, writer = await asyncio.open_connection(HOST, page.port)
    yield reader, writer
    writer.close()
    with suppress(ConnectionResetError):
        await writer.wait_closed()


async def answer_to(page: MetricsPage, request: bytes) -> tuple[str, str]:
    """Status line and body."""
    async with client(page) as (reader, writer):
        writer.write(request)
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    return head.splitlines()[0] if head else "", body


async def test_the_page_holds_what_is_rendered(page: MetricsPage) -> None:
    status, body = await answer_to(page, b"GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (status, body) == ("HTTP/1.1 200 OK", "uptime 7\n")


async def test_a_request_cut_anywhere_is_understood(page: MetricsPage) -> None:
    async with client(page) as (reader, writer):
        for byte in b"GET /metrics/?x=1 HTTP/1.1\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
        assert b"uptime 7" in await reader.read()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /metrics HTTP/1.1", "302 Found"),
        (b"GET / HTTP/1.1", "404 Not Found"),
        (b"POST /metrics/ HTTP/1.1", "405 Method Not Allowed"),
        (b"nonsense", "405 Method Not Allowed"),
        (b"GET", "404 Not Found"),
    ],
)
async def test_anything_else_is_told_where_the_page_is(
    page: MetricsPage, request_line: bytes, status: str
) -> None:
    assert (await answer_to(page, request_line + b"\r\n\r\n"))[0] == f"HTTP/1.1 {status}"


async def test_an_endless_request_is_refused(page: MetricsPage) -> None:
    status, _ = await answer_to(page, b"x" * (metrics_page.REQUEST_BYTES_MAX + 1))
    assert status == "HTTP/1.1 431 Request Header Fields Too Large"


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What comes until the end, clean or not."""
    with suppress(ConnectionResetError):
        return await reader.read()
    return b""


async def test_one_connection_too_many_is_hung_up_on(
    page: MetricsPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_page, "CONNECTIONS_MAX", 1)
    async with client(page), client(page) as (reader, _):
        assert await rest_of(reader) == b""


async def test_an_idle_client_is_hung_up_on_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_page, "CONNECTION_TIMEOUT_S", 0.01)
    async with (
        MetricsPage(AsyncioNetwork(), HOST, 0, render) as page,
        client(page) as (reader, _),
    ):
        assert await rest_of(reader) == b""


async def test_closing_the_page_hangs_up_on_idle_clients() -> None:
    async with AsyncExitStack() as stack:
        async with MetricsPage(AsyncioNetwork(), HOST, 0, render) as page:
            reader, writer = await stack.enter_async_context(client(page))
            writer.write(b"GET")
            # A whole exchange on another connection: by now the first one was accepted.
            await answer_to(page, b"GET /metrics/ HTTP/1.1\r\n\r\n")
        assert await rest_of(reader) == b""
