"""Answers find their requests by number, in any order, and every request ends."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_ledger.fake_network import FakeTransport

from geminga_ledger.connections.link_base import BookieStream
from geminga_ledger.connections.v3_connection import REQUESTS_MAX, V3Connection
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame, make_response, parse_request
from geminga_protocol.bookkeeper.v3_requests import read_lac_request


class Bench:
    """A connection, what it sent, and whether it told that it was lost."""

    def __init__(self) -> None:
        self.lost: list[BookieStream] = []
        self.connection = V3Connection("b0", self.lost.append, frame_bytes_max=1000)
        self.transport = FakeTransport(self.connection)
        self.connection.connection_made(self.transport)

    def ask(self, ledger_id: int, timeout_s: float = 10.0) -> asyncio.Future[pb.Response]:
        return self.connection.ask(read_lac_request(ledger_id), timeout_s=timeout_s)

    def answer_to(self, number: int) -> bytes:
        """The answer to the request that was sent as number ``number``."""
        return encode_frame(make_response(parse_request(self.transport.writes[number][4:])))


async def test_answers_come_in_any_order_and_in_any_pieces() -> None:
    bench = Bench()
    first, second = bench.ask(1), bench.ask(2)
    for byte in bench.answer_to(1) + bench.answer_to(0):
        bench.connection.data_received(bytes([byte]))
    assert (await first).readLacResponse.ledgerId == 1
    assert (await second).readLacResponse.ledgerId == 2


async def test_an_answer_whose_request_was_cancelled_is_ignored() -> None:
    bench = Bench()
    asked = bench.ask(1)
    asked.cancel()
    bench.connection.data_received(bench.answer_to(0) + bench.answer_to(0))
    await asyncio.sleep(11)
    assert not bench.connection.is_overdue
    assert not bench.lost


async def test_a_bookie_still_owes_the_answer_to_a_cancelled_request() -> None:
    bench = Bench()
    bench.ask(1).cancel()
    await asyncio.sleep(9)
    assert not bench.connection.is_overdue
    await asyncio.sleep(1)
    assert bench.connection.is_overdue


async def test_a_request_without_an_answer_fails_when_the_connection_ends() -> None:
    bench = Bench()
    asked = bench.ask(1)
    bench.connection.connection_lost(None)
    assert bench.lost == [bench.connection]
    bench.connection.retire("the test ended it")
    with pytest.raises(BookieUnavailable, match="the test ended it"):
        await asked
    assert bench.transport.is_closing()
    bench.connection.data_received(b"too late")
    bench.connection.connection_lost(None)
    assert len(bench.lost) == 1


@pytest.mark.parametrize("garbage", [b"\0\xff\xff\xff", b"\0\0\0\1!", b"\0\0\0\0"])
async def test_garbage_ends_the_connection(garbage: bytes) -> None:
    bench = Bench()
    bench.connection.data_received(garbage)
    assert bench.lost == [bench.connection]


async def test_requests_without_an_answer_are_bounded() -> None:
    bench = Bench()
    for number in range(REQUESTS_MAX):
        bench.ask(number)
    with pytest.raises(BookieUnavailable, match="owes 1000 answers"):
        bench.ask(0)
    bench.connection.data_received(bench.answer_to(0))
    bench.ask(0)
