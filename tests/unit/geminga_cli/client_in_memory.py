"""A client and its broker in memory, in virtual time: fixtures of the commands of messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from random import Random

import pytest
from tests.unit.geminga.fake_broker import FakeBroker
from tests.unit.geminga.fake_network import FakeNetwork

from geminga import Client, connect
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Other tests of the command line need real time; these do not."""
    del item
    return {"simulated": SimulatedLoop}


@pytest.fixture
def broker() -> FakeBroker:
    """The only broker there is."""
    return FakeBroker(FakeNetwork(), "broker")


@pytest.fixture
async def client(broker: FakeBroker) -> AsyncIterator[Client]:
    """A client of ``broker``."""
    async with connect(
        broker.url, network=broker._network, clock=SimulatedClock(), random=Random(1)
    ) as opened:
        yield opened
