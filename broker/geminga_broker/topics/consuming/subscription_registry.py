"""The subscriptions of a topic by name, of persistent and of non-persistent ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from geminga_broker.managed_ledger.cursor import OnDurable
from geminga_broker.managed_ledger.positions import AckedEntry, EntryId, Position
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.policies.subscribing import SUBSCRIBE_FREELY
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.decisions.consumer_admission import ConsumerAdmission
from geminga_broker.topics.part import OwningTopic, TopicPart, TopicServices
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_runtime.clock import Clock


class TopicSubscription(Protocol):
    """What sessions and stats ask of a subscription of any topic."""

    @property
    def name(self) -> str:
        """The subscription's name."""
        ...

    @property
    def type(self) -> SubscriptionType | None:
        """The type of its consumers, connected or last; None before the first one."""
        ...

    @property
    def consumers(self) -> list[Consumer]:
        """Connected consumers."""
        ...

    @property
    def messages_out(self) -> int:
        """Messages sent since the topic was loaded."""
        ...

    @property
    def bytes_out(self) -> int:
        """Bytes sent since the topic was loaded."""
        ...

    @property
    def backlog_entries(self) -> int:
        """How many entries are still to be acknowledged."""
        ...

    @property
    def expiry_rate(self) -> float:
        """How many entries expire per second."""
        ...

    @property
    def mark_delete(self) -> Position | None:
        """The last position of the prefix of the log that is acknowledged completely; None without
        a log."""
        ...

    def connected(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part: its client knows that it is subscribed."""
        ...

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Add ``permits`` messages to what ``consumer`` may be sent."""
        ...

    def entries_available(self) -> None:
        """Dispatch what can be sent now: entries were appended, or a socket has drained."""
        ...

    def acknowledge(
        self, consumer: Consumer, entries: Iterable[AckedEntry], on_durable: OnDurable | None
    ) -> None:
        """Acknowledge single entries."""
        ...

    def acknowledge_entries(self, consumer: Consumer, ids: list[EntryId]) -> None:
        """Acknowledge whole entries, of which there may be thousands; ``ids`` may be sorted."""
        ...

    def acknowledge_upto(
        self,
        consumer: Consumer,
        position: Position,
        ack_set: Sequence[int],
        on_durable: OnDurable | None,
    ) -> None:
        """Acknowledge everything before ``position``, and of the entry there the messages whose
        bits ``ack_set`` lacks. Raises ``NotAllowed`` for Shared and Key_Shared."""
        ...

    def redeliver(self, consumer: Consumer, positions: list[Position] | None) -> None:
        """Send again what ``consumer`` holds: ``positions``, or everything for None."""
        ...

    async def seek(self, position: Position, remaining: Sequence[int] = ()) -> None:
        """Make ``position`` the next entry to deliver; of its batch only the messages whose bits
        ``remaining`` has. Consumers are told to subscribe again first."""
        ...

    async def seek_time(self, time_ms: int) -> None:
        """Make the first message published at or after ``time_ms`` the next to deliver."""
        ...

    async def last_message(self, *, reads_compacted: bool = False) -> tuple[Position, int]:
        """The newest entry, and the index of the last message in it (-1 if it is no batch)."""
        ...

    async def disconnect(self, consumer: Consumer) -> None:
        """Remove ``consumer``."""
        ...

    async def unsubscribe(self, consumer: Consumer, *, force: bool) -> None:
        """Delete the subscription; only its sole consumer may, unless ``force``."""
        ...

    def close_consumers(self) -> None:
        """Tell every consumer to subscribe again."""
        ...


SubscriptionT = TypeVar("SubscriptionT", bound=TopicSubscription)


class SubscriptionRegistry(TopicPart, Generic[SubscriptionT]):
    """The subscriptions by name, the limits on subscribing, and the rates of consumers. Subclasses
    create the subscriptions."""

    __slots__ = ("_admission", "_clock", "subscriptions")

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        self.subscriptions: dict[str, SubscriptionT] = {}
        self._clock: Clock = services.clock
        self._admission = ConsumerAdmission(str(topic.name), SUBSCRIBE_FREELY)

    def apply(self, policies: EffectivePolicies) -> None:
        """Apply policies to consumers that subscribe from now on."""
        self._admission.apply(policies.subscribing)

    def _check_consumers(self, request: SubscribeRequest, of_subscription: int) -> None:
        """Raise ``ConsumerBusy`` if the topic, or its subscription with ``of_subscription``
        consumers, may not have one more."""
        # Without limits, the consumers of many subscriptions need not be gathered.
        if self._admission.limits_consumers:
            of_topic = [each for other in self.subscriptions.values() for each in other.consumers]
            self._admission.check_consumers(request.consumer.host, of_topic, of_subscription)

    @property
    def connected_count(self) -> int:
        """How many consumers are connected."""
        return sum(len(each.consumers) for each in self.subscriptions.values())

    def disconnect(self) -> None:
        """Disconnect all consumers; they look the topic up again."""
        for subscription in list(self.subscriptions.values()):
            subscription.close_consumers()

    @property
    def messages_out(self) -> int:
        """Messages sent by the present subscriptions."""
        return sum(each.messages_out for each in self.subscriptions.values())

    @property
    def bytes_out(self) -> int:
        """Bytes sent by the present subscriptions."""
        return sum(each.bytes_out for each in self.subscriptions.values())

    def tick(self, now_s: float, period_s: float) -> None:
        """Compute the consumers' rates."""
        for subscription in self.subscriptions.values():
            for consumer in subscription.consumers:
                consumer.meter.tick(
                    now_s,
                    consumer.messages_out,
                    consumer.bytes_out,
                    consumer.messages_redelivered,
                    consumer.messages_acknowledged,
                    period_s=period_s,
                )
