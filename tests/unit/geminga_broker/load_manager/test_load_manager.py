"""The leader places, moves and splits; no other broker does, and what fails is done again later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from tests.unit.geminga_broker.load_manager.modelled_cluster import bundle_named, stats

from geminga_broker.errors import ServiceNotReady
from geminga_broker.load_manager.config import LoadManagerConfig
from geminga_broker.load_manager.history_records import HistoryRecords
from geminga_broker.load_manager.load_manager import SPLIT_PAUSE_S, LoadManager
from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.assignment.placement import BrokersView
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.brokers import (
    BundleData,
    BundleStats,
    LocalBrokerData,
    TimeAverageBrokerData,
)
from geminga_runtime.coordination import ConnectionLost
from geminga_simulation.event_loop.clock import SimulatedClock

HOT, COLD, THIRD = (f"t/n/0x{n}0000000_0x{n + 1}0000000" for n in range(3))


class NotedMover:
    """Notes what it is asked for, and does what it says, or refuses."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, ...]] = []
        self.refuses = False

    async def unload(self, owner: Owner, bundle: str, destination: str) -> None:
        self.requests.append((owner.rest_url(is_tls=False), bundle, destination))
        if self.refuses:
            raise ServiceNotReady("not now")

    async def split(self, owner: Owner, bundle: str, *, unload: bool) -> None:
        self.requests.append((owner.rest_url(is_tls=False), bundle, f"unload={unload}"))
        if self.refuses:
            raise ServiceNotReady("not now")


class KeptRecords(HistoryRecords):
    """What would stand in ZooKeeper; it may be out of reach."""

    def __init__(self) -> None:
        self.bundles: dict[str, BundleData] = {}
        self.brokers: dict[str, TimeAverageBrokerData] = {}
        self.is_cut_off = False

    async def read_bundles(self) -> dict[str, BundleData]:
        if self.is_cut_off:
            raise ConnectionLost
        return dict(self.bundles)

    async def write(
        self,
        bundles: Mapping[str, BundleData | None],
        brokers: Mapping[str, TimeAverageBrokerData],
        *,
        is_allowed: Callable[[], bool],
    ) -> None:
        assert is_allowed()
        self.bundles.update({name: each for name, each in bundles.items() if each is not None})
        self.brokers = dict(brokers)


class Leader:
    """A load manager on broker ``a`` of two, and what surrounds it."""

    def __init__(self, config: LoadManagerConfig, **bundles: dict[str, BundleStats]) -> None:
        self.clock = SimulatedClock()
        self.mover = NotedMover()
        self.leads = True
        self.bundles_of_namespace = 4
        self.loads = {
            broker_id: LocalBrokerData(
                web_service_url=f"http://{broker_id}", bundles=tuple(each), last_stats=each
            )
            for broker_id, each in bundles.items()
        }
        self.is_cut_off = False
        self.records = KeptRecords()
        self.manager = LoadManager(
            self.clock,
            config,
            is_leader=lambda: self.leads,
            view_brokers=self._view,
            mover=self.mover,
            count_bundles=self._count,
            records=self.records,
        )

    async def _view(self) -> BrokersView:
        if self.is_cut_off:
            raise ConnectionLost
        return BrokersView(self.loads, "a")

    async def _count(self, namespace: NamespaceName) -> int:
        assert str(namespace) == "t/n"
        return self.bundles_of_namespace


def unequal(config: LoadManagerConfig | None = None) -> Leader:
    return Leader(
        config or LoadManagerConfig(),
        a={HOT: stats(5000), COLD: stats(5500)},
        b={THIRD: stats(100)},
    )


async def test_the_leader_has_a_hot_bundle_moved_within_two_intervals() -> None:
    leader = unequal()
    async with leader.manager:
        await leader.manager.shed()
        assert leader.mover.requests == []
        await leader.manager.shed()
    assert leader.mover.requests == [("http://a", HOT, "b")]
    assert leader.manager.counts.moves == {"a": 1}


async def test_lookups_of_a_bundle_that_is_being_moved_lead_to_its_destination() -> None:
    leader = unequal()
    for _ in range(2):
        await leader.manager.shed()
    assert leader.manager.placement.choose(bundle_named(HOT), leader.loads) == "b"


async def test_an_owner_that_serves_only_with_tls_is_asked_there() -> None:
    leader = unequal()
    for broker_id, each in leader.loads.items():
        leader.loads[broker_id] = replace(
            each, web_service_url=None, web_service_url_tls=f"https://{broker_id}"
        )
    for _ in range(2):
        await leader.manager.shed()
    assert leader.mover.requests == [("https://a", HOT, "b")]


async def test_a_follower_moves_and_splits_nothing() -> None:
    leader = unequal(LoadManagerConfig(load_balancer_bundle_rate_max=1))
    leader.leads = False
    for _ in range(3):
        await leader.manager.shed()
        await leader.manager.split()
    leader.leads = True
    await leader.manager.shed()
    assert leader.mover.requests == []  # found unequal once so far


