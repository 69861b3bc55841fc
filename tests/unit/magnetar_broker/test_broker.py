"""Proves how a broker opens and ends: who comes early waits, who comes late is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import cast

import pytest
from tests.unit.magnetar_broker.sessions.stand_ins import FrameClient

from magnetar_broker.broker import Broker
from magnetar_broker.metadata.initialize import ClusterUrls, initialize_cluster_metadata
from magnetar_broker.options import BrokerOptions
from magnetar_broker.sessions.connection import Connection
from magnetar_protocol.pulsar.topic_names import TopicName
from magnetar_runtime.clock import SystemClock
from magnetar_runtime.coordination import Coordination
from magnetar_runtime.network import Listener, Network
from magnetar_server.authorization import ALLOW_ALL

Settle = Callable[[], Awaitable[None]]
URLS = ClusterUrls("http://here:8080", "pulsar://here:6650")


class MemoryNetwork:
    """Listens for clients of which the first is there before ``listen`` returns."""

    def __init__(self) -> None:
        self.clients: list[FrameClient] = []
        self.is_listening = False
        self.port = 0

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        del host
        self.port = port
        self.is_listening = True
        self._factory = factory
        self.come()
        await asyncio.sleep(0)
        return cast(Listener, self)

    def come(self) -> FrameClient:
        """One more client connects."""
        connection = self._factory()
        assert isinstance(connection, Connection)
        self.clients.append(FrameClient(connection))
        return self.clients[-1].connected()

    async def close(self) -> None:
        self.is_listening = False


@pytest.fixture
async def broker(coordination: Coordination, network: MemoryNetwork) -> Broker:
    """A broker of an initialized cluster without bookies, to be entered."""
    await initialize_cluster_metadata(coordination, "standalone", URLS, instance_id="i")
    return Broker(
        BrokerOptions(advertised_host="here", port=6650, web_port=8080),
        coordination=coordination,
        network=cast(Network, network),
        clock=SystemClock(),
        random=Random(1),
        authorizer=ALLOW_ALL,
    )


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


async def test_a_client_that_comes_while_the_broker_opens_is_answered_when_it_is_open(
    broker: Broker, network: MemoryNetwork, settle: Settle
) -> None:
    async with broker:
        early = network.clients[0]
        early.ask("lookupTopic", topic="public/default/topic")
        await settle()
        (answer,) = early.all_of("lookupTopicResponse")
        assert answer.brokerServiceUrl == "pulsar://here:6650"


async def test_a_broker_that_ends_closes_its_connections_and_takes_no_more(
    broker: Broker, network: MemoryNetwork, settle: Settle
) -> None:
    async with broker:
        client = network.come()
        await settle()
    assert client.transport.is_closing()
    assert not network.is_listening


async def test_the_load_report_says_what_the_broker_carries(broker: Broker) -> None:
    async with broker:
        name = TopicName.parse("non-persistent://public/default/topic")
        await broker.ownership.owner(name)
        await broker.create_topic(name, {})
        report = broker.load()
        assert report.num_topics == 1
        assert report.num_bundles == 1
        assert "public/default/" in report.bundles[0]
