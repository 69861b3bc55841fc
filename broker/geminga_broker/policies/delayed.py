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

    None is delivered early (upstream's isDelayedDeliveryDeliverAtTimeStrict).
    """

    enabled: Annotated[bool, Upstream("delayedDeliveryEnabled")] = True
    """Whether messages are held back until their time."""
    tick_ms: Annotated[int, Gt(0), Upstream("delayedDeliveryTickTimeMillis")] = 1000
    """How late a message may be: a quarter of this at most."""
    delay_max_ms: Annotated[int, Ge(0), Upstream("delayedDeliveryMaxDelayInMillis")] = 0
    """A longer delay is refused to the producer; 0: any goes."""
    bucket_messages_min: Annotated[
        int, Gt(0), Upstream("delayedDeliveryMinIndexCountPerBucket")
    ] = 50_000
    """Fewer delayed messages are kept in memory alone, and read again after a restart."""
    bucket_messages_max: Annotated[int, Gt(0)] = 500_000
    """More are not put into one bucket, nor more of one ledger: these too are read again."""
    segment_messages_max: Annotated[
        int, Gt(0), Upstream("delayedDeliveryMaxIndexesPerBucketSnapshotSegment")
    ] = 5000
    """A segment of a bucket, which is read at once, has so many messages at most,"""
    segment_step_ms: Annotated[
        int, Gt(0), Upstream("delayedDeliveryMaxTimeStepPerBucketSnapshotSegmentSeconds", 1000)
    ] = 300_000
    """and so long between its first and its last delivery time."""

    @property
    def slot_ms(self) -> int:
        """Messages that are due within this time come out together."""
        return max(1, self.tick_ms // 4)


def delayed(config: DelayedConfig, said: Levels) -> DelayedConfig:
    """What holds for a topic of which the levels say this."""
    policy = nearest(said.topic.delayed_delivery, said.namespace.delayed_delivery, None)
    if policy is None:
        return config
    return replace(
        config,
        enabled=policy.active,
        tick_ms=max(1, policy.tick_ms),
        delay_max_ms=max(0, policy.delay_max_ms),
    )


def check_delayed_delivery(policy: DelayedDelivery) -> None:
    """Raise ``InvalidPolicy`` for times that are none."""
    if not 0 <= policy.tick_ms <= LONG_MAX:
        raise InvalidPolicy("Tick time must be a positive number of milliseconds")
    if not 0 <= policy.delay_max_ms <= LONG_MAX:
        raise InvalidPolicy("The max delay must be a positive number of milliseconds, 0 for any")
