"""A SUBSCRIBE taken apart: what a client asks of a topic, and what it says of its consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.message import NO_CONSUMER_EPOCH


class ConsumerIdentity(NamedTuple):
    """Who a consumer is, from one connection to the next: its client's host, its name, its id."""

    host: str
    name: str
    consumer_id: int


THE_BROKER = ConsumerIdentity("", "", 0)
"""The broker itself."""

# The index in message ids of a topic that is no partition.
NO_PARTITION = -1


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What a client asks for; ``start_position`` is for subscriptions that are not durable,
    ``key_shared`` for those of that type.

    Of the consumer itself: ``partition`` is that of its topic, ``priority`` the level that its
    client gave it (0 is served first), and ``epoch`` is what its client begins with, which only
    subscriptions that deliver in order use. With ``takes_any_schema`` its client takes whatever
    schema the topic has, or gets (AUTO_CONSUME).
    """

    subscription: str
    type: SubscriptionType
    is_durable: bool = True
    starts_at_earliest: bool = False
    reads_compacted: bool = False
    start_position: Position | None = None
    key_shared: KeySharedPolicy = AUTO_SPLIT
    properties: Mapping[str, str] = field(default_factory=dict)
    consumer: ConsumerIdentity = THE_BROKER
    partition: int = NO_PARTITION
    priority: int = 0
    epoch: int = NO_CONSUMER_EPOCH
    metadata: Mapping[str, str] = field(default_factory=dict)
    takes_any_schema: bool = False

    def check(self) -> None:
        """Raise ``ConsumerNotAssigned`` for what no subscription can give."""
        if self.type is SubscriptionType.KEY_SHARED:
            self.key_shared.check()
