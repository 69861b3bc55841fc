"""Where a bundle goes that no broker owns: to the broker with the least load. Pure.

A bundle goes back to the broker that had it last unless another one has clearly less load
(hysteresis): its entries are in that broker's cache, its clients are connected there. A choice
holds until the broker has had time to acquire the bundle, so that clients that repeat their lookup
meanwhile are not redirected back and forth.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from geminga_broker.errors import ServiceNotReady
from geminga_broker.load_manager.balancing.cluster_load import BrokerLoad, ClusterLoad
from geminga_broker.load_manager.config import LoadManagerConfig
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.assignment.placement import Loads
from geminga_runtime.clock import Clock

# How much more than the least loaded broker the last one may have, as a share of the average.
TOLERATED_SHARE = 0.1


@dataclass(slots=True, eq=False)
class LeastLoaded:
    """Places bundles by ``load``, in which it notes what it has chosen."""

    load: ClusterLoad
    config: LoadManagerConfig
    clock: Clock
    # How many bundles each broker was assigned, for the metrics.
    assigned: Counter[str] = field(default_factory=Counter[str], init=False)

    def choose(self, bundle: Bundle, loads: Loads) -> str:
        """The leader's ``Placement``.

        Raises ``ServiceNotReady`` where all brokers have been assigned many bundles that they have
        not reported yet: after a restart of all, clients repeat their lookups until they have.
        """
        # One time for the whole choice: what expires is judged by the same instant.
        load, name, now_s = self.load, str(bundle), self.clock.monotonic()
        # First: the choice must not fall on a broker that is gone since the last renewal.
        load.renew(loads, now_s)
        # Repeated lookups get the same answer, and count the bundle once.
        assigned = load.destination(name, now_s)
        if assigned is not None:
            return assigned
        chosen = least_loaded(name, load, self.config)
        # Noted before the owner-to-be is asked: of many bundles that are placed in a row, each sees
        # the ones before it as load.
        load.expect(name, chosen, now_s)
        self.assigned[chosen] += 1
        return chosen


def least_loaded(bundle: str, load: ClusterLoad, config: LoadManagerConfig) -> str:
    """The id of the broker for ``bundle``. Raises ``ServiceNotReady`` where no broker takes it."""
    # A broker that lags behind is not given more: it has to acquire these before its report shows
    # what they cost.
    arrivals_max = config.load_balancer_arrivals_max
    # Full brokers are last in this order, but are chosen where all are full. Tuples compare from
    # the left: not full first, then the lower cost, then the id, which makes the choice the same in
    # each run.
    ready = [
        (is_full(each, config), each.cost, broker_id)
        for broker_id, each in load.brokers.items()
        if len(each.arrivals) < arrivals_max
    ]
    if not ready:
        raise ServiceNotReady("the brokers still acquire the bundles that they were assigned")
    is_least_full, least_cost, least_id = min(ready)
    # None for a bundle that was never reported, "" for one known from stored averages: no broker
    # has that id.
    last_id = load.last_owner(bundle)
    # The last owner, if it is as good as the best but for a tolerated difference. A broker that is
    # full while another is not gets no bundle back.
    for is_last_full, last_cost, broker_id in ready:
        if broker_id == last_id and is_last_full == is_least_full:
            more = last_cost - least_cost
            return broker_id if more <= TOLERATED_SHARE * load.mean_cost else least_id
    return least_id


def is_full(broker: BrokerLoad, config: LoadManagerConfig) -> bool:
    """Whether a broker should get no further bundles while others can take them."""
    # Each arrival counts as one topic at least, as no report has said how many it has.
    return (
        broker.usage * 100 >= config.load_balancer_overloaded_percent
        or broker.report.num_topics + len(broker.arrivals) >= config.load_balancer_broker_topics_max
    )
