"""The rates of bundles and brokers, averaged over minutes and hours. Pure.

The averages are those of the modular load manager of Apache Pulsar: a short one over the last ten
reports and a long one over the last thousand. The leader keeps them of the heaviest bundles and of
all living brokers, and leaves them to the next leader (``history_records``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from heapq import nlargest

from geminga_broker.load_manager.balancing.cluster_load import cost_of
from geminga_protocol.records.cluster.brokers import (
    BundleData,
    BundleStats,
    LocalBrokerData,
    MessageAverages,
    TimeAverageBrokerData,
)

# Reports that an average is made of, as upstream has them.
SHORT_SAMPLES = 10
LONG_SAMPLES = 1000
# The heaviest of each broker, and of all: as many are written every quarter of an hour, eleven a
# second. The others count as unknown.
BUNDLES_OF_BROKER_MAX = 100
BUNDLES_KEPT_MAX = 10_000


@dataclass(slots=True, eq=False)
class LoadHistory:
    """The averages of the heaviest bundles, and of the living brokers."""

    # By name; those that were sampled last are last. At most ``BUNDLES_KEPT_MAX``, after each
    # ``sample``.
    _bundles: OrderedDict[str, BundleData] = field(
        default_factory=OrderedDict[str, BundleData], init=False
    )
    # By broker id, of the sums over all of its bundles.
    _brokers: dict[str, BundleData] = field(default_factory=dict[str, BundleData], init=False)
    # The reports that were counted: a report that is still the same object is not new.
    _sampled: dict[str, LocalBrokerData] = field(
        default_factory=dict[str, LocalBrokerData], init=False
    )
    # Names of bundles whose records are to be written, or deleted. No name is in both: a bundle
    # that is sampled again is not to be deleted, and one that makes room is not to be written.
    # Their union is what ZooKeeper does not have yet.
    _changed: set[str] = field(default_factory=set[str], init=False)
    _dropped: set[str] = field(default_factory=set[str], init=False)

    def restore(self, bundles: Mapping[str, BundleData]) -> None:
        """Go on from the averages that the leader before stored."""
        # They replace what was sampled here while they were read, which is less than they know. In
        # front: these are the first to make room.
        for bundle, data in bundles.items():
            self._bundles[bundle] = data
            self._bundles.move_to_end(bundle, last=False)

    def sample(self, broker_id: str, report: LocalBrokerData) -> None:
        """Count the report of a living broker, unless it was counted. 1,000 bundles take about two
        milliseconds."""
        if self._sampled.get(broker_id) is report:
            return
        self._sampled[broker_id] = report
        # Of the sums in the report: a broker's own average is not the sum of its bundles' averages,
        # as bundles come and go.
        before = self._brokers.get(broker_id, BundleData())
        self._brokers[broker_id] = _averaged(before, report, report.num_topics)
        # The others have no record: for the next leader their cost is not known.
        loads = report.last_stats
        heaviest = nlargest(BUNDLES_OF_BROKER_MAX, loads, key=lambda each: cost_of(loads[each]))
        for bundle in heaviest:
            # Taken out and put back, which moves it to the end.
            data = self._bundles.pop(bundle, BundleData())
            self._bundles[bundle] = _averaged(data, loads[bundle], loads[bundle].topics)
        self._changed.update(heaviest)
        self._dropped.difference_update(heaviest)
        # Over the limit by one broker's heaviest at most, and once by what ``restore`` has added.
        while len(self._bundles) > BUNDLES_KEPT_MAX:
            oldest, _ = self._bundles.popitem(last=False)
            self._changed.discard(oldest)
            self._dropped.add(oldest)

    def keep_brokers(self, living: Collection[str]) -> None:
        """Forget the brokers that do not live."""
        # One that lives and was not sampled yet has no average either.
        self._sampled = {each: self._sampled[each] for each in living if each in self._sampled}
        # ``_brokers`` has the same keys as ``_sampled``: both are set in ``sample``.
        self._brokers = {each: self._brokers[each] for each in self._sampled}

    def brokers(self) -> dict[str, TimeAverageBrokerData]:
        """The averages of the living brokers, as they are stored."""
        averages: dict[str, TimeAverageBrokerData] = {}
        for broker_id, data in self._brokers.items():
            short, long = data.short_term_data, data.long_term_data
            averages[broker_id] = TimeAverageBrokerData(
                short_term_msg_throughput_in=short.msg_throughput_in,
                short_term_msg_throughput_out=short.msg_throughput_out,
                short_term_msg_rate_in=short.msg_rate_in,
                short_term_msg_rate_out=short.msg_rate_out,
                long_term_msg_throughput_in=long.msg_throughput_in,
                long_term_msg_throughput_out=long.msg_throughput_out,
                long_term_msg_rate_in=long.msg_rate_in,
                long_term_msg_rate_out=long.msg_rate_out,
            )
        return averages

    def take_changes(self) -> dict[str, BundleData | None]:
        """The averages of bundles that were sampled since the last call; None for bundles that are
        no longer kept."""
        # None for the dropped ones, which are not among ``_bundles`` any more.
        changes = {bundle: self._bundles.get(bundle) for bundle in self._changed | self._dropped}
        # What is taken is the caller's to write: if its requests fail, a later sample of the bundle
        # makes it due again.
        self._changed, self._dropped = set(), set()
        return changes


def cost_of_average(data: BundleData) -> float:
    """What a bundle cost over the last reports, in the unit of ``cost_of``. Clients are not
    stored, so they do not count."""
    short = data.short_term_data
    return cost_of(
        BundleStats(
            msg_rate_in=short.msg_rate_in,
            msg_rate_out=short.msg_rate_out,
            msg_throughput_in=short.msg_throughput_in,
            msg_throughput_out=short.msg_throughput_out,
            topics=data.topics,
        )
    )


def _averaged(before: BundleData, now: BundleStats | LocalBrokerData, topics: int) -> BundleData:
    return BundleData(
        short_term_data=_with(before.short_term_data, now, SHORT_SAMPLES),
        long_term_data=_with(before.long_term_data, now, LONG_SAMPLES),
        topics=topics,
    )


def _with(
    average: MessageAverages, now: BundleStats | LocalBrokerData, samples_max: int
) -> MessageAverages:
    """The average with one sample more. Once there are ``samples_max``, older ones fade."""
    # A moving average from then on: each sample has the weight 1 / samples_max. While there are
    # fewer samples than ``samples_max`` this is their plain mean.
    samples = min(average.num_samples + 1, samples_max)

    def moved(before: float, value: float) -> float:
        return ((samples - 1) * before + value) / samples

    return MessageAverages(
        max_samples=samples_max,
        num_samples=samples,
        msg_throughput_in=moved(average.msg_throughput_in, now.msg_throughput_in),
        msg_throughput_out=moved(average.msg_throughput_out, now.msg_throughput_out),
        msg_rate_in=moved(average.msg_rate_in, now.msg_rate_in),
        msg_rate_out=moved(average.msg_rate_out, now.msg_rate_out),
    )
