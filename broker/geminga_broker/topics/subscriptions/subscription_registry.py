"""The subscriptions of a topic by name, of persistent and of non-persistent ones."""

from __future__ import annotations

from typing import Generic, TypeVar

from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.policies.subscriptions import SUBSCRIBE_FREELY
from geminga_broker.subscriptions.non_persistent_subscription import NonPersistentSubscription
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.decisions.consumer_admission import ConsumerAdmission
from geminga_broker.topics.part import OwningTopic, TopicPart, TopicServices
from geminga_runtime.clock import Clock

TopicSubscription = Subscription | NonPersistentSubscription
"""A subscription of any topic: sessions and stats use what both kinds have in common."""

SubscriptionT = TypeVar("SubscriptionT", bound=TopicSubscription)


class SubscriptionRegistry(TopicPart, Generic[SubscriptionT]):
    """The subscriptions by name, the limits on subscribing, and the rates of consumers. Subclasses
    create the subscriptions."""

    __slots__ = ("_admission", "_clock", "subscriptions")

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        # Those that can be found: one that is being created or deleted is not among them. Callers
        # that wait while they use one look here again afterwards, by identity: it may have been
        # deleted, and another one created under its name.
        self.subscriptions: dict[str, SubscriptionT] = {}
        self._clock: Clock = services.clock
        # Without limits until ``apply`` has brought policies.
        self._admission = ConsumerAdmission(str(topic.name), SUBSCRIBE_FREELY)

    def apply(self, policies: EffectivePolicies) -> None:
        """Apply policies to consumers that subscribe from now on."""
        self._admission.apply(policies.subscribing)

    def _check_consumers(self, request: SubscribeRequest, of_subscription: int) -> None:
        """Raise ``ConsumerBusy`` if the topic, or its subscription with ``of_subscription``
        consumers, may not have one more."""
        of_topic = (each for other in self.subscriptions.values() for each in other.consumers)
        self._admission.check_consumers(request.consumer.host, of_topic, of_subscription)

    @property
    def connected_count(self) -> int:
        """How many consumers are connected."""
        return sum(len(each.consumers) for each in self.subscriptions.values())

    def disconnect(self) -> None:
        """Disconnect all consumers; they look the topic up again."""
        # A copy: a non-persistent subscription ends with its last consumer.
        for subscription in list(self.subscriptions.values()):
            subscription.close_consumers()

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

    def release(self) -> None:
        """Drop the subscriptions, which refer to this part."""
        self.subscriptions.clear()
