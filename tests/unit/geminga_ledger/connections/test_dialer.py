"""A bookie is looked for where it listens now, once, and not for long."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_ledger.world import FIRST_PORT, World

from geminga_ledger.connections.dialer import Dialer
from geminga_ledger.errors import BookieUnavailable
from geminga_runtime.coordination import ConnectionLost

TIMEOUT_S = 3.0


class Addresses:
    """Where bookies listen, or why that cannot be told."""

    def __init__(self) -> None:
        self.port = FIRST_PORT
        self.error: Exception | None = None

    async def resolve(self, bookie_id: str) -> tuple[str, int]:
        del bookie_id
        if self.error is not None:
            raise self.error
        return "127.0.0.1", self.port


def dialer_in(world: World, addresses: Addresses) -> Dialer:
    return Dialer(addresses.resolve, world.network, timeout_s=TIMEOUT_S)


async def test_every_attempt_looks_for_the_bookie_anew() -> None:
    world, addresses = World(1), Addresses()
    dialer = dialer_in(world, addresses)
    for addresses.port in (FIRST_PORT, FIRST_PORT + 7):
        world.bookies[0].start(addresses.port)
        transport, _ = await dialer.dial("b0", asyncio.Protocol)
        assert not transport.is_closing()
    assert world.network.connects == [("127.0.0.1", FIRST_PORT), ("127.0.0.1", FIRST_PORT + 7)]


@pytest.mark.parametrize(
    "error",
    [
        BookieUnavailable("b0", "the test says so"),
        ConnectionLost("/x"),
        UnicodeError("label empty or too long"),
        ValueError("embedded null character"),
        OSError(),
    ],
)
async def test_an_address_that_cannot_be_had_makes_it_unavailable(error: Exception) -> None:
    world, addresses = World(1), Addresses()
    addresses.error = error
    with pytest.raises(BookieUnavailable, match="b0"):
        await dialer_in(world, addresses).dial("b0", asyncio.Protocol)


async def test_so_does_silence() -> None:
    world = World(1)
    world.network.silent.add(FIRST_PORT)
    began_s = world.clock.monotonic()
    with pytest.raises(BookieUnavailable, match="no answer to connecting"):
        await dialer_in(world, Addresses()).dial("b0", asyncio.Protocol)
    assert world.clock.monotonic() - began_s == pytest.approx(TIMEOUT_S)
