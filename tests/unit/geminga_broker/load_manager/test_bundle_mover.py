"""Owners are asked over REST, in requests that a server of HTTP/1.1 understands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from geminga_broker.load_manager.bundle_mover import BundleRequestFailed, RestBundleMover
from geminga_runtime.network import AsyncioNetwork

pytestmark = pytest.mark.real_loop

BUNDLE = "public/default/0x40000000_0x80000000"


class Owner:
    """A server that answers every request with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.received: list[bytes] = []
        self.is_done = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(await reader.readuntil(b"\r\n\r\n"))
        if self._answer:
            writer.write(self._answer)
        else:
            await reader.read()  # silent until the client has gone
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.is_done.set()


@asynccontextmanager
async def serving(answer: bytes) -> AsyncGenerator[tuple[Owner, str]]:
    owner = Owner(answer)
    async with await asyncio.start_server(owner.serve, "127.0.0.1", 0) as server:
        yield owner, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await owner.is_done.wait()


def mover(timeout_s: float = 5.0) -> RestBundleMover:
    return RestBundleMover(AsyncioNetwork(), timeout_s=timeout_s)


async def test_the_owner_is_asked_to_hand_a_bundle_on() -> None:
    async with serving(b"HTTP/1.1 204 No Content\r\n\r\n") as (owner, url):
        await mover().unload(url, BUNDLE, "127.0.0.1:8081")
    (request,) = owner.received
    line, *headers = request.split(b"\r\n")
    assert line == (
        b"PUT /admin/v2/namespaces/public/default/0x40000000_0x80000000/unload"
        b"?authoritative=false&destinationBroker=127.0.0.1%3A8081 HTTP/1.1"
    )
    assert f"Host: {url.partition('//')[2]}".encode() in headers
    assert b"Content-Length: 0" in headers


async def test_the_owner_is_asked_to_split_a_bundle() -> None:
    async with serving(b"HTTP/1.1 204 No Content\r\n\r\n") as (owner, url):
        await mover().split(url, BUNDLE, unload=True)
    assert owner.received[0].startswith(
        b"PUT /admin/v2/namespaces/public/default/0x40000000_0x80000000/split"
        b"?authoritative=false&unload=true HTTP/1.1\r\n"
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'HTTP/1.1 412 X\r\n\r\n{"reason":"not active"}', "not active"),
        (b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://x/\r\n\r\n", "307"),
        (b"nonsense", "nonsense"),
        (b"HTTP/1.1 500 X\r\n\r\n" + bytes(200_000), "500"),
    ],
)
async def test_any_other_answer_is_a_failure_that_says_why(answer: bytes, why: str) -> None:
    async with serving(answer) as (_, url):
        with pytest.raises(BundleRequestFailed, match=why):
            await mover().unload(url, BUNDLE, "127.0.0.1:8081")


async def test_an_owner_that_does_not_answer_is_given_up() -> None:
    async with serving(b"") as (_, url):
        with pytest.raises(BundleRequestFailed, match=r"did not answer in 0\.1 s"):
            await mover(0.1).unload(url, BUNDLE, "127.0.0.1:8081")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://127.0.0.1:1", "", "http://"])
async def test_an_owner_that_cannot_be_reached_is_a_failure(url: str) -> None:
    with pytest.raises(BundleRequestFailed, match="cannot be reached"):
        await mover().unload(url, BUNDLE, "127.0.0.1:8081")
