"""What the broker's unit tests stand on: a simulated ZooKeeper, ledgers and a network in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import cast

import pytest
from tests.unit import simulated_zookeeper
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over
from tests.unit.geminga_broker.stand_ins import MemoryNetwork

from geminga_broker.broker import Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.topics.directory import TopicDirectory
from geminga_cluster.initialize import ClusterUrls, initialize_cluster_metadata
from geminga_runtime.coordination import Coordination
from geminga_runtime.network import Network
from geminga_server.authorization import allow_all
from geminga_simulation.event_loop.clock import SimulatedClock

zookeeper = simulated_zookeeper.zookeeper
sessions = simulated_zookeeper.sessions
session = simulated_zookeeper.session
coordination = simulated_zookeeper.coordination
requests = simulated_zookeeper.requests
store = simulated_zookeeper.store
tree = simulated_zookeeper.tree
meddle = simulated_zookeeper.meddle
suspend = simulated_zookeeper.suspend
expire = simulated_zookeeper.expire
reconnect = simulated_zookeeper.reconnect
kill = simulated_zookeeper.kill
settle = simulated_zookeeper.settle


@pytest.fixture
def ledgers() -> MemoryLedgers:
    """The cluster's ledgers."""
    return MemoryLedgers()


@pytest.fixture
async def topics(
    coordination: Coordination, ledgers: MemoryLedgers
) -> AsyncIterator[TopicDirectory]:
    """The broker's topics: all are its own."""
    factory = logs_over(coordination, ledgers)
    async with TopicDirectory(factory, SimulatedClock(), owns=lambda _: True) as topics:
        yield topics
        ledgers.is_prompt = True
        for writer in ledgers.writers:
            writer.confirm()


@pytest.fixture
def network() -> MemoryNetwork:
    """Where the clients of ``broker`` come from."""
    return MemoryNetwork()


async def initialized_broker(
    coordination: Coordination, network: MemoryNetwork, config: BrokerConfig | None = None
) -> Broker:
    """A broker of an initialized cluster without bookies, to be entered."""
    urls = ClusterUrls("http://here:8080", "pulsar://here:6650")
    await initialize_cluster_metadata(coordination, "standalone", urls, instance_id="i")
    return Broker(
        config or BrokerConfig(advertised_address="here", port=6650, web_port=8080),
        coordination=coordination,
        network=cast(Network, network),
        clock=SimulatedClock(),
        random=Random(1),
        authorize=allow_all,
    )


@pytest.fixture
async def broker(
    request: pytest.FixtureRequest, coordination: Coordination, network: MemoryNetwork
) -> Broker:
    """A broker to be entered; a test may give it another config than the usual one."""
    return await initialized_broker(coordination, network, getattr(request, "param", None))
