"""Bundles leave a broker that has much more to do than others, for one that is better off."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.geminga_broker.load_manager.modelled_cluster import (
    ModelledCluster,
    report,
    stats,
)

from geminga_broker.load_manager.balancing.cluster_load import EXPECTED_S, ClusterLoad
from geminga_broker.load_manager.balancing.shedding import Move, Shedder, plan_moves
from geminga_broker.load_manager.config import LoadManagerConfig
from geminga_protocol.records.cluster.brokers import BundleStats, LocalBrokerData, ResourceUsage

CONFIG = LoadManagerConfig()
HOT, COLD, THIRD, FOURTH = (f"t/n/0x{n}0000000_0x{n + 1}0000000" for n in range(4))


def planned(
    brokers: dict[str, dict[str, BundleStats]], config: LoadManagerConfig = CONFIG
) -> list[Move]:
    """The moves for brokers that have these bundles."""
    load = ClusterLoad()
    load.renew({broker_id: report(bundles) for broker_id, bundles in brokers.items()}, 0.0)
    return plan_moves(load, config)


def test_a_hot_bundle_leaves_a_broker_that_has_others_to_serve() -> None:
    brokers = {"a": {HOT: stats(9000), COLD: stats(6000)}, "b": {THIRD: stats(100)}}
    assert planned(brokers) == [Move(COLD, "a", "b")]
    brokers = {"a": {HOT: stats(5000), COLD: stats(5500)}, "b": {THIRD: stats(100)}}
    assert planned(brokers) == [Move(HOT, "a", "b")]


def test_a_bundle_that_is_all_its_broker_has_stays() -> None:
    assert planned({"a": {HOT: stats(20_000)}, "b": {}}) == []


def test_no_bundle_moves_where_the_target_would_have_more_to_do_than_the_source_keeps() -> None:
    assert planned({"a": {HOT: stats(10_000), COLD: stats(100)}, "b": {THIRD: stats(900)}}) == []


def test_loads_within_a_tenth_of_the_average_move_nothing() -> None:
    brokers = {
        "a": {HOT: stats(10_000), COLD: stats(900)},
        "b": {THIRD: stats(9_500), FOURTH: stats(9.0)},
    }
    assert planned(brokers) == []


def test_idle_bundles_are_not_moved_for_their_number() -> None:
    many = {f"t/n{number}/0x00000000_0xffffffff": stats(0) for number in range(100)}
    assert planned({"a": many, "b": {}}) == []


def test_clients_and_topics_count_where_nothing_is_published() -> None:
    many = {
        f"t/n{number}/0x00000000_0xffffffff": stats(0, topics=200, sessions=300)
        for number in range(10)
    }
    assert len(planned({"a": many, "b": {}})) == 5


def test_a_new_broker_is_given_bundles_of_all_others() -> None:
    brokers = {
        f"old-{broker}": {f"t/n{broker}/0x{n:08x}_0x{n + 1:08x}": stats(100) for n in range(100)}
        for broker in range(4)
    }
    moves = planned({**brokers, "new": {}})
    assert {move.destination for move in moves} == {"new"}
    given = [move.source for move in moves]
    assert all(15 <= given.count(source) <= 20 for source in brokers)


def test_a_broker_that_uses_its_whole_cpu_is_given_nothing() -> None:
    load = ClusterLoad()
    full = LocalBrokerData(cpu=ResourceUsage(usage=90.0, limit=100.0))
    busy = report({HOT: stats(9000), COLD: stats(6000)})
    load.renew({"a": busy, "b": full}, 0.0)
    assert plan_moves(load, CONFIG) == []


def test_no_more_bundles_are_moved_than_the_settings_allow() -> None:
    many = {f"t/n/0x{n:08x}_0x{n + 1:08x}": stats(100) for n in range(100)}
    brokers = {"a": many, "b": {}}
    assert len(planned(brokers)) == 46  # then they differ by less than what is worth a move
    assert len(planned(brokers, LoadManagerConfig(load_balancer_shedding_bundles_max=7))) == 7
    assert planned(brokers, LoadManagerConfig(load_balancer_shedding_rate_min=20_000)) == []


def test_bundles_come_from_no_more_brokers_than_the_settings_allow() -> None:
    brokers = {
        f"old-{broker}": {f"t/n{broker}/0x{n:08x}_0x{n + 1:08x}": stats(100) for n in range(100)}
        for broker in range(4)
    }
    config = LoadManagerConfig(load_balancer_shedding_brokers_max=2)
    assert len({move.source for move in planned({**brokers, "new": {}}, config)}) == 2


def test_excluded_namespaces_and_brokers_own_ones_stay() -> None:
    bundles = {
        "fixed/n/0x00000000_0xffffffff": stats(5000),
        "pulsar/127.0.0.1:8080/0x00000000_0xffffffff": stats(5000),
        HOT: stats(4000),
    }
    config = LoadManagerConfig(load_balancer_shedding_excluded_namespaces=("fixed/n",))
    assert planned({"a": bundles, "b": {}}, config) == [Move(HOT, "a", "b")]


def test_what_lasts_one_interval_moves_nothing() -> None:
    load = ClusterLoad()
    shedder = Shedder(load, CONFIG)
    unequal = {"a": report({HOT: stats(5000), COLD: stats(5500)}), "b": report({})}
    equal = {"a": report({HOT: stats(50), COLD: stats(50)}), "b": report({})}
    decided: list[list[Move]] = []
    for now_s, reports in enumerate((unequal, equal, unequal, unequal)):
        load.renew(reports, now_s)
        decided.append(shedder.decide(now_s))
    assert decided == [[], [], [], [Move(HOT, "a", "b")]]


def test_a_hot_bundle_is_moved_once_though_reports_are_late() -> None:
    demand = {HOT: stats(5000), COLD: stats(5500), THIRD: stats(100)}
    cluster = ModelledCluster(["a", "b"], demand, CONFIG)
    cluster.owners = {HOT: "a", COLD: "a", THIRD: "b"}
    assert cluster.rebalance(2) == [Move(HOT, "a", "b")]
    for number in range(1, 4):  # both brokers write anew what was before the move
        cluster.clock.advance(EXPECTED_S / 4)
        for broker_id, stale in cluster.reports.items():
            cluster.reports[broker_id] = replace(stale, last_update=number)
        assert cluster.shed() == []
        assert HOT in cluster.load.brokers["b"].bundles
        assert HOT not in cluster.load.brokers["a"].bundles
    assert cluster.rebalance(5) == []


def test_a_bundle_that_was_moved_stays_for_the_grace_period() -> None:
    demand = {HOT: stats(5000), COLD: stats(5500), THIRD: stats(50), FOURTH: stats(50)}
    cluster = ModelledCluster(["a", "b"], demand, CONFIG)
    cluster.owners = {HOT: "a", COLD: "a", THIRD: "b", FOURTH: "b"}
    assert cluster.rebalance(2) == [Move(HOT, "a", "b")]
    demand.update({COLD: stats(100), THIRD: stats(2600), FOURTH: stats(2600)})
    assert cluster.rebalance(10) == [Move(FOURTH, "b", "a")]  # HOT would be nearer to half


def test_a_move_that_failed_counts_where_the_bundle_is() -> None:
    load = ClusterLoad()
    load.renew({"a": report({HOT: stats(5000), COLD: stats(5500)}), "b": report({})}, 0.0)
    before = {broker_id: each.cost for broker_id, each in load.brokers.items()}
    load.expect(HOT, "b", 0.0)
    assert load.brokers["b"].cost > 5000
    load.cancel(HOT)
    assert {broker_id: each.cost for broker_id, each in load.brokers.items()} == before
