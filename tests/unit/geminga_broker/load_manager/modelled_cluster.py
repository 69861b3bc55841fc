"""A cluster as the leader sees it: brokers that do what they are told and report it later."""

from __future__ import annotations

from collections.abc import Iterable

from geminga_broker.load_manager.balancing.cluster_load import ClusterLoad, cost_of
from geminga_broker.load_manager.balancing.placement import LeastLoaded
from geminga_broker.load_manager.balancing.shedding import Move, Shedder
from geminga_broker.load_manager.config import LoadManagerConfig
from geminga_broker.ownership.assignment.bundles import Bundle, parse_boundary
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.brokers import BundleStats, LocalBrokerData
from geminga_simulation.event_loop.clock import SimulatedClock


def stats(rate: float, *, topics: int = 1, sessions: int = 0) -> BundleStats:
    """A bundle of one topic without bytes, whose cost is little more than ``rate``."""
    return BundleStats(msg_rate_in=rate, topics=topics, producer_count=sessions)


def report(bundles: dict[str, BundleStats]) -> LocalBrokerData:
    """What a broker with those bundles writes."""
    return LocalBrokerData(
        bundles=tuple(bundles),
        num_bundles=len(bundles),
        num_topics=sum(each.topics for each in bundles.values()),
        last_stats=bundles,
    )


def bundle_named(name: str) -> Bundle:
    """``t/n/0x…_0x…`` as the bundle it is."""
    namespace, _, span = name.rpartition("/")
    lower, _, upper = span.partition("_")
    return Bundle(NamespaceName.parse(namespace), parse_boundary(lower), parse_boundary(upper))


class ModelledCluster:
    """``demand`` is what each bundle has to do; ``owners`` which broker has it."""

    def __init__(
        self, brokers: Iterable[str], demand: dict[str, BundleStats], config: LoadManagerConfig
    ) -> None:
        self.clock = SimulatedClock()
        self.demand = demand
        self.owners: dict[str, str] = {}
        self.load = ClusterLoad()
        self.placement = LeastLoaded(self.load, config, self.clock)
        self.shedder = Shedder(self.load, config)
        self.reports: dict[str, LocalBrokerData] = {each: report({}) for each in brokers}

    def place_all(self) -> None:
        """Every bundle without an owner is looked up, and acquired where it is placed."""
        for name in self.demand:
            if self.owners.get(name) not in self.reports:
                self.owners[name] = self.placement.choose(bundle_named(name), self.reports)

    def write_reports(self) -> None:
        """All brokers report what they have by now; one that finds no change writes nothing."""
        bundles: dict[str, dict[str, BundleStats]] = {each: {} for each in self.reports}
        for name, owner in self.owners.items():
            bundles[owner][name] = self.demand[name]
        for broker_id, written in self.reports.items():
            if written.last_stats != bundles[broker_id]:
                self.reports[broker_id] = report(bundles[broker_id])

    def shed(self) -> list[Move]:
        """One decision, which the brokers carry out at once."""
        now_s = self.clock.monotonic()
        self.load.renew(self.reports, now_s)
        moves = self.shedder.decide(now_s)
        for move in moves:
            assert self.owners[move.bundle] == move.source
            self.load.expect(move.bundle, move.destination, now_s)
            self.load.note_moved(move.bundle, now_s)
            self.owners[move.bundle] = move.destination
        return moves

    def rebalance(self, passes: int, *, period_s: float = 60.0) -> list[Move]:
        """So many shedding intervals, in each of which all brokers report."""
        moves: list[Move] = []
        for _ in range(passes):
            self.clock.advance(period_s)
            self.write_reports()
            moves += self.shed()
        return moves

    def imbalance(self) -> float:
        """How far the true load of a broker is from the average, at most, as a share of it."""
        costs = dict.fromkeys(self.reports, 0.0)
        for name, owner in self.owners.items():
            costs[owner] += cost_of(self.demand[name])
        mean = sum(costs.values()) / len(costs)
        return max(abs(each - mean) for each in costs.values()) / mean
