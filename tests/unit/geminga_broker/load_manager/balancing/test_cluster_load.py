"""100 brokers with 100,000 bundles: near balance within minutes, and at rest after it.

The decision's time is CPU time of this process; the limit leaves room for a busy machine.
"""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest
from tests.unit.geminga_broker.load_manager.modelled_cluster import ModelledCluster, report, stats

from geminga_broker.load_manager.config import LoadManagerConfig

BROKERS = [f"broker-{number:03d}:8080" for number in range(100)]
BUNDLES = [
    f"t/n{number}/0x{part << 31:08x}_0x{(part + 1 << 31) - part:08x}"
    for number in range(50_000)
    for part in (0, 1)
]
DECISION_S_MAX = 0.1


def draw_rate(chance: random.Random) -> float:
    """Most bundles do little, a few very much: half of all messages are those of 2 % of them."""
    return min(5000.0, chance.paretovariate(1.1) * 20)


@pytest.fixture(scope="module")
def chance() -> random.Random:
    """The same draws every time."""
    return random.Random(15)


@pytest.fixture(scope="module")
def cluster(chance: random.Random) -> ModelledCluster:
    """All bundles are placed while nothing is known of them, as after a restart of everything."""
    demand = {name: stats(draw_rate(chance)) for name in BUNDLES}
    cluster = ModelledCluster(BROKERS, demand, LoadManagerConfig())
    cluster.place_all()
    return cluster


def test_unknown_bundles_are_spread_evenly(cluster: ModelledCluster) -> None:
    assert set(Counter(cluster.owners.values()).values()) == {1000}


def test_an_unequal_cluster_is_balanced_by_few_moves_and_then_moves_nothing(
    cluster: ModelledCluster,
) -> None:
    moves = cluster.rebalance(8)
    assert cluster.imbalance() <= 0.1
    assert len(moves) <= 200
    assert max(Counter(move.bundle for move in moves).values()) == 1  # no ping-pong
    assert cluster.rebalance(35) == []  # beyond the grace period


def test_a_broker_that_joins_gets_its_share_and_then_all_rests(cluster: ModelledCluster) -> None:
    cluster.reports["new:8080"] = report({})
    moves = cluster.rebalance(8)
    assert {move.destination for move in moves} == {"new:8080"}
    assert cluster.imbalance() <= 0.1
    assert cluster.rebalance(6) == []


def test_a_dead_brokers_bundles_go_where_there_is_least_to_do(cluster: ModelledCluster) -> None:
    del cluster.reports[BROKERS[0]]
    had = Counter(cluster.owners.values())
    cluster.place_all()
    gained = Counter(cluster.owners.values()) - had
    assert max(gained.values()) <= 100
    assert cluster.imbalance() <= 0.1
    assert cluster.rebalance(6) == []


def test_other_demand_brings_other_moves_each_bundle_once(
    cluster: ModelledCluster, chance: random.Random
) -> None:
    for name in BUNDLES:
        cluster.demand[name] = stats(draw_rate(chance))
    moves = cluster.rebalance(10)
    assert cluster.imbalance() <= 0.1
    assert len(moves) <= 300
    assert max(Counter(move.bundle for move in moves).values()) == 1
    assert cluster.rebalance(6) == []


def test_a_decision_takes_less_than_a_tenth_of_a_second(
    cluster: ModelledCluster, chance: random.Random
) -> None:
    for name in BUNDLES:
        cluster.demand[name] = stats(draw_rate(chance))
    took_s: list[float] = []
    for _ in range(3):
        cluster.clock.advance(60)
        cluster.write_reports()
        cluster.load.renew(cluster.reports, cluster.clock.monotonic())
        began_s = time.process_time()
        cluster.shed()
        took_s.append(time.process_time() - began_s)
    assert max(took_s) < DECISION_S_MAX
