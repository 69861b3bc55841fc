"""The load of each broker, as the leader sees it: the brokers' reports, and what the leader has
decided since they were written. Pure.

A load is a *cost* in messages a second: a KiB of payload a second counts as one more message, and
so do a topic and a client, which cost memory, lookups and periodic work while they are idle. One
sum lets all bundles be compared. The weights are rough: it is enough for balancing if brokers with
equal sums are about equally busy.

A report is as old as the broker's last write, and the rates in it are averages over a minute. A
bundle that was just assigned or moved therefore counts, for ``EXPECTED_S``, where it was sent, with
the cost it had before: a leader that believed old reports would send more and more bundles to the
broker that looks idle, and move them back when that changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from geminga_broker.ownership.addresses.address import LookupReason, Owner
from geminga_broker.ownership.assignment.load_report import used_share
from geminga_broker.ownership.assignment.placement import candidate
from geminga_protocol.records.cluster.brokers import BundleStats, LocalBrokerData

# Bundles that are not owned keep their last cost: those of 200,000 take 40 MB.
REMEMBERED_MAX = 200_000
# Two periods of rates and a report: then the new owner's report has the bundle's own cost.
EXPECTED_S = 150.0
# How long a choice holds. A client follows its redirects within a second, or repeats its lookup.
ACQUIRED_S = 10.0
# The cost of a bundle that was never seen: upstream assumes 50 messages a second in, and 50 out.
UNKNOWN_COST = 100.0
_UNKNOWN = (UNKNOWN_COST, "")
# The least cost of an owned bundle.
IDLE_COST = 1.0
BYTES_PER_MESSAGE = 1024.0


def cost_of(stats: BundleStats) -> float:
    """A bundle's cost, in messages a second."""
    # Never 0: of two idle brokers, the one with fewer bundles gets the next.
    return (
        IDLE_COST
        + stats.msg_rate_in
        + stats.msg_rate_out
        + (stats.msg_throughput_in + stats.msg_throughput_out) / BYTES_PER_MESSAGE
        + stats.topics
        + stats.producer_count
        + stats.consumer_count
    )


@dataclass(frozen=True, slots=True)
class ExpectedBundle:
    """A bundle that was assigned to a broker and counts there, whatever the reports say."""

    # While no report of the new owner names it.
    cost: float
    # The least cost once one does: that of before, or 0 where that is not known. The new owner's
    # first rates are averages over a time in which it did not have the bundle. By ``expect``: the
    # cost that the reports or the leader before gave it.
    cost_min: float
    until_s: float


@dataclass(slots=True)
class BrokerLoad:
    """The load of one broker."""

    # The object that ``LivingBrokers`` keeps: it is the same one until the broker writes again, by
    # which ``ClusterLoad.take`` knows what is new.
    report: LocalBrokerData
    # The costs of the bundles that it has, or is about to have. Invariant: ``cost`` is the sum of
    # its values, up to rounding; ``_project`` adds them up anew.
    bundles: dict[str, float] = field(default_factory=dict[str, float])
    # Those of them that its report does not name yet.
    arrivals: set[str] = field(default_factory=set[str])
    # Those that cost less by its report than before they came: they count with ``cost_min``.
    settling: set[str] = field(default_factory=set[str])
    # The sum of the costs.
    cost: float = 0.0
    # The share of its CPU or its bandwidth that the broker uses, whichever is larger. Memory is
    # left out: a process keeps what it once had, so its peak says nothing of today.
    usage: float = field(init=False)

    def __post_init__(self) -> None:
        report = self.report
        self.usage = max(map(used_share, (report.cpu, report.bandwidth_in, report.bandwidth_out)))

    @property
    def owner(self) -> Owner:
        """The broker as the owner of its bundles."""
        return candidate(self.report, LookupReason.OWNS)

    def add(self, bundle: str, cost: float) -> None:
        """Count a bundle, or its new cost."""
        # In place, not summed up anew: the leader places thousands of bundles in a row after a
        # restart.
        self.cost += cost - self.bundles.get(bundle, 0.0)
        self.bundles[bundle] = cost

    def discard(self, bundle: str) -> None:
        """Stop counting a bundle."""
        self.cost -= self.bundles.pop(bundle, 0.0)
        self.arrivals.discard(bundle)


