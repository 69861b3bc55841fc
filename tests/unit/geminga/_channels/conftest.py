"""The tests of channels have the client's fake broker, and channels without a client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
from tests.unit.geminga.fake_broker import FakeBroker
from tests.unit.geminga.fake_network import FakeNetwork

from geminga._channels.registry import Channels, ClientOptions


@pytest.fixture
async def channels(network: FakeNetwork, broker: FakeBroker) -> AsyncIterator[Channels]:
    """The channels of a client of ``broker``."""
    async with Channels(broker.url, ClientOptions(), network=network, random=Random(1)) as opened:
        yield opened
