"""Proves how a broker opens and ends: who comes early waits, who comes late is let go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.unit.geminga_broker.stand_ins import MemoryNetwork

from geminga_broker.broker import Broker

Settle = Callable[[], Awaitable[None]]


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
