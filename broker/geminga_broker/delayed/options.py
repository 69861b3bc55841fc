"""The knobs of delayed delivery, with upstream's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt


@dataclass(frozen=True, slots=True)
class DelayedOptions:
    """Whether messages may be delayed, how exactly, and how their index is cut into buckets.

    None is delivered early (upstream's isDelayedDeliveryDeliverAtTimeStrict).
    """

    enabled: bool = True
    """Whether messages are held back until their time (delayedDeliveryEnabled)."""
    tick_ms: Annotated[int, Gt(0)] = 1000
    """How late a message may be (delayedDeliveryTickTimeMillis): a quarter of this at most."""
    delay_max_ms: Annotated[int, Ge(0)] = 0
    """A longer delay is refused to the producer (delayedDeliveryMaxDelayInMillis); 0: any goes."""
    bucket_messages_min: Annotated[int, Gt(0)] = 50_000
    """Fewer delayed messages are kept in memory alone, and read again after a restart
    (delayedDeliveryMinIndexCountPerBucket)."""
    bucket_messages_max: Annotated[int, Gt(0)] = 500_000
    """More are not put into one bucket, nor more of one ledger: these too are read again."""
    segment_messages_max: Annotated[int, Gt(0)] = 5000
    """A segment of a bucket, which is read at once, has so many messages at most
    (delayedDeliveryMaxIndexesPerBucketSnapshotSegment),"""
    segment_step_ms: Annotated[int, Gt(0)] = 300_000
    """and so long between its first and its last delivery time
    (delayedDeliveryMaxTimeStepPerBucketSnapshotSegmentSeconds)."""

    @property
    def slot_ms(self) -> int:
        """Messages that are due within this time come out together."""
        return max(1, self.tick_ms // 4)
