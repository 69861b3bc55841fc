"""Which bundles are moved from brokers with much load, and where to. Pure.

The destination is chosen first: a bundle is moved only to a broker that has less load with it than
its present one has now. So each move makes the larger of the two loads smaller, a bundle that is
the whole load of its broker stays where it is, and no move is undone by the next one.

Unequal loads have to be found several times in a row, and a bundle that was moved stays for a
while: a peak of a minute moves nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from geminga_broker.load_manager.balancing.cluster_load import ClusterLoad
from geminga_broker.load_manager.balancing.placement import is_full
from geminga_broker.load_manager.config import LoadManagerConfig

# Moving half of a difference makes two brokers equal; half of that is worth the interruption.
WORTHWHILE_SHARE = 0.25


class Move(NamedTuple):
    """``bundle`` goes from one broker to another, both by their ids."""

    bundle: str
    source: str
    destination: str


@dataclass(slots=True, eq=False)
class Shedder:
    """Decides which bundles to move, once a shedding interval."""

    # The leader's view, which ``decide`` reads and does not change: ``LoadManager._move`` counts
    # each move when it is made.
    load: ClusterLoad
    config: LoadManagerConfig
    # How many times in a row some moves were called for. Reset when loads are equal once, and when
    # moves are made: the next moves need the hits anew.
    _hits: int = field(default=0, init=False)

    def decide(self, now_s: float) -> list[Move]:
        """The moves to be made now, of brokers whose loads were unequal often enough."""
        # A bundle that was moved lately stays where it is, whatever the loads say. Also where its
        # move failed: what could not be unloaded now is not tried in every round.
        moved = self.load.moved_since(now_s - self.config.load_balancer_shedding_grace_s)
        moves = plan_moves(self.load, self.config, fixed=moved)
        # Once is no reason to move anything: loads also differ for a moment.
        self._hits = self._hits + 1 if moves else 0
        if self._hits < self.config.load_balancer_shedding_hits:
            return []
        self._hits = 0
        return moves


def plan_moves(
    load: ClusterLoad, config: LoadManagerConfig, *, fixed: Collection[str] = ()
) -> list[Move]:
    """Moves after which no broker's load is further from the average than it may be, as far as
    bundles can bring that about. ``fixed`` bundles stay where they are.

    Where some broker is too far from the average, all are brought half as near as they have to be:
    the next small change then moves nothing.
    """
    # A single broker has no other to give to.
    if len(load.brokers) < 2:
        return []
    share = config.load_balancer_shedding_percent / 100
    # The threshold is ``share``; the aim is half of it, so that the plan does not stop at the edge.
    plan = _MovePlan(load, config, fixed, share / 2)
    return plan.moves() if plan.is_beyond(share) else []


class _MovePlan:
    """The loads as they will be after the moves so far."""

    def __init__(
        self, load: ClusterLoad, config: LoadManagerConfig, fixed: Collection[str], share: float
    ) -> None:
        self._load = load
        self._config = config
        self._fixed = fixed
        # A copy: planning must not change the view, as ``decide`` may discard the plan.
        self._costs = {broker_id: each.cost for broker_id, each in load.brokers.items()}
        # The moves leave the mean as it is. Loads between the two bounds are equal enough.
        self._mean = load.mean_cost
        self._high, self._low = self._mean * (1 + share), self._mean * (1 - share)
        # The bundles that may be moved, each with its cost in front, by ascending cost: of the
        # brokers that bundles were taken from so far, which are a limited number.
        self._movable: dict[str, list[tuple[float, str]]] = {}
        excluded = config.load_balancer_shedding_excluded_namespaces
        self._excluded = tuple(f"{namespace}/" for namespace in excluded)

    def is_beyond(self, share: float) -> bool:
        """Whether some broker's load is further from the average, and the difference to another's
        is worth a move."""
        most, least = max(self._costs.values()), min(self._costs.values())
        # Below so many messages a second the imbalance costs less than the reconnecting clients
        # would.
        worth = self._config.load_balancer_shedding_rate_min
        outside = most > self._mean * (1 + share) or least < self._mean * (1 - share)
        return outside and most - least >= worth

    def moves(self) -> list[Move]:
        """Moves from the broker with the most load to the one with the least, until all are near
        enough to the mean."""
        costs, config = self._costs, self._config
        # Brokers that have a bundle to give, and brokers that may be given one. Each turn of the
        # loop makes a move or takes one source away, so it ends.
        sources = set(costs)
        targets = {
            broker_id
            for broker_id, each in self._load.brokers.items()
            if not is_full(each, config) and len(each.arrivals) < config.load_balancer_arrivals_max
        }
        moves: list[Move] = []
        moved: defaultdict[str, float] = defaultdict(float)
        while sources and targets and len(moves) < config.load_balancer_shedding_bundles_max:
            # The ids make the choice the same whatever the order of the sets.
            source = max(sources, key=lambda broker_id: (costs[broker_id], broker_id))
            target = min(targets, key=lambda broker_id: (costs[broker_id], broker_id))
            if costs[source] <= self._high and costs[target] >= self._low:
                break
            if costs[source] - costs[target] < config.load_balancer_shedding_rate_min:
                break
            taken = self._take(source, target)
            if taken is None:
                # The next source may have a bundle that fits, though its load is smaller.
                sources.discard(source)
                continue
            cost, bundle = taken
            costs[source] -= cost
            costs[target] += cost
            # The costs above are the estimate of what the next reports will show.
            moves.append(Move(bundle, source, target))
            moved[source] += cost
            moved[target] += cost
        # Two brokers that are brought together by less are as unequal as before: where the load of
        # one is in a bundle that cannot be moved, the small ones around it stay too.
        enough = config.load_balancer_shedding_rate_min * WORTHWHILE_SHARE
        return [
            move for move in moves if max(moved[move.source], moved[move.destination]) >= enough
        ]

    def _take(self, source: str, target: str) -> tuple[float, str] | None:
        """Take the largest bundle that leaves both brokers within the bounds; else, of a broker
        above the upper bound, the smallest one. Either costs at most half the difference: the
        target never gets more load than the source keeps."""
        movable = self._movable_of(source)
        if not movable:
            return None
        # A bundle that costs half the gap makes both equal. One that costs more would make the
        # target the larger of the two.
        half_gap = (self._costs[source] - self._costs[target]) / 2
        # The most that brings the target no further than the upper bound, nor the source below the
        # lower one.
        fits = min(self._high - self._costs[target], self._costs[source] - self._low)
        # ``movable`` is sorted by cost: the last bundle that costs no more than this.
        index = bisect_right(movable, min(fits, half_gap), key=itemgetter(0)) - 1
        if index >= 0:
            return movable.pop(index)
        # Nothing fits between the bounds: a source that is too high is better off a little less
        # high.
        smallest_cost, _ = movable[0]
        is_too_much = self._costs[source] > self._high
        return movable.pop(0) if is_too_much and smallest_cost <= half_gap else None

    def _movable_of(self, source: str) -> list[tuple[float, str]] | None:
        """The movable bundles of a broker; None where enough other brokers give bundles already."""
        known = self._movable.get(source)
        sources_max = self._config.load_balancer_shedding_brokers_max
        # Bounds how many brokers lose clients in one round. Sources come in the order of their
        # load, so those with the most come first.
        if known is not None or len(self._movable) >= sources_max:
            return known
        broker = self._load.brokers[source]
        # Kept, and taken from by ``_take``: a bundle is in one move of a plan at most.
        movable = self._movable[source] = sorted(
            (cost, bundle)
            for bundle, cost in broker.bundles.items()
            if bundle not in self._fixed
            # What has not arrived cannot be unloaded yet.
            and bundle not in broker.arrivals
            and not bundle.startswith(self._excluded)
            # ``place`` sends it back to its broker at once, whatever the load.
            and not is_brokers_own(bundle)
        )
        return movable


def is_brokers_own(bundle: str) -> bool:
    """Whether it is of a broker's own namespace (``pulsar/host:port/0x…``), which never moves."""
    # By form, as ``broker_of_namespace``, on the name of a bundle in a report.
    tenant, _, rest = bundle.partition("/")
    return tenant == "pulsar" and ":" in rest.partition("/")[0]
