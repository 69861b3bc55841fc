"""What a subscription and a consumer of it can be told to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geminga_protocol.pulsar.enums import InitialPosition, SubscriptionType


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What a consumer is to be like.

    Up to ``receiver_queue_size`` messages are fetched ahead of ``receive``. A refused message
    (``nack``) is asked for again after ``nack_delay_s``. Of the consumers of a Shared
    subscription those with a lower ``priority_level`` are served first.
    """

    type: SubscriptionType = SubscriptionType.EXCLUSIVE
    name: str | None = None
    initial_position: InitialPosition = InitialPosition.LATEST
    properties: Mapping[str, str] | None = None
    priority_level: int = 0
    # As upstream's: enough to keep a consumer busy over a distance.
    receiver_queue_size: int = 1000
    nack_delay_s: float = 60.0
    # For requests of the consumer itself: seek, unsubscribe, closing.
    operation_timeout_s: float = 30.0
