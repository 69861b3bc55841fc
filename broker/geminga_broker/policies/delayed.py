"""Whether messages may be delayed, how exactly, and how long at most. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Gt

from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import LONG_MAX, Levels, nearest
from geminga_protocol.records.cluster.namespaces import DelayedDelivery
from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True)
class DelayedConfig:
    """What holds for a topic, and how the index of its delayed messages is cut into buckets, with
    upstream's defaults.

    No message is delivered early (upstream's isDelayedDeliveryDeliverAtTimeStrict).
    """

    enabled: Annotated[bool, Upstream("delayedDeliveryEnabled")] = True
    """Whether messages are held back until their delivery time."""
    tick_ms: Annotated[int, Gt(0), Upstream("delayedDeliveryTickTimeMillis")] = 1000
    """How exactly messages are delivered: they are late by a quarter of this at most."""
    delay_max_ms: Annotated[int, Ge(0), Upstream("delayedDeliveryMaxDelayInMillis")] = 0
    """Messages with a longer delay are refused; 0: any delay is accepted."""
    # A bucket is an index of delayed messages that is stored as snapshots on bookies (PIP-195). A
    # snapshot consists of segments, of which only the next ones due are in memory.
    bucket_messages_min: Annotated[
        int, Gt(0), Upstream("delayedDeliveryMinIndexCountPerBucket")
    ] = 50_000
    """Fewer delayed messages are indexed in memory only, and read again after a restart."""
    bucket_messages_max: Annotated[int, Gt(0)] = 500_000
    """The most messages in one bucket, and of one ledger; those beyond are read again after a
    restart."""
    segment_messages_max: Annotated[
        int, Gt(0), Upstream("delayedDeliveryMaxIndexesPerBucketSnapshotSegment")
    ] = 5000
    """The most messages in a segment of a bucket, which is read at once."""
    segment_step_ms: Annotated[
        int, Gt(0), Upstream("delayedDeliveryMaxTimeStepPerBucketSnapshotSegmentSeconds", 1000)
    ] = 300_000
    """The longest time between the first and the last delivery time in a segment."""

    @property
    def slot_ms(self) -> int:
        """Messages whose delivery times are in one slot of this length are delivered together."""
        #     slots   │    a    │  b   c  │    d    │    b and c are delivered together, at the end
        #             └─────────┴─────────┴─────────┘    of their slot: never early
        #
        # A message waits for the end of its slot: it is late by a quarter of the tick at most.
        return max(1, self.tick_ms // 4)


def delayed(config: DelayedConfig, levels: Levels) -> DelayedConfig:
    """The settings of a topic."""
    # One object with all three values: a level that sets it sets all of them.
    policy = nearest(levels.topic.delayed_delivery, levels.namespace.delayed_delivery, None)
    if policy is None:
        return config
    return replace(
        config,
        enabled=policy.active,
        # Values that other writers of the record did not check are bounded: a tick of 0 has no
        # slots. The REST interface refuses them (``check_delayed_delivery``).
        tick_ms=max(1, policy.tick_ms),
        delay_max_ms=max(0, policy.delay_max_ms),
    )


def check_delayed_delivery(policy: DelayedDelivery) -> None:
    """Raise ``InvalidPolicy`` for negative times, or such as Java cannot read."""
    if not 0 <= policy.tick_ms <= LONG_MAX:
        raise InvalidPolicy("Tick time must be a positive number of milliseconds")
    if not 0 <= policy.delay_max_ms <= LONG_MAX:
        raise InvalidPolicy("The max delay must be a positive number of milliseconds, 0 for any")