# A bundle counts at exactly one broker, and there in one of these ways:
#
#     expected, not reported there   arrivals   cost of before (``ExpectedBundle.cost``)
#     expected, reported there       bundles, and settling while its rates are below ``cost_min``
#     reported, not expected         bundles    cost by the report
#     expected elsewhere             not counted, although this broker's report names it
@dataclass(slots=True, eq=False)
class ClusterLoad:
    """All living brokers and their bundles. Times are seconds of one clock."""

    # By broker id, the living brokers only. Those of the last ``renew``, and those that ``take``
    # has added since.
    brokers: dict[str, BrokerLoad] = field(default_factory=dict[str, BrokerLoad], init=False)
    # By bundle: the broker that it was assigned to, as long as it is expected there. In the order
    # in which that ends, since all are expected equally long.
    _destinations: OrderedDict[str, str] = field(default_factory=OrderedDict[str, str], init=False)
    # The same by broker, by bundle. Each bundle of ``_destinations`` is in exactly one of these,
    # that of its broker. Two maps, since a report asks by broker and a lookup by bundle.
    _expected: dict[str, dict[str, ExpectedBundle]] = field(
        default_factory=dict[str, dict[str, ExpectedBundle]], init=False
    )
    # The cost of each bundle that was ever seen, and the broker it was last seen at. Outlives the
    # broker: the last owner's id is for placing the bundle again, on the same broker if it has come
    # back. Empty for a cost that was read from the stored averages.
    _remembered: dict[str, tuple[float, str]] = field(
        default_factory=dict[str, tuple[float, str]], init=False
    )
    # When bundles were moved by load, the oldest first. Bounded by ``moved_since``, which each
    # shedding calls: a grace period of moves.
    _moved_s: OrderedDict[str, float] = field(default_factory=OrderedDict[str, float], init=False)

    # What brokers report

    def renew(self, reports: Mapping[str, LocalBrokerData], now_s: float) -> None:
        """Take in the living brokers' reports. One that is the same object as before costs nothing:
        of 100 brokers with 1,000 bundles each, a choice visits only those that wrote anew."""
        # A bundle on its way to a broker that ended counts where it is reported, or placed, next.
        # Before any report is counted: ``_project`` must not find destinations that do not live.
        for broker_id in self.brokers.keys() - reports.keys():
            del self.brokers[broker_id]
            for bundle in self._expected.pop(broker_id, ()):
                del self._destinations[bundle]
        overdue = self._take_overdue(now_s)
        # A broker that wrote anew is counted anew in any case. Those that ``take`` counts here are
        # not counted a second time for being overdue.
        for broker_id, report in reports.items():
            if not self.take(broker_id, report) and broker_id in overdue:
                self._project(broker_id, report)

    def take(self, broker_id: str, report: LocalBrokerData) -> bool:
        """Take in the report of one living broker; whether it is a new one. 1,000 bundles take a
        millisecond."""
        known = self.brokers.get(broker_id)
        is_new = known is None or known.report is not report
        if is_new:
            self._project(broker_id, report)
        return is_new

    def _project(self, broker_id: str, report: LocalBrokerData) -> None:
        """Count the bundles of a report, but for those that were sent elsewhere since."""
        # A new object: arrivals and settling bundles are worked out again from the report below.
        load = self.brokers[broker_id] = BrokerLoad(report)
        expected = self._expected.get(broker_id, {})
        for bundle in {*report.bundles, *report.last_stats}:
            stats = report.last_stats.get(bundle)
            # No rates yet: the bundle was acquired after the last measurement. Where it is expected
            # here, what it cost before counts.
            cost = IDLE_COST if stats is None else cost_of(stats)
            destination = self._destinations.get(bundle)
            if destination is not None:
                if destination != broker_id:
                    continue  # the report is older than the decision
                if cost < expected[bundle].cost_min:
                    cost = expected[bundle].cost_min
                    load.settling.add(bundle)
            load.bundles[bundle] = cost
            # After the check above: a report older than the decision must not overwrite the last
            # owner.
            self._remember(bundle, cost, broker_id)
        # What is on its way here counts here, although the report does not name it yet.
        for bundle, each in expected.items():
            if bundle not in load.bundles:
                load.bundles[bundle] = each.cost
                load.arrivals.add(bundle)
        load.cost = sum(load.bundles.values())

    def _take_overdue(self, now_s: float) -> set[str]:
        """Stop expecting bundles after ``EXPECTED_S``. Returns the brokers whose loads have to be
        counted anew: those that a bundle never reached, and those that still have it."""
        brokers: set[str] = set()
        # ``_destinations`` is in the order of ``until_s``: the first that is not due ends the
        # search.
        while self._destinations:
            bundle, broker_id = next(iter(self._destinations.items()))
            if self._expected[broker_id][bundle].until_s > now_s:
                break
            del self._destinations[bundle], self._expected[broker_id][bundle]
            load = self.brokers[broker_id]
            # Elsewhere the figures are the report's own already. Here they are estimates, which end
            # now.
            if bundle in load.arrivals or bundle in load.settling:
                brokers |= {broker_id, self._remembered.get(bundle, _UNKNOWN)[1]}
        return brokers

    # What the leader decides

    def expect(self, bundle: str, broker_id: str, now_s: float) -> None:
        """Count ``bundle`` at ``broker_id``, which lives: it is to have it from now on."""
        # By the reports, or from the leader before; a guess for a bundle that was never seen.
        cost, last = self._remembered.get(bundle, _UNKNOWN)
        before = self._destinations.pop(bundle, None)
        if before is not None:
            del self._expected[before][bundle]
        # It may count at the broker of an earlier decision, and at the one that reported it last.
        # Subtracted at once, so that the next choice does not count the bundle twice.
        for former in {before, last} - {None, broker_id}:
            if former in self.brokers:
                self.brokers[former].discard(bundle)
        self._destinations[bundle] = broker_id
        # Without a known cost the guess holds only until the first report: it must not outweigh
        # figures.
        cost_min = cost if bundle in self._remembered else 0.0
        expected = ExpectedBundle(cost, cost_min, now_s + EXPECTED_S)
        self._expected.setdefault(broker_id, {})[bundle] = expected
        load = self.brokers[broker_id]
        # A bundle that its broker gave up and gets again may stand in the report still: it is no
        # arrival then.
        if bundle not in load.bundles:
            load.arrivals.add(bundle)
        load.add(bundle, cost)

    def note_moved(self, bundle: str, now_s: float) -> None:
        """Note that ``bundle`` was moved by load: it stays there for a while (``moved_since``)."""
        # Taken out first, which keeps the mapping in the order of the times.
        self._moved_s.pop(bundle, None)
        self._moved_s[bundle] = now_s

    def moved_since(self, since_s: float) -> set[str]:
        """The bundles that were moved later than ``since_s``; older moves are forgotten."""
        while self._moved_s:
            bundle, moved_s = next(iter(self._moved_s.items()))
            if moved_s > since_s:
                break
            del self._moved_s[bundle]
        return set(self._moved_s)

    def cancel(self, bundle: str) -> None:
        """Count ``bundle`` where it is reported: it was not moved after all."""
        broker_id = self._destinations.pop(bundle, None)
        if broker_id is None:
            return
        del self._expected[broker_id][bundle]
        # Both are counted anew: the one that was to have it, and the one that still reports it.
        # ``_project`` finds no expectation of it any more, so the broker that reports it counts it
        # again.
        for each in {broker_id, self._remembered.get(bundle, _UNKNOWN)[1]} & self.brokers.keys():
            self._project(each, self.brokers[each].report)

    def destination(self, bundle: str, now_s: float) -> str | None:
        """The living broker that ``bundle`` was assigned to, if that is so recent that the broker
        may not have acquired it yet."""
        broker_id = self._destinations.get(bundle)
        if broker_id is None:
            return None
        # The time of the choice follows from its end; it is not kept a second time.
        assigned_s = self._expected[broker_id][bundle].until_s - EXPECTED_S
        return broker_id if now_s - assigned_s < ACQUIRED_S else None

    def last_owner(self, bundle: str) -> str | None:
        """The broker that last reported ``bundle``, whether or not it lives."""
        return self._remembered[bundle][1] if bundle in self._remembered else None

    def remember(self, bundle: str, cost: float) -> None:
        """Take the cost that an earlier leader stored of a bundle, unless a report had one."""
        # A report is newer than any stored average, and says which broker has the bundle.
        if bundle not in self._remembered:
            self._remember(bundle, cost, "")

    def _remember(self, bundle: str, cost: float, broker_id: str) -> None:
        # A quarter at once: making room for each new bundle would cost more. The first in the map
        # are the oldest: a bundle keeps its place when its cost changes, so this drops those that
        # were seen first, whose cost is then a guess again.
        if bundle not in self._remembered and len(self._remembered) >= REMEMBERED_MAX:
            for oldest in list(islice(self._remembered, REMEMBERED_MAX // 4)):
                del self._remembered[oldest]
        self._remembered[bundle] = (cost, broker_id)

    @property
    def mean_cost(self) -> float:
        """The average cost of a broker; 0 where there is none."""
        return sum(each.cost for each in self.brokers.values()) / max(1, len(self.brokers))
