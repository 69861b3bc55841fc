"""Proves that there is one connection to each broker, and none after closing."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session, until
from tests.unit.geminga.fake_network import FakeNetwork

from geminga import Closed, NotAuthenticated, NotConnected
from geminga._transport.connection import ConnectionOptions
from geminga._transport.connection_pool import ConnectionPool
from geminga._transport.service_urls import BrokerAddress, Route
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import NO_REQUEST_ID

ROUTE = Route(BrokerAddress("broker", 6650))


@pytest.mark.usefixtures("broker")
async def test_all_callers_share_one_connection(network: FakeNetwork) -> None:
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        first, *others = await asyncio.gather(*[connections.get(ROUTE) for _ in range(5)])
        assert all(other is first for other in others)
        assert await connections.get(ROUTE) is first
        assert network.connects == ["broker"]


async def test_a_broken_connection_is_replaced(network: FakeNetwork, broker: FakeBroker) -> None:
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        first = await connections.get(ROUTE)
        await asyncio.sleep(10)
        broker.drop_connections()
        await first.closed()
        second = await connections.get(ROUTE)
        assert second is not first
        assert second.is_open


@pytest.mark.parametrize("broker_does", ["accepts and fails", "refuses"])
async def test_a_broker_that_fails_is_not_connected_to_without_end(
    network: FakeNetwork, broker: FakeBroker, broker_does: str
) -> None:
    """However many ask for a connection, and however often; as aiokafka#496."""
    healthy = broker.answers[BaseCommand.CONNECT]
    if broker_does == "accepts and fails":

        def accept_and_fail(session: Session, command: BaseCommand, payload: bytes) -> None:
            healthy(session, command, payload)
            asyncio.get_running_loop().call_later(0.01, session.drop)

        broker.on(BaseCommand.CONNECT, accept_and_fail)
    else:
        broker.kill()
    refused: list[str] = []
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        for _ in range(3000):
            await asyncio.sleep(0.02)
            try:
                await connections.get(ROUTE)
            except NotConnected as error:
                refused.append(str(error))
        assert 55 <= len(network.connects) <= 70, "once a second"
        assert len(set(refused)) == 1, "an attempt that is not made fails as the last one did"
        broker.start()
        broker.on(BaseCommand.CONNECT, healthy)
        await asyncio.sleep(1)
        assert (await connections.get(ROUTE)).is_open


async def test_a_broker_behind_a_proxy_has_a_connection_of_its_own(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        direct = await connections.get(ROUTE)
        proxied = await connections.get(Route(ROUTE.address, "hidden:6650"))
        assert direct is not proxied
        assert [c.connect.proxy_to_broker_url for c in broker.received] == ["", "hidden:6650"]


async def test_an_unreachable_broker_is_an_error_for_all_callers(network: FakeNetwork) -> None:
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        results = await asyncio.gather(
            *[connections.get(ROUTE) for _ in range(3)], return_exceptions=True
        )
        assert [type(result) for result in results] == [NotConnected] * 3
        assert network.connects == ["broker"]


async def test_a_broker_that_does_not_answer_is_not_waited_for(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    async with ConnectionPool(network, ConnectionOptions(connect_timeout_s=10)) as connections:
        network.silent.add("broker")
        with pytest.raises(NotConnected, match="within 10 s"):
            await connections.get(ROUTE)
        network.silent.clear()
        broker.on(BaseCommand.CONNECT)
        with pytest.raises(NotConnected, match="within 10 s"):
            await connections.get(ROUTE)
        await until(lambda: not broker.open_sessions)


async def test_a_refused_handshake_raises_the_brokers_error(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    refused = answers.encode_error(NO_REQUEST_ID, api.AuthenticationError, "who are you")
    broker.on(BaseCommand.CONNECT, lambda session, _, __: session.write(refused))
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        with pytest.raises(NotAuthenticated):
            await connections.get(ROUTE)


async def test_closing_closes_all_and_opens_none(network: FakeNetwork, broker: FakeBroker) -> None:
    connections = ConnectionPool(network, ConnectionOptions())
    async with connections:
        connection = await connections.get(ROUTE)
    assert not connection.is_open
    assert not broker.open_sessions
    with pytest.raises(Closed):
        await connections.get(ROUTE)


async def test_closing_does_not_wait_for_a_broker_that_does_not_read(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        connection = await connections.get(ROUTE)
        transport = broker.session.transport
        assert transport is not None
        assert transport.peer is not None
        transport.peer.is_stuck = True
    await connection.closed()


@pytest.mark.usefixtures("broker")
async def test_closing_the_pool_fails_callers_that_wait_for_a_connection(
    network: FakeNetwork,
) -> None:
    network.silent.add("broker")
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        asking = asyncio.create_task(connections.get(ROUTE))
        await asyncio.sleep(1)
    with pytest.raises(Closed):
        await asking


@pytest.mark.usefixtures("broker")
async def test_a_cancelled_caller_does_not_end_the_attempt_for_the_others(
    network: FakeNetwork,
) -> None:
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        asking = [asyncio.create_task(connections.get(ROUTE)) for _ in range(2)]
        await asyncio.sleep(0)
        asking[0].cancel()
        assert (await asking[1]).is_open


async def test_connections_that_broke_are_not_kept(network: FakeNetwork) -> None:
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        for number in range(10):
            broker = FakeBroker(network, f"broker-{number}")
            connection = await connections.get(Route(BrokerAddress(f"broker-{number}", 6650)))
            broker.kill()
            await connection.closed()
        assert len(connections._by_route) == 1


@pytest.mark.usefixtures("broker")
async def test_closing_before_the_connecting_began_ends_the_waiting(network: FakeNetwork) -> None:
    async with ConnectionPool(network, ConnectionOptions()) as connections:
        waiting = asyncio.create_task(connections.get(ROUTE))
        await asyncio.sleep(0)
    with pytest.raises(Closed):
        await waiting
