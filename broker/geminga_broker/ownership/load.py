"""When a broker's load report is worth writing again: pure comparison of two reports."""

from __future__ import annotations

from geminga_protocol.records.brokers import LocalBrokerData, ResourceUsage

# Upstream's loadBalancerReportUpdateThresholdPercentage.
CHANGE_SHARE_MIN = 0.1

# Below these a change is noise: one topic more or less, ten messages or 10 KB a second. Without
# them an idle broker would write every time somebody looks at it.
COUNT_NOISE = 1
RATE_NOISE = 10.0
BYTES_NOISE = 10_000.0


def has_changed(written: LocalBrokerData, now: LocalBrokerData) -> bool:
    """Whether a figure by which the leader places bundles moved by a tenth or more."""
    if set(written.bundles) != set(now.bundles):
        return True
    counts = (
        (written.num_topics, now.num_topics),
        (written.num_bundles, now.num_bundles),
        (written.num_consumers, now.num_consumers),
        (written.num_producers, now.num_producers),
    )
    rates = ((written.msg_rate_in, now.msg_rate_in), (written.msg_rate_out, now.msg_rate_out))
    throughputs = (
        (written.msg_throughput_in, now.msg_throughput_in),
        (written.msg_throughput_out, now.msg_throughput_out),
    )
    return (
        any(_moved(old, new, COUNT_NOISE) for old, new in counts)
        or any(_moved(old, new, RATE_NOISE) for old, new in rates)
        or any(_moved(old, new, BYTES_NOISE) for old, new in throughputs)
        or _usage_moved(written.cpu, now.cpu)
        or _usage_moved(written.memory, now.memory)
    )


def _moved(old: float, new: float, noise: float) -> bool:
    change = abs(new - old)
    return change > noise and change >= CHANGE_SHARE_MIN * max(abs(old), abs(new))


def _usage_moved(old: ResourceUsage, new: ResourceUsage) -> bool:
    """Whether a resource's share of its limit moved by a tenth of the whole."""
    return abs(_share(new) - _share(old)) >= CHANGE_SHARE_MIN


def _share(usage: ResourceUsage) -> float:
    return usage.usage / usage.limit if usage.limit > 0 else 0.0
