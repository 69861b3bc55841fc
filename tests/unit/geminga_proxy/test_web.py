"""Proves that REST goes through a proxy to brokers and back, streamed, along their redirects.

Brokers here are ASGI applications behind the server that real brokers have, on real sockets.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import httpx
import pytest

from geminga_proxy.addresses.broker_view import BrokerView
from geminga_proxy.config import ProxyConfig, WebConfig
from geminga_proxy.web import Forwarding
from geminga_runtime.network import AsyncioNetwork
from geminga_server.errors import ServerUnreachable
from geminga_server.http.forwarding import RequestBody
from geminga_server.http.server import HttpServer, Receive, Scope, Send

pytestmark = pytest.mark.real_loop

CONFIG = ProxyConfig(web=WebConfig(http_proxy_timeout_s=2.0, http_input_replay_bytes_max=100_000))
HOST = "127.0.0.1"


@dataclass
class WebBroker:
    """A broker's REST side: says what it was asked, unless ``location`` redirects."""

    name: str
    location: Callable[[str], str] | None = None
    asked: list[Scope] = field(default_factory=list)
    port: int = 0
    is_silent: bool = False
    reads_first: bool = False

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://{HOST}:{self.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        self.asked.append(scope)
        if self.is_silent:
            await asyncio.Event().wait()
        body = b""
        if self.location is None or self.reads_first:
            body = await whole_body(receive)
        if self.location is not None:
            where = self.location(scope["raw_path"].decode())
            headers = [(b"location", where.encode()), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 307, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        target = scope["raw_path"].decode() + "?" + scope["query_string"].decode()
        answer = {"broker": self.name, "method": scope["method"], "target": target}
        content = json.dumps({**answer, "body_bytes": len(body)}).encode()
        headers = [(b"content-type", b"application/json"), (b"x-of-the-broker", b"yes")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content[:10], "more_body": True})
        await send({"type": "http.response.body", "body": content[10:]})


async def whole_body(receive: Receive) -> bytes:
    body, is_complete = b"", False
    while not is_complete:
        message = await receive()
        body += message.get("body", b"")
        is_complete = not message.get("more_body")
    return body


class Web:
    """Two brokers, a worker, and a proxy before them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.brokers = [WebBroker("one"), WebBroker("two")]
        self.worker = WebBroker("worker")
        self.view = BrokerView()

    async def open(self) -> None:
        """Start the brokers."""
        for broker in (*self.brokers, self.worker):
            server = await self._stack.enter_async_context(HttpServer(broker, HOST, 0))
            broker.port = server.port
        self.view = BrokerView(web_urls=tuple(each.url for each in self.brokers))

    async def client(self, config: ProxyConfig = CONFIG) -> httpx.AsyncClient:
        """A client of a proxy."""
        config = replace(config, function_worker_web_service_url=self.worker.url)
        forwarding = await self._stack.enter_async_context(
            Forwarding(own, self, AsyncioNetwork(), config)
        )
        server = await self._stack.enter_async_context(HttpServer(forwarding, HOST, 0))
        return await self._stack.enter_async_context(
            httpx.AsyncClient(base_url=f"http://{HOST}:{server.port}", trust_env=False)
        )


async def own(scope: Scope, receive: Receive, send: Send) -> None:
    """The proxy's own answers."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"own"})


@pytest.fixture
async def web() -> AsyncGenerator[Web]:
    """Open servers."""
    async with AsyncExitStack() as stack:
        opened = Web(stack)
        await opened.open()
        yield opened


async def test_a_request_and_its_answer_go_through_as_they_are(web: Web) -> None:
    client = await web.client()
    path = "/admin/v2/persistent/public/default/a%2Fb/stats"
    answer = await client.post(f"{path}?getPreciseBacklog=true", content=b"x" * 1_000)
    assert answer.status_code == 200
    assert answer.headers["x-of-the-broker"] == "yes"
    assert len(answer.headers.get_list("date")) == 1
    assert answer.json()["target"] == f"{path}?getPreciseBacklog=true"
    assert (answer.json()["method"], answer.json()["body_bytes"]) == ("POST", 1_000)


async def test_headers_of_one_connection_and_claims_of_clients_stay_behind(web: Web) -> None:
    client = await web.client()
    await client.get(
        "/admin/v2/clusters",
        headers={
            "authorization": "Bearer abc",
            "connection": "keep-alive, x-mine",
            "x-mine": "1",
            "x-original-principal": "admin",
            "x-forwarded-for": "10.0.0.1",
        },
    )
    (scope,) = [each for broker in web.brokers for each in broker.asked]
    headers = dict(scope["headers"])
    assert headers[b"authorization"] == b"Bearer abc"
    assert headers[b"x-forwarded-for"] == HOST.encode()
    assert not {b"x-mine", b"x-original-principal"} & headers.keys()


async def test_brokers_take_turns_and_one_that_is_gone_is_passed_over(web: Web) -> None:
    client = await web.client()
    names = [(await client.get("/admin/v2/clusters")).json()["broker"] for _ in range(4)]
    assert sorted(names) == ["one", "one", "two", "two"]
    web.view = BrokerView(web_urls=("http://127.0.0.1:1", web.brokers[1].url))
    names = [(await client.get("/admin/v2/clusters")).json()["broker"] for _ in range(4)]
    assert names == ["two"] * 4


