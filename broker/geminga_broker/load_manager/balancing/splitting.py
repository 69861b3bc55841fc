"""Which bundles have grown too large and are to be split. Pure.

A bundle with one topic is not split: all its load would stay in one of the halves. The limits are
upstream's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from geminga_broker.load_manager.balancing.cluster_load import ClusterLoad
from geminga_broker.load_manager.balancing.shedding import is_brokers_own
from geminga_broker.load_manager.config import LoadManagerConfig
from geminga_protocol.records.cluster.brokers import BundleStats


def reason_to_split(stats: BundleStats, config: LoadManagerConfig) -> str | None:
    """The limit that a bundle exceeds, by upstream's label of the metric; None for none."""
    # The first limit that is exceeded names the split in the metrics.
    if stats.topics < 2:
        return None
    # Upstream's ``BundleSplitterTask`` compares with "more than", too.
    if stats.topics > config.load_balancer_bundle_topics_max:
        return "topics"
    if stats.producer_count + stats.consumer_count > config.load_balancer_bundle_sessions_max:
        return "sessions"
    if stats.msg_rate_in + stats.msg_rate_out > config.load_balancer_bundle_rate_max:
        return "msgRate"
    if stats.msg_throughput_in + stats.msg_throughput_out > config.load_balancer_bundle_bytes_max:
        return "bandwidth"
    return None


def bundles_to_split(
    load: ClusterLoad, config: LoadManagerConfig, *, fixed: Collection[str] = ()
) -> Iterator[tuple[str, str, str]]:
    """Bundles that are too large, each with its broker's id and the reason; not ``fixed`` ones, nor
    those that are on their way to another broker."""
    # A generator: the caller takes only as many as it splits in a round.
    for broker_id, broker in load.brokers.items():
        for bundle, stats in broker.report.last_stats.items():
            # ``broker.bundles`` does not have what the leader has sent elsewhere since the report.
            reason = reason_to_split(stats, config)
            if reason is None or bundle in fixed or bundle not in broker.bundles:
                continue
            # Its ring is not in ZooKeeper, so there is nothing that a split could be written to.
            if not is_brokers_own(bundle):
                yield bundle, broker_id, reason
