"""When a broker's load report is worth writing again: a comparison of two reports. Pure.

Brokers keep each other's reports under watches: a report that is written is read again by others.
So what moves less than noise, or less than a share of the figure, is not written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from geminga_protocol.records.cluster.brokers import LocalBrokerData, ResourceUsage
from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReportConfig:
    """How often a broker reports its load to the leader."""

    load_balancer_report_interval_min_s: Annotated[
        float, Gt(0), Upstream("loadBalancerReportUpdateMinIntervalMillis", unit=0.001)
    ] = 5.0
    """How often it checks whether its load has changed."""
    load_balancer_report_interval_max_s: Annotated[
        float, Gt(0), Upstream("loadBalancerReportUpdateMaxIntervalMinutes", unit=60)
    ] = 15 * 60.0
    """How often it writes its report though nothing has changed."""
    load_balancer_report_change_percent: Annotated[
        float, Gt(0), Upstream("loadBalancerReportUpdateThresholdPercentage")
    ] = 10.0
    """By how much a figure must have changed before it is written."""


# Changes up to these are noise: one topic more or less, ten messages or 10 KB a second. Without
# them a nearly idle broker would write its report all the time.
COUNT_NOISE = 1
RATE_NOISE = 10.0
BYTES_NOISE = 10_000.0


def has_changed(written: LocalBrokerData, now: LocalBrokerData, percent: float = 10.0) -> bool:
    """Whether a figure by which the leader places bundles moved by ``percent`` or more."""
    # Of counts, rates and bytes the change must exceed both the noise and the share; of CPU and
    # memory, which are shares themselves, the share alone. A report that is not written is not
    # lost: the next check compares with the same written one, so slow changes add up until they
    # count.
    share = percent / 100
    # Always: the leader waits for a bundle that it has assigned until it sees it in a report. As
    # sets: the order of the bundles means nothing.
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
    # Sums alone are compared. The rates of single bundles travel with the next report that is
    # written for another reason, or after the maximal interval.
    return (
        any(_moved(old, new, COUNT_NOISE, share) for old, new in counts)
        or any(_moved(old, new, RATE_NOISE, share) for old, new in rates)
        or any(_moved(old, new, BYTES_NOISE, share) for old, new in throughputs)
        or abs(used_share(now.cpu) - used_share(written.cpu)) >= share
        or abs(used_share(now.memory) - used_share(written.memory)) >= share
    )


def _moved(old: float, new: float, noise: float, share: float) -> bool:
    """Whether a figure changed by more than ``noise``, and by ``share`` of the larger value."""
    change = abs(new - old)
    # Of the larger value: falling from 100 to 50 is as great a change as rising from 50 to 100.
    return change > noise and change >= share * max(abs(old), abs(new))


def used_share(usage: ResourceUsage) -> float:
    """How much of a resource is used; 0 where its limit is not known."""
    return usage.usage / usage.limit if usage.limit > 0 else 0.0
