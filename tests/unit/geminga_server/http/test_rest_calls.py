"""Proves that servers get each other's answers, follow redirects within bounds, and give up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import NO_CALLS, BrokerCalls, HttpCalls, RestAnswer, RestCall

pytestmark = pytest.mark.real_loop


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server that answers what the path says: a status, and the body in upper case."""

    answering: set[asyncio.Task[None] | None] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())
        with closing(writer):
            await answer(reader, writer)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        sizes = [line.partition(": ")[2] for line in lines if line.startswith("Content-Length")]
        body = await reader.readexactly(int(sizes[0]) if sizes else 0)
        method, path, _ = lines[0].split(" ")
        status = path.strip("/").partition("?")[0]
        if status == "silent":
            await reader.read()  # until the client hangs up
            return
        location = "Location: /200?done\r\n" if status == "307" else ""
        location = "Location: /308\r\n" if status == "308" else location
        content = f"{method} {path} ".encode() + body.upper()
        writer.write(
            f"HTTP/1.1 {status} Said\r\n{location}Content-Length: {len(content)}\r\n\r\n".encode()
            + content
        )
        await writer.drain()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        # None is left in a loop that ends: its socket would stay open.
        await asyncio.gather(*filter(None, answering))


async def test_a_redirect_is_followed_with_the_body(url: str) -> None:
    answer = await HttpCalls().call(RestCall("PUT", f"{url}/307", body=b"given"))
    assert answer == RestAnswer(200, b"PUT /200?done GIVEN")


async def test_a_redirect_that_is_not_to_be_followed_is_the_answer(url: str) -> None:
    answer = await HttpCalls().call(RestCall("PUT", f"{url}/307", follows_redirects=False))
    assert (answer.status, answer.location) == (307, "/200?done")


async def test_a_refusal_is_an_answer(url: str) -> None:
    answer = await HttpCalls().call(RestCall("GET", f"{url}/404"))
    assert (answer.status, answer.is_success, answer.reason) == (404, False, "it answered 404")
    assert RestAnswer(412, b'{"reason":"so"}').reason == "so"


async def test_redirects_end(url: str) -> None:
    with pytest.raises(ServerUnreachable, match="redirects on and on"):
        await HttpCalls().call(RestCall("GET", f"{url}/308"))


async def test_who_does_not_answer_is_given_up(url: str) -> None:
    with pytest.raises(ServerUnreachable, match=r"did not answer|cannot be reached"):
        await HttpCalls(timeout_s=0.1).call(RestCall("GET", f"{url}/silent"))
    with pytest.raises(ServerUnreachable, match=r"did not answer|cannot be reached"):
        await HttpCalls().call(RestCall("GET", f"{url}/silent", timeout_s=0.1))
    with pytest.raises(ServerUnreachable, match="cannot be reached"):
        await HttpCalls().call(RestCall("GET", "http://127.0.0.1:1/"))
    with pytest.raises(ServerUnreachable, match="no URL with a host"):
        await HttpCalls().call(RestCall("GET", "/a/broker/that/told/no/url"))
    with pytest.raises(ServerUnreachable, match="asks no other"):
        await NO_CALLS.call(RestCall("GET", url))


class Hosts:
    """``RestCalls`` to hosts of which those in ``away`` do not answer."""

    prefers_tls = False

    def __init__(self, *away: str) -> None:
        self.away = set(away)
        self.asked: list[str] = []

    async def call(self, call: RestCall) -> RestAnswer:
        self.asked.append(call.url)
        if call.url.split("/")[2] in self.away:
            raise ServerUnreachable(f"{call.url} cannot be reached")
        return RestAnswer(200)


async def test_of_brokers_the_next_is_asked_where_one_does_not_answer() -> None:
    hosts = Hosts("a", "b")
    calls = BrokerCalls(hosts, ["http://a", "http://b", "http://c"])
    assert (await calls.call(RestCall("GET", "http://a/x"))).status == 200
    assert hosts.asked == ["http://a/x", "http://b/x", "http://c/x"]
    assert (await calls.call(RestCall("GET", "http://a/y"))).status == 200
    assert hosts.asked[3:] == ["http://c/y"]  # the one that answered last
    assert (await calls.call(RestCall("GET", "http://other/z"))).status == 200
    assert hosts.asked[4:] == ["http://other/z"]
    hosts.away.add("c")
    with pytest.raises(ServerUnreachable, match="http://b/w cannot be reached"):
        await calls.call(RestCall("GET", "http://a/w"))
    assert hosts.asked[5:] == ["http://c/w", "http://a/w", "http://b/w"]
