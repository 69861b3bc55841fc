"""A decoded SUBSCRIBE command: what a client asks of a topic, and what it says of its consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from geminga_broker.errors import ConsumerNotAssigned
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_protocol.pulsar.enums import KeySharedMode, SubscriptionType
from geminga_protocol.pulsar.message import NO_CONSUMER_EPOCH


class ConsumerIdentity(NamedTuple):
    """What identifies a consumer across connections: its client's host, its name and its id."""

    host: str
    name: str
    consumer_id: int


THE_BROKER = ConsumerIdentity("", "", 0)
"""The broker itself, which no limit on clients concerns."""

# The index in message ids of a topic that is not a partition.
NO_PARTITION = -1


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What a client asks for."""

    # Of the subscription.
    subscription: str
    type: SubscriptionType
    is_durable: bool = True
    # Where a new subscription begins. ``start_position`` is for subscriptions that are not durable.
    starts_at_earliest: bool = False
    start_position: Position | None = None
    # Whether the consumer is sent only what compaction leaves.
    reads_compacted: bool = False
    key_shared: KeySharedPolicy = AUTO_SPLIT
    properties: Mapping[str, str] = field(default_factory=dict)
    # Of the consumer.
    consumer: ConsumerIdentity = THE_BROKER
    # The index of its topic.
    partition: int = NO_PARTITION
    # Its priority level: 0 is served first.
    priority: int = 0
    # What its messages begin to bear, for types that deliver in order; see ``begin_epoch``.
    epoch: int = NO_CONSUMER_EPOCH
    metadata: Mapping[str, str] = field(default_factory=dict)
    # Whether it takes whatever schema the topic has, or gets later (AUTO_CONSUME).
    takes_any_schema: bool = False

    def check(self) -> None:
        """Raise ``ConsumerNotAssigned`` for ranges of key hashes that no consumer can have."""
        # Whether other consumers have these ranges already is for the subscription to say.
        is_key_shared = self.type is SubscriptionType.KEY_SHARED
        if is_key_shared and self.key_shared.mode is KeySharedMode.STICKY:
            if not self.key_shared.ranges:
                raise ConsumerNotAssigned("Ranges for KeyShared policy must not be empty.")
            if any(start > end for start, end in self.key_shared.ranges):
                raise ConsumerNotAssigned("Fixed hash range start > end")
