"""The client's tests run in virtual time, against a broker in memory that tests script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
from tests.unit.geminga.fake_broker import FakeBroker
from tests.unit.geminga.fake_network import FakeNetwork

from geminga import Client, connect
from geminga_simulation.event_loop.clock import SimulatedClock


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork()


@pytest.fixture
def broker(network: FakeNetwork) -> FakeBroker:
    """The only broker there is, at ``pulsar://broker:6650``."""
    return FakeBroker(network, "broker")


@pytest.fixture
async def client(network: FakeNetwork, broker: FakeBroker) -> AsyncIterator[Client]:
    """A client of ``broker``."""
    async with connect(
        broker.url,
        network=network,
        clock=SimulatedClock(),
        random=Random(1),
    ) as opened:
        yield opened
