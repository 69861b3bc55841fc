"""HTTP on the running loop: raw paths, one event a request, and an end within a second."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable

import httpx
import pytest

from geminga_server.authorization import Principal
from geminga_server.errors import ServerStartError
from geminga_server.http import server as module
from geminga_server.http.server import HttpServer, Message, Receive, RequestLog, Scope, Send
from geminga_simulation.event_loop.clock import SimulatedClock


async def echo_path(scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": scope["raw_path"]})


def requests_logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    names = ("method", "path", "status", "duration_ms", "principal")
    return [
        {name: record.__dict__[name] for name in names}
        for record in caplog.records
        if record.getMessage() == "http request"
    ]


async def raw_get(port: int, target: str) -> bytes:
    """A GET whose target is not normalised on the way; the whole answer, not chunked (HTTP/1.0)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {target} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_any_free_port_is_taken_and_known() -> None:
    async with HttpServer(echo_path, "127.0.0.1", 0) as server, httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{server.port}/x")
    assert (answer.status_code, answer.text) == (201, "/x")
    assert "date" in answer.headers
    assert "server" not in answer.headers


async def test_the_path_arrives_as_it_was_sent() -> None:
    async with HttpServer(echo_path, "127.0.0.1", 0) as server:
        answer = await raw_get(server.port, "/admin/a%2Fb%20%25%3F/x?q=1")
    assert answer.endswith(b"/admin/a%2Fb%20%25%3F/x")


async def test_each_request_is_one_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with HttpServer(echo_path, "127.0.0.1", 0, clock=SimulatedClock(step_s=0.25)) as server:
        await raw_get(server.port, "/a%2Fb?q=1")
    assert requests_logged(caplog) == [
        {
            "method": "GET",
            "path": "/a%2Fb",
            "status": 201,
            "duration_ms": 250.0,
            "principal": "anonymous",
        }
    ]
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


@pytest.mark.parametrize(("status", "is_said"), [(200, False), (302, False), (503, True)])
async def test_health_checks_that_go_well_are_not_worth_a_line(
    caplog: pytest.LogCaptureFixture, status: int, *, is_said: bool
) -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    caplog.set_level(logging.INFO)
    async with HttpServer(app, "127.0.0.1", 0, routine_paths={"/healthy"}) as server:
        await raw_get(server.port, "/healthy?deep=1")
        await raw_get(server.port, "/other")
    paths = [request["path"] for request in requests_logged(caplog)]
    assert paths == ["/healthy", "/other"][not is_said :]


async def test_the_event_names_the_principal_that_the_application_found(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["principal"] = Principal("admin")
        await echo_path(scope, receive, send)

    caplog.set_level(logging.INFO)
    async with HttpServer(app, "127.0.0.1", 0) as server:
        await raw_get(server.port, "/")
    assert requests_logged(caplog)[0]["principal"] == "admin"


async def test_an_application_that_fails_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ZeroDivisionError

    caplog.set_level(logging.INFO)
    async with HttpServer(app, "127.0.0.1", 0) as server:
        answer = await raw_get(server.port, "/")
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert requests_logged(caplog)[0]["status"] == 500


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\r\n\r\n", b"GET /\r\n\r\n"])
async def test_garbage_is_answered_and_the_server_lives(garbage: bytes) -> None:
    async with HttpServer(echo_path, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(garbage)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert (await raw_get(server.port, "/")).startswith(b"HTTP/1.1 201 ")


async def test_a_taken_port_is_refused_with_the_address() -> None:
    async with HttpServer(echo_path, "127.0.0.1", 0) as server:
        with pytest.raises(ServerStartError, match=f"127.0.0.1:{server.port}"):
            await HttpServer(echo_path, "127.0.0.1", server.port).__aenter__()


async def test_it_serves_ipv6_where_there_is_some() -> None:
    try:
        server = await HttpServer(echo_path, "::1", 0).__aenter__()
    except ServerStartError:
        pytest.skip("this machine has no IPv6")
    assert server.port > 0
    await server.__aexit__(None, None, None)


async def test_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with HttpServer(echo_path, "127.0.0.1", 0):
        assert signal.getsignal(signal.SIGTERM) is before


async def test_an_answer_under_way_is_finished_on_closing() -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await goes_on.wait()
        await echo_path(scope, receive, send)

    server = await HttpServer(slow, "127.0.0.1", 0).__aenter__()
    request = asyncio.ensure_future(raw_get(server.port, "/slow"))
    await begun.wait()
    closing = asyncio.ensure_future(server.__aexit__(None, None, None))
    await asyncio.sleep(0)
    goes_on.set()
    assert (await request).endswith(b"/slow")
    await closing


async def test_an_answer_that_takes_too_long_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CLOSE_TIMEOUT_S", 0.2)
    begun = asyncio.Event()

    async def endless(_scope: Scope, _receive: Receive, _send: Send) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    caplog.set_level(logging.INFO)
    server = await HttpServer(endless, "127.0.0.1", 0).__aenter__()
    request = asyncio.ensure_future(raw_get(server.port, "/endless"))
    await begun.wait()
    started_s = time.monotonic()
    await server.__aexit__(None, None, None)
    assert time.monotonic() - started_s < 1.0
    assert (await request).startswith(b"HTTP/1.1 500 ")
    assert requests_logged(caplog)[0]["status"] == 500


async def test_an_idle_connection_does_not_hold_up_the_end() -> None:
    server = await HttpServer(echo_path, "127.0.0.1", 0).__aenter__()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"\r\n0\r\n\r\n")
    started_s = time.monotonic()
    await server.__aexit__(None, None, None)
    assert time.monotonic() - started_s < 0.9
    assert await reader.read() == b""
    writer.close()


async def test_what_is_not_http_passes_through_without_an_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    seen: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope["type"])

    async def nothing() -> Message:
        return {}

    send: Callable[[Message], Awaitable[None]] = lambda _message: nothing()  # type: ignore[assignment,return-value] # noqa: E731
    await RequestLog(app, SimulatedClock(step_s=0.25))({"type": "lifespan"}, nothing, send)
    assert seen == ["lifespan"]
    assert requests_logged(caplog) == []


async def test_the_date_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def formatdate(_at_s: float, *, usegmt: bool) -> str:
        return "later" if usegmt else ""

    monkeypatch.setattr(module, "TICK_S", 0.001)
    async with HttpServer(echo_path, "127.0.0.1", 0) as server:
        monkeypatch.setattr("uvicorn.server.formatdate", formatdate)
        async with asyncio.timeout(60):
            while b"date: later" not in await raw_get(server.port, "/"):
                pass
