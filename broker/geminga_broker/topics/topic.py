"""What sessions know of a topic, whether it keeps its messages or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from geminga_broker.log.cursor import OnDurable
from geminga_broker.log.positions import AckedEntry, EntryId, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.key_shared.policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.topics.producing.producers import Producer
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topic_names import TopicName


class ConsumerIdentity(NamedTuple):
    """Who a consumer is, from one connection to the next: its client's host, its name, its id."""

    host: str
    name: str
    consumer_id: int


NOBODY = ConsumerIdentity("", "", 0)
"""The broker itself."""


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What a consumer asks for; ``start_position`` is for subscriptions that are not durable,
    ``key_shared`` for those of that type."""

    subscription: str
    type: SubscriptionType
    is_durable: bool = True
    starts_at_earliest: bool = False
    reads_compacted: bool = False
    start_position: Position | None = None
    key_shared: KeySharedPolicy = AUTO_SPLIT
    properties: Mapping[str, str] = field(default_factory=dict)
    consumer: ConsumerIdentity = NOBODY

    def check(self) -> None:
        """Raise ``ConsumerNotAssigned`` for what no subscription can give."""
        if self.type is SubscriptionType.KEY_SHARED:
            self.key_shared.check()


class TopicSubscription(Protocol):
    """A subscription with at least one consumer connected."""

    @property
    def type(self) -> SubscriptionType | None:
        """What its consumers are; None while none has ever come."""
        ...

    @property
    def backlog_entries(self) -> int:
        """How many entries are still to be acknowledged."""
        ...

    @property
    def expiry_rate(self) -> float:
        """How many entries a second grow too old."""
        ...

    @property
    def mark_delete(self) -> Position | None:
        """Everything up to here is acknowledged; None where nothing is kept."""
        ...

    def connected(self, consumer: Consumer) -> None:
        """The client knows that it is subscribed: it may be told more now."""
        ...

    def flow(self, consumer: Consumer, permits: int) -> None:
        """``consumer`` has room for ``permits`` more messages."""
        ...

    def entries_available(self) -> None:
        """Look whether something can be sent: entries came, or a socket drained."""
        ...

    def acknowledge(
        self, consumer: Consumer, entries: Iterable[AckedEntry], on_durable: OnDurable | None
    ) -> None:
        """Acknowledge single entries."""
        ...

    def acknowledge_entries(self, consumer: Consumer, ids: list[EntryId]) -> None:
        """Acknowledge whole entries, by the thousand; ``ids`` may come back in another order."""
        ...

    def acknowledge_upto(
        self,
        consumer: Consumer,
        position: Position,
        ack_set: Sequence[int],
        on_durable: OnDurable | None,
    ) -> None:
        """Acknowledge everything up to ``position``; raises ``NotAllowed`` on Shared."""
        ...

    def redeliver(self, consumer: Consumer, positions: list[Position] | None) -> None:
        """Send again what ``consumer`` holds: ``positions``, or everything for None."""
        ...

    async def seek(self, position: Position, remaining: Sequence[int] = ()) -> None:
        """Make ``position`` the next entry to deliver, and of its batch what the bit set
        ``remaining`` holds; consumers are told to come back first."""
        ...

    async def seek_time(self, time_ms: int) -> None:
        """Make the first message published at or after that time the next to deliver."""
        ...

    async def last_message(self, *, reads_compacted: bool = False) -> tuple[Position, int]:
        """The newest entry and the index of the last message in its batch (-1: no batch)."""
        ...

    async def disconnect(self, consumer: Consumer) -> None:
        """``consumer`` is gone."""
        ...

    async def unsubscribe(self, consumer: Consumer, *, force: bool) -> None:
        """Delete the subscription; only its sole consumer may, unless ``force``."""
        ...


class Topic(Protocol):
    """A topic that is being served here."""

    name: TopicName

    async def connect_producer(self, producer: Producer) -> None:
        """Let ``producer`` in; raises ``ProducerBusy``, ``ProducerFenced``, ``TopicFenced``."""
        ...

    async def subscribe(self, request: SubscribeRequest) -> TopicSubscription:
        """The subscription, made where it is new, ready for one more consumer: ``connected`` then
        lets it take part. Raises ``ConsumerBusy``."""
        ...

    async def create_subscription(self, name: str, *, from_earliest: bool = False) -> bool:
        """Make a durable subscription without a consumer; whether it was made: nothing is to be
        done where it exists."""
        ...

    @property
    def connected_count(self) -> int:
        """How many producers and consumers are connected."""
        ...

    async def delete(self) -> None:
        """Let all clients go and delete everything the topic has stored."""
        ...
