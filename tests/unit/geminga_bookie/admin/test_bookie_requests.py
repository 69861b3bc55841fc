"""One request to a bookie: its answer is understood; anything else is an error that names it."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_bookie.admin.answering import ADDRESS, client_of, response_of
from tests.unit.geminga_bookie.admin.cluster import Cluster, run

from geminga_bookie.admin import bookie_requests
from geminga_bookie.admin.bookie_requests import (
    ANSWER_TIMEOUT_S,
    BookieSpace,
    ask_entry_list,
    ask_space,
)
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.availability import Run
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World


class Answering(asyncio.Protocol):
    """Sends ``content`` to each client that connects; hangs up where there is none."""

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
            await bookie_requests.ask(client.network, "b1", ("server", 3181), request())
        return client.clock.monotonic() - begun_s


@pytest.mark.parametrize(
    "content",
    [None, b"HTTP/1.1 400\r\n\r\n", b"\0\0\0\3abc", b"\0\0\0\0", b"\xff" * 8],
)
def test_a_server_that_is_no_bookie_is_reported_as_unavailable(content: bytes | None) -> None:
    simulate(1, lambda: ask(content))


def test_silence_is_not_waited_for_longer_than_it_should() -> None:
    assert ANSWER_TIMEOUT_S <= simulate(1, lambda: ask(b"")).result <= ANSWER_TIMEOUT_S + 1


def test_a_bookie_that_does_not_listen_is_reported_as_unavailable() -> None:
    async def scenario() -> None:
        async with World() as world:
            world.host("server")
            client = world.host("client")
            with pytest.raises(BookieUnavailable):
                await bookie_requests.ask(client.network, "b1", ("server", 3181), request())

    simulate(1, scenario)


def test_free_and_total_room_are_told() -> None:
    async def scenario() -> None:
        response = response_of(pb.GET_BOOKIE_INFO, pb.EOK)
        response.getBookieInfoResponse.status = pb.EOK
        response.getBookieInfoResponse.freeDiskSpace = 3
        response.getBookieInfoResponse.totalDiskCapacity = 7
        async with World() as world:
            network = await client_of(world, response)
            assert await ask_space(network, "b1", ADDRESS) == BookieSpace(3, 7)

    simulate(1, scenario)


@pytest.mark.parametrize("status", [pb.EUA, pb.EOK])
def test_a_refusal_and_an_answer_without_content_are_none(status: pb.StatusCode.ValueType) -> None:
    async def scenario() -> None:
        async with World() as world:
            network = await client_of(world, response_of(pb.GET_BOOKIE_INFO, status))
            with pytest.raises(BookieUnavailable, match=f"status {status}"):
                await ask_space(network, "b1", ADDRESS)

    simulate(1, scenario)


def test_a_bookie_tells_the_entries_of_an_open_ledger() -> None:
    async def scenario(cluster: Cluster) -> None:
        ledger_id = await cluster.write(b"one", b"two", b"three", is_open=True)
        network, address = cluster.access.network, ("b2", 3181)
        assert await ask_entry_list(network, "b2", address, ledger_id) == [Run(0, 2)]
        assert await ask_entry_list(network, "b2", address, ledger_id + 1) == []

    run(scenario)


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 64, b"\0" * 65])
def test_an_entry_list_that_cannot_be_decoded_is_reported(content: bytes | None) -> None:
    async def scenario() -> None:
        response = response_of(pb.GET_LIST_OF_ENTRIES_OF_LEDGER, pb.EOK)
        if content is not None:
            answer = response.getListOfEntriesOfLedgerResponse
            answer.status, answer.ledgerId = pb.EOK, 1
            answer.availabilityOfEntriesOfLedger = content
        async with World() as world:
            network = await client_of(world, response)
            with pytest.raises(BookieUnavailable, match="b1"):
                await ask_entry_list(network, "b1", ADDRESS, 1)

    simulate(1, scenario)
