"""The living brokers are found by whoever is none, with the addresses that they registered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from geminga_cluster.brokers import LivingBrokers
from geminga_protocol.records.brokers import LocalBrokerData, broker_path
from geminga_runtime.coordination import Coordination

ID = "127.0.0.1:8080"
RECORD = LocalBrokerData(pulsar_service_url="pulsar://127.0.0.1:6650")


async def test_where_no_broker_ever_was_none_lives(coordination: Coordination) -> None:
    brokers = LivingBrokers(coordination)
    assert await brokers.ids() == []
    assert await brokers.get(ID) is None


async def test_a_broker_is_found_while_it_lives(
    coordination: Coordination,
    session: Callable[[str], Coordination],
    expire: Callable[[str], None],
    settle: Callable[[], Awaitable[None]],
) -> None:
    brokers = LivingBrokers(coordination)
    assert await brokers.ids() == []
    registering = session("another")
    await registering.create(broker_path(ID), RECORD.encode(), ephemeral=True, make_parents=True)
    await settle()
    assert await brokers.ids() == [ID]
    assert await brokers.get(ID) == RECORD
    expire("another")
    await settle()
    assert await brokers.ids() == []
    assert await brokers.get(ID) is None


async def test_who_asks_again_asks_no_zookeeper(
    coordination: Coordination, requests: list[str]
) -> None:
    await coordination.create(broker_path(ID), RECORD.encode(), make_parents=True)
    brokers = LivingBrokers(coordination)
    await brokers.ids()
    await brokers.get(ID)
    requests.clear()
    assert await brokers.ids() == [ID]
    assert await brokers.get(ID) == RECORD
    assert requests == []