async def test_redirects_are_followed_with_the_body(web: Web) -> None:
    one, two = web.brokers
    one.location = lambda path: f"{two.url}{path}?authoritative=true"
    web.view = BrokerView(web_urls=(one.url,))
    client = await web.client()
    answer = await client.put("/admin/v2/persistent/public/default/t", content=b"y" * 50_000)
    assert answer.json()["broker"] == "two"
    assert answer.json()["target"].endswith("?authoritative=true")
    assert answer.json()["body_bytes"] == 50_000


async def test_redirects_in_a_circle_end(web: Web) -> None:
    one, two = web.brokers
    one.location = lambda path: f"{two.url}{path}"
    two.location = lambda path: f"{one.url}{path}"
    answer = await (await web.client()).get("/admin/v2/clusters")
    assert answer.status_code == 502
    assert "redirected" in answer.json()["reason"]


async def test_a_large_body_is_streamed(web: Web) -> None:
    client = await web.client()

    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(100):
            yield bytes(64 * 1024)

    answer = await client.post("/admin/v2/large", content=pieces())
    assert answer.json()["body_bytes"] == 100 * 64 * 1024


async def test_a_redirect_after_a_large_body_is_not_followed(web: Web) -> None:
    one, two = web.brokers
    one.location, one.reads_first = lambda path: f"{two.url}{path}", True
    web.view = BrokerView(web_urls=(one.url,))
    answer = await (await web.client()).put("/admin/v2/large", content=bytes(300_000))
    assert answer.status_code == 502
    assert "a redirect came after 300000 bytes" in answer.json()["reason"]
    assert two.asked == []


async def test_a_body_of_which_too_much_is_gone_is_not_sent_again() -> None:
    pieces = [b"x" * 60_000, b"y" * 60_000]

    async def receive() -> dict[str, object]:
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    body = RequestBody(receive, 100_000)
    coming = body.pieces()
    await anext(coming)
    body.rewind()
    assert [len(each) async for each in body.pieces()] == [60_000, 60_000]
    with pytest.raises(ServerUnreachable, match="a redirect came after 120000 bytes"):
        body.rewind()


@pytest.mark.parametrize(
    "path",
    [
        *("/admin/v3/functions/public/default", "/admin/v3/sources/public/default/s"),
        *("/admin/v3/sinks/public/default", "/admin/v2/worker/cluster", "/admin/v2/worker-stats"),
    ],
)
async def test_functions_are_the_workers(web: Web, path: str) -> None:
    assert (await (await web.client()).get(path)).json()["broker"] == "worker"


async def test_the_upload_of_a_function_is_streamed_to_its_worker(web: Web) -> None:
    """The client sends the second half only when the worker has some of the first."""
    is_begun = asyncio.Event()
    received: list[bytes] = []
    types: list[bytes] = []

    async def worker(scope: Scope, receive: Receive, send: Send) -> None:
        types.append(dict(scope["headers"])[b"content-type"])
        is_complete = False
        while not is_complete:
            message = await receive()
            received.append(message.get("body", b""))
            is_begun.set()
            is_complete = not message.get("more_body")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    form = httpx.Request(
        "POST",
        "http://worker",
        data={"functionConfig": '{"name": "f"}'},
        files={"data": ("f.nar", bytes(range(256)) * 8_000, "application/octet-stream")},
    )
    content, kind = form.read(), form.headers["content-type"]

    async def halves() -> AsyncGenerator[bytes]:
        yield content[:1_000_000]
        await is_begun.wait()
        yield content[1_000_000:]

    async with HttpServer(worker, HOST, 0) as server:
        web.worker.port = server.port
        client = await web.client()
        answer = await client.post(
            "/admin/v3/functions/public/default/f",
            content=halves(),
            headers={"content-type": kind},
            timeout=20,
        )
    assert answer.status_code == 204
    assert b"".join(received) == content
    assert types == [kind.encode()]


async def test_all_else_is_the_proxys_own(web: Web) -> None:
    assert (await (await web.client()).get("/metrics/")).text == "own"


async def test_a_silent_broker_is_a_gateway_that_timed_out(web: Web) -> None:
    for broker in web.brokers:
        broker.is_silent = True
    answer = await (await web.client()).get("/admin/v2/clusters", timeout=20)
    assert answer.status_code == 504


async def test_without_brokers_the_proxy_says_so(web: Web) -> None:
    web.view = BrokerView()
    client = await web.client()
    assert (await client.get("/admin/v2/clusters")).status_code == 503
    web.view = BrokerView(web_urls=("http://127.0.0.1:1",))
    assert (await client.get("/admin/v2/clusters")).status_code == 502


async def test_too_many_requests_at_once_are_refused(web: Web) -> None:
    for broker in web.brokers:
        broker.is_silent = True
    one_at_once = WebConfig(concurrent_http_requests_max=1, http_proxy_timeout_s=1.0)
    client = await web.client(replace(CONFIG, web=one_at_once))
    answers = await asyncio.gather(
        *(client.get("/admin/v2/clusters", timeout=20) for _ in range(3))
    )
    assert sorted(each.status_code for each in answers) == [503, 503, 504]