async def test_nothing_is_moved_while_zookeeper_is_away() -> None:
    leader = unequal()
    await leader.manager.shed()
    leader.is_cut_off = True
    for _ in range(3):
        await leader.manager.shed()
    assert leader.mover.requests == []


async def test_a_move_that_failed_is_not_repeated_at_once(caplog: pytest.LogCaptureFixture) -> None:
    leader = unequal()
    leader.mover.refuses = True
    for _ in range(2):
        await leader.manager.shed()
    assert leader.mover.requests == [("http://a", HOT, "b")]
    assert "bundle not moved by load" in caplog.text
    assert leader.manager.load.brokers["a"].bundles.keys() == {HOT, COLD}
    assert leader.manager.counts.moves == {}


async def test_periodic_work_runs_by_the_settings() -> None:
    leader = unequal(LoadManagerConfig(load_balancer_shedding_interval_s=5))
    async with leader.manager:
        assert leader.mover.requests == []
        await asyncio.sleep(11)
    assert leader.mover.requests == [("http://a", HOT, "b")]


@pytest.mark.parametrize(
    ("large", "reason"),
    [
        (stats(0, topics=1001), "topics"),
        (stats(0, topics=2, sessions=1001), "sessions"),
        (stats(30_001, topics=2), "msgRate"),
        (BundleStats(topics=2, msg_throughput_out=100 * 1024 * 1024 + 1), "bandwidth"),
    ],
)
async def test_a_bundle_that_is_too_large_is_split_once(large: BundleStats, reason: str) -> None:
    leader = Leader(LoadManagerConfig(), a={HOT: large, COLD: stats(10)}, b={})
    for _ in range(2):
        await leader.manager.split()
    assert leader.mover.requests == [("http://a", HOT, "unload=True")]
    assert leader.manager.counts.splits == {reason: 1}
    leader.clock.advance(SPLIT_PAUSE_S + 1)  # it is still reported: the split did not happen
    await leader.manager.split()
    assert len(leader.mover.requests) == 2


async def test_a_bundle_of_one_topic_is_not_split() -> None:
    leader = Leader(LoadManagerConfig(), a={HOT: stats(90_000, topics=1)}, b={})
    await leader.manager.split()
    assert leader.mover.requests == []


async def test_a_namespace_with_enough_bundles_has_none_split() -> None:
    leader = Leader(LoadManagerConfig(), a={HOT: stats(0, topics=1001)}, b={})
    leader.bundles_of_namespace = 128
    await leader.manager.split()
    assert leader.mover.requests == []


async def test_no_more_bundles_are_split_at_a_time_than_the_settings_allow() -> None:
    many = {f"t/n/0x{n:08x}_0x{n + 1:08x}": stats(0, topics=1001) for n in range(20)}
    leader = Leader(LoadManagerConfig(), a=many)
    await leader.manager.split()
    assert len(leader.mover.requests) == 10
    await leader.manager.split()
    assert len({bundle for _, bundle, _ in leader.mover.requests}) == 20


async def test_a_split_that_is_refused_is_said_and_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    large = {HOT: stats(0, topics=1001), COLD: stats(0, topics=1001)}
    leader = Leader(LoadManagerConfig(), a=large)
    leader.mover.refuses = True
    await leader.manager.split()
    assert len(leader.mover.requests) == 2
    assert "bundle not split by load" in caplog.text
    assert leader.manager.counts.splits == {}


async def test_a_new_leader_knows_what_bundles_cost_that_no_broker_owns_any_more() -> None:
    former = unequal()
    await former.manager.take_over()
    await former.manager.write_history()
    assert former.records.brokers.keys() == {"a", "b"}
    heir = Leader(LoadManagerConfig(), b={THIRD: stats(100)}, c={})
    heir.records.bundles = former.records.bundles
    heir.leads = False
    async with heir.manager:
        await asyncio.sleep(5)
        heir.leads = True
        await asyncio.sleep(2)
    placement = heir.manager.placement
    assert placement.choose(bundle_named(HOT), heir.loads) == "c"
    # Unknown, it would cost 100, and broker "c" would still have the least to do.
    assert heir.manager.load.brokers["c"].cost == pytest.approx(5002)
    assert placement.choose(bundle_named(COLD), heir.loads) == "b"


async def test_averages_that_were_not_read_are_not_overwritten() -> None:
    leader = unequal()
    leader.records.is_cut_off = True
    await leader.manager.take_over()
    await leader.manager.write_history()
    assert leader.records.bundles == {}
    leader.records.is_cut_off = False
    await leader.manager.take_over()
    await leader.manager.write_history()
    assert leader.records.bundles.keys() == {HOT, COLD, THIRD}


async def test_each_term_begins_with_what_the_leader_before_wrote() -> None:
    leader = unequal()
    await leader.manager.take_over()
    leader.leads = False
    await leader.manager.take_over()
    leader.records.bundles["t/n/0x30000000_0x40000000"] = BundleData(topics=500)
    leader.leads = True
    await leader.manager.take_over()
    leader.manager.load.renew(leader.loads, 0.0)
    leader.manager.load.expect("t/n/0x30000000_0x40000000", "b", 0.0)
    assert leader.manager.load.brokers["b"].cost == pytest.approx(603)
