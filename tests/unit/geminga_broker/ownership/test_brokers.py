"""A living broker is registered, one of the living leads, and a dead one is replaced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from tests.unit.geminga_broker.ownership.two_brokers import HERE, THERE

from geminga_broker.ownership.addresses.address import BrokerAddress
from geminga_broker.ownership.assignment.load_report import LoadReportConfig
from geminga_broker.ownership.brokers import Brokers
from geminga_protocol.records.cluster.brokers import BundleStats, LocalBrokerData
from geminga_runtime import service
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import WALL_START_MS, SimulatedClock

LOOK_INTERVAL_S = LoadReportConfig().load_balancer_report_interval_min_s
WRITE_INTERVAL_S = LoadReportConfig().load_balancer_report_interval_max_s
PATH = "/loadbalance/brokers/127.0.0.1:28080"

Session = Callable[[str], Coordination]
Settle = Callable[[], Awaitable[None]]
OnName = Callable[[str], Awaitable[None]]
Kill = Callable[[str], None]
Tree = Callable[[], dict[str, bytes]]


def broker(
    coordination: Coordination,
    address: BrokerAddress,
    load: Callable[[], LocalBrokerData] = LocalBrokerData,
    former: tuple[str, ...] = (),
) -> Brokers:
    return Brokers(
        coordination,
        SimulatedClock(),
        address,
        load,
        version="4.0.6",
        former_broker_ids=former,
    )


def leads(candidate: Brokers) -> bool:
    """Ask anew: type checkers take a property for a constant."""
    return bool(candidate.election.is_leader)


@pytest.fixture
async def brokers(coordination: Coordination) -> AsyncIterator[Brokers]:
    """The broker ``HERE``."""
    async with broker(coordination, HERE) as opened:
        yield opened


@pytest.fixture
async def rival(brokers: Brokers, session: Session) -> AsyncIterator[Brokers]:
    """Another broker, ``THERE``, which came later."""
    del brokers
    async with broker(session("rival"), THERE) as opened:
        yield opened


async def test_a_broker_is_registered_as_pulsar_records_it(brokers: Brokers, tree: Tree) -> None:
    assert await brokers.living.ids() == [HERE.broker_id]
    record = json.loads(tree()[PATH])
    assert record["webServiceUrl"] == HERE.http_url
    assert record["pulsarServiceUrl"] == HERE.broker_url
    assert record["brokerVersionString"] == "4.0.6"
    assert record["startTimestamp"] == record["lastUpdate"] == WALL_START_MS
    assert record["loadReportType"] == "LocalBrokerData"


async def test_a_single_broker_leads(brokers: Brokers, tree: Tree) -> None:
    assert leads(brokers)
    leader = await brokers.election.leader()
    assert leader is not None
    assert (leader.broker_id, leader.service_url) == (HERE.broker_id, HERE.http_url)
    # tests/golden/records/zookeeper.jsonl has this very node of a real broker.
    assert tree()["/loadbalance/leader"] == (
        b'{"brokerId":"127.0.0.1:28080","serviceUrl":"http://127.0.0.1:28080"}'
    )


async def test_one_of_two_leads_and_both_know(brokers: Brokers, rival: Brokers) -> None:
    assert leads(brokers)
    assert not leads(rival)
    assert await rival.living.ids() == sorted([HERE.broker_id, THERE.broker_id])
    assert await rival.election.leader() == await brokers.election.leader()


async def test_a_broker_that_comes_later_is_seen(
    brokers: Brokers, session: Session, settle: Settle
) -> None:
    assert await brokers.living.ids() == [HERE.broker_id]
    async with broker(session("rival"), THERE):
        await settle()
        assert await brokers.living.ids() == sorted([HERE.broker_id, THERE.broker_id])
    await settle()
    assert await brokers.living.ids() == [HERE.broker_id]


async def test_a_dead_leader_is_replaced(
    brokers: Brokers, rival: Brokers, expire: OnName, settle: Settle
) -> None:
    await expire("broker")
    await settle()
    assert not leads(brokers)
    assert leads(rival)
    assert await rival.living.ids() == [THERE.broker_id]


async def test_who_led_before_follows_after_its_return(
    brokers: Brokers, rival: Brokers, expire: OnName, reconnect: OnName, settle: Settle
) -> None:
    await expire("broker")
    await settle()
    await reconnect("broker")
    await settle()
    assert not leads(brokers)
    assert leads(rival)
    assert await rival.living.ids() == sorted([HERE.broker_id, THERE.broker_id])


async def test_a_broker_alone_returns_as_the_leader(
    brokers: Brokers, expire: OnName, reconnect: OnName, settle: Settle
) -> None:
    await expire("broker")
    assert not leads(brokers)
    await reconnect("broker")
    await settle()
    assert leads(brokers)
    assert await brokers.living.ids() == [HERE.broker_id]


async def test_a_leader_that_closes_is_replaced_and_stays_away(
    coordination: Coordination, session: Session, settle: Settle, tree: Tree
) -> None:
    async with broker(session("rival"), THERE) as rival:
        await settle()
        async with broker(coordination, HERE):
            assert leads(rival)
        await settle()
    await settle()
    assert [path for path in tree() if path.startswith("/loadbalance/")] == ["/loadbalance/brokers"]


async def test_what_a_kill_left_is_taken_over_at_once(
    coordination: Coordination, session: Session, kill: Kill
) -> None:
    await broker(session("killed"), HERE).__aenter__()
    kill("killed")
    async with broker(coordination, HERE) as again:
        assert leads(again)
        stat = await coordination.exists(PATH)
        assert stat is not None
        assert stat.ephemeral_owner == coordination.session_id


async def test_what_a_kill_left_under_other_ports_is_taken_away(
    coordination: Coordination, session: Session, kill: Kill
) -> None:
    await broker(session("killed"), THERE).__aenter__()
    kill("killed")
    async with broker(coordination, HERE, former=(THERE.broker_id,)) as again:
        assert leads(again)
        assert await again.living.ids() == [HERE.broker_id]


async def test_load_is_written_again_when_it_changed(
    coordination: Coordination, tree: Tree
) -> None:
    load = LocalBrokerData()
    async with broker(coordination, HERE, lambda: load):
        await asyncio.sleep(LOOK_INTERVAL_S + 1)
        assert json.loads(tree()[PATH])["lastUpdate"] == WALL_START_MS
        load = replace(load, msg_rate_in=1000.0)
        await asyncio.sleep(LOOK_INTERVAL_S)
        record = json.loads(tree()[PATH])
        assert (record["msgRateIn"], record["lastUpdate"]) == (1000.0, WALL_START_MS + 10_000)


async def test_others_run_while_a_large_report_is_encoded(
    coordination: Coordination, tree: Tree
) -> None:
    async def turns_while_opening(load: LocalBrokerData) -> int:
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        taking = asyncio.ensure_future(take_turns())
        async with broker(coordination, HERE, lambda: load):
            taking.cancel()
            assert json.loads(tree()[PATH])["lastStats"].keys() == load.last_stats.keys()
        return turns

    large = {f"t/n/{number}": BundleStats() for number in range(5_000)}
    small = dict(list(large.items())[:1])
    turns = await turns_while_opening(LocalBrokerData(last_stats=large))
    assert turns >= await turns_while_opening(LocalBrokerData(last_stats=small)) + 25


async def test_load_is_written_again_after_a_while_in_any_case(
    coordination: Coordination, tree: Tree
) -> None:
    async with broker(coordination, HERE):
        await asyncio.sleep(WRITE_INTERVAL_S + 1)
        record = json.loads(tree()[PATH])
        assert record["lastUpdate"] == WALL_START_MS + WRITE_INTERVAL_S * 1000


async def test_load_is_written_again_after_an_unforeseen_error(
    coordination: Coordination, tree: Tree
) -> None:
    looks = 0

    def load() -> LocalBrokerData:
        nonlocal looks
        looks += 1
        if looks == 2:  # the first is for the registration
            raise ValueError("a bug")
        return LocalBrokerData(msg_rate_in=1000.0 * (looks > 2))

    async with broker(coordination, HERE, load):
        await asyncio.sleep(2 * LOOK_INTERVAL_S + service.RESTART_S + 1)
        assert json.loads(tree()[PATH])["msgRateIn"] == 1000.0


async def test_a_registration_deleted_by_hand_comes_back(
    coordination: Coordination,
    session: Session,
    tree: Tree,
) -> None:
    async with broker(coordination, HERE):
        await session("other").delete(PATH)
        await asyncio.sleep(WRITE_INTERVAL_S + 1)
        assert PATH in tree()
