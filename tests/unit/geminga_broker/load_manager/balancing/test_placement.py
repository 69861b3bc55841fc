"""A bundle goes to the broker with the least to do; the answer is the same until it is there."""

from __future__ import annotations

import pytest
from tests.unit.geminga_broker.load_manager.modelled_cluster import bundle_named, report, stats

from geminga_broker.errors import ServiceNotReady
from geminga_broker.load_manager.balancing.cluster_load import ACQUIRED_S, EXPECTED_S, ClusterLoad
from geminga_broker.load_manager.balancing.placement import LeastLoaded
from geminga_broker.load_manager.config import LoadManagerConfig
from geminga_protocol.records.cluster.brokers import LocalBrokerData, ResourceUsage
from geminga_simulation.event_loop.clock import SimulatedClock

ONE = "t/n/0x00000000_0x40000000"
TWO = "t/n/0x40000000_0x80000000"
THREE = "t/n/0x80000000_0xffffffff"

Reports = dict[str, LocalBrokerData]


class Chooser:
    """A placement and its clock."""

    def __init__(self, **changes: float) -> None:
        self.clock = SimulatedClock()
        self.load = ClusterLoad()
        config = LoadManagerConfig(**changes)  # type: ignore[arg-type]  # any setting
        self.placement = LeastLoaded(self.load, config, self.clock)

    def __call__(self, name: str, reports: Reports) -> str:
        return self.placement.choose(bundle_named(name), reports)


def test_a_bundle_goes_to_the_broker_with_the_least_to_do() -> None:
    reports = {"busy": report({ONE: stats(5000)}), "idle": report({TWO: stats(10)})}
    assert Chooser()(THREE, reports) == "idle"


def test_bytes_count_too() -> None:
    slow = stats(100)
    heavy = type(slow)(msg_rate_in=10, msg_throughput_in=10_000_000, topics=1)
    assert Chooser()(THREE, {"a": report({ONE: heavy}), "b": report({TWO: slow})}) == "b"


def test_bundles_that_are_placed_between_two_reports_are_spread() -> None:
    choose = Chooser()
    reports = {each: report({}) for each in ("a", "b", "c")}
    names = [f"t/n{number}/0x00000000_0xffffffff" for number in range(30)]
    chosen = [choose(name, reports) for name in names]
    assert {broker_id: chosen.count(broker_id) for broker_id in reports} == {
        "a": 10,
        "b": 10,
        "c": 10,
    }


def test_a_bundle_that_is_looked_up_again_is_sent_to_the_same_broker() -> None:
    choose = Chooser()
    reports = {"a": report({}), "b": report({})}
    first = choose(ONE, reports)
    choose(TWO, reports)
    assert [choose(ONE, reports) for _ in range(3)] == [first] * 3
    # The report that does not name the bundle yet is written anew: the answer stays.
    assert choose(ONE, {each: report({}) for each in reports}) == first


def test_a_bundle_goes_elsewhere_where_its_broker_died_before_it_acquired_it() -> None:
    choose = Chooser()
    reports = {"a": report({}), "b": report({})}
    first = choose(ONE, reports)
    del reports[first]
    assert choose(ONE, reports) == next(iter(reports))


def test_a_bundle_that_no_broker_acquired_is_chosen_anew() -> None:
    choose = Chooser()
    assert choose(ONE, {"a": report({}), "b": report({TWO: stats(300)})}) == "a"
    choose.clock.advance(ACQUIRED_S + 1)
    assert choose(ONE, {"a": report({THREE: stats(5000)}), "b": report({})}) == "b"


def test_a_bundle_comes_back_to_its_last_broker_unless_another_has_clearly_less_to_do() -> None:
    choose = Chooser()
    reports = {"a": report({ONE: stats(50), TWO: stats(1000)}), "b": report({THREE: stats(960)})}
    choose.load.renew(reports, 0.0)
    reports["a"] = report({TWO: stats(1000)})
    assert choose(ONE, reports) == "a"

    choose = Chooser()
    choose.load.renew({**reports, "a": report({ONE: stats(50), TWO: stats(1500)})}, 0.0)
    assert choose(ONE, {**reports, "a": report({TWO: stats(1500)})}) == "b"


def test_a_broker_that_uses_its_whole_cpu_gets_nothing_while_another_does_not() -> None:
    hot = LocalBrokerData(cpu=ResourceUsage(usage=90.0, limit=100.0))
    reports = {"hot": hot, "busy": report({TWO: stats(5000)})}
    assert Chooser()(ONE, reports) == "busy"
    reports["busy"] = LocalBrokerData(
        cpu=ResourceUsage(usage=95.0, limit=100.0), last_stats={TWO: stats(5000)}
    )
    assert Chooser()(ONE, reports) == "hot"


def test_a_broker_with_too_many_topics_gets_nothing_while_another_has_fewer() -> None:
    reports = {"full": LocalBrokerData(num_topics=50_000), "busy": report({TWO: stats(5000)})}
    assert Chooser()(ONE, reports) == "busy"


def test_after_a_restart_of_all_brokers_are_assigned_so_many_bundles_until_they_report() -> None:
    choose = Chooser(load_balancer_arrivals_max=2)
    reports = {"a": report({}), "b": report({})}
    names = [f"t/n{number}/0x00000000_0xffffffff" for number in range(5)]
    placed = {name: choose(name, reports) for name in names[:4]}
    with pytest.raises(ServiceNotReady, match="still acquire"):
        choose(names[4], reports)
    assert choose(names[0], reports) == placed[names[0]]
    taken = {name: stats(1) for name in names[:4] if placed[name] == "a"}
    assert choose(names[4], {**reports, "a": report(taken)}) == "a"


def test_bundles_that_never_came_are_given_up() -> None:
    choose = Chooser(load_balancer_arrivals_max=1)
    reports = {"a": report({})}
    choose(ONE, reports)
    choose.clock.advance(EXPECTED_S + 1)
    assert choose(TWO, reports) == "a"
    assert choose.load.brokers["a"].arrivals == {TWO}
