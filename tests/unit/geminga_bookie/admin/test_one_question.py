"""A bookie is asked; whatever else answers there, or does not, is told as that."""

from __future__ import annotations

import asyncio

import pytest

from geminga_bookie.admin import one_question
from geminga_bookie.admin.one_question import ANSWER_TIMEOUT_S
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World


class Answering(asyncio.Protocol):
    """Sends ``content`` to whoever connects; hangs up where there is none."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self.content is None:
            transport.close()
        else:
            transport.write(self.content)


def request() -> pb.Request:
    wanted = pb.Request()
    wanted.header.operation = pb.READ_LAC
    wanted.readLacRequest.ledgerId = 1
    return wanted


async def ask(content: bytes | None) -> float:
    """Ask one that answers so; returns how long that took."""
    async with World() as world:
        server, client = world.host("server"), world.host("client")
        await server.network.listen(lambda: Answering(content), "server", 3181)
        begun_s = client.clock.monotonic()
        with pytest.raises(BookieUnavailable, match="b1"):
            await one_question.ask(client.network, "b1", ("server", 3181), request())
        return client.clock.monotonic() - begun_s


@pytest.mark.parametrize(
    "content",
    [None, b"HTTP/1.1 400\r\n\r\n", b"\0\0\0\3abc", b"\0\0\0\0", b"\xff" * 8],
)
def test_what_is_no_bookie_is_told(content: bytes | None) -> None:
    simulate(1, lambda: ask(content))


def test_silence_is_not_waited_for_longer_than_it_should() -> None:
    assert ANSWER_TIMEOUT_S <= simulate(1, lambda: ask(b"")).result <= ANSWER_TIMEOUT_S + 1


def test_nobody_there_is_told() -> None:
    async def scenario() -> None:
        async with World() as world:
            world.host("server")
            client = world.host("client")
            with pytest.raises(BookieUnavailable):
                await one_question.ask(client.network, "b1", ("server", 3181), request())

    simulate(1, scenario)
