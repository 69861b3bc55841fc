"""Whether one more consumer is let in, before its subscription is looked at: which types and names
there may be, how many consumers and subscriptions, how often somebody may come. Pure.

The order of the checks and their words are upstream's (``PersistentTopic.internalSubscribe``).
"""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.client_session import host_of
from geminga_broker.errors import (
    ConsumerBusy,
    NameReserved,
    NotAllowed,
    SubscriptionAbsent,
)
from geminga_broker.policies.subscribing import SubscribePolicies
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.consuming.subscribe_rate import SubscribeRate
from geminga_protocol.pulsar.messages.replication import REPLICATOR_PREFIX
from geminga_protocol.pulsar.topics.topic_names import NOT_A_NODE, can_name_node

TOPIC_FULL = "Topic reached max consumers limit"
HOST_FULL = "Topic reached max same address consumers limit"
SUBSCRIPTION_FULL = "Subscription reached max consumers limit"


def check_name(name: str, *, is_reserved: bool = False) -> None:
    """Raise ``NameReserved`` for a name that no client's subscription may have."""
    if not name.strip():
        raise NameReserved("Empty subscription name")
    if is_reserved or name.startswith(REPLICATOR_PREFIX):
        raise NameReserved("Subscription with reserved subscription name attempted")


def check_stored_name(name: str) -> None:
    """Raise ``NotAllowed``, after which clients do not try again, for a name that no cursor's node
    can have."""
    if not can_name_node(name):
        raise NotAllowed(f"A durable subscription cannot be called {name!r}: {NOT_A_NODE}")


class Admission:
    """Of the topic ``topic``; ``policies`` may be replaced at any time."""

    __slots__ = ("_policies", "_rate", "_topic")

    def __init__(self, topic: str, policies: SubscribePolicies) -> None:
        self._topic = topic
        self._policies = policies
        self._rate: SubscribeRate | None = None  # most topics have no limit

    @property
    def policies(self) -> SubscribePolicies:
        """What holds."""
        return self._policies

    @policies.setter
    def policies(self, policies: SubscribePolicies) -> None:
        self._policies = policies
        if self._rate is not None:
            self._rate.limit = policies.rate

    @property
    def limits_consumers(self) -> bool:
        """Whether ``check_consumers`` ever refuses anybody."""
        policies = self._policies
        return (
            policies.consumers_max > 0
            or policies.consumers_per_subscription_max > 0
            or policies.consumers_per_host_max > 0
        )

    def check(self, request: SubscribeRequest, now_s: float) -> None:
        """Raise ``NotAllowed`` for a type that is not enabled, and for who comes too often."""
        if request.type not in self._policies.types:
            raise NotAllowed(
                f"Topic[{{{self._topic}}}] doesn't support {request.type.label} sub type!"
            )
        if self._policies.rate.per_consumer > 0:
            if self._rate is None:
                self._rate = SubscribeRate(self._policies.rate)
            if not self._rate.take(request.consumer, now_s):
                raise NotAllowed("Subscribe limited by subscribe rate limit per consumer.")

    def check_use(self, *, is_durable: bool) -> None:
        """Raise ``SubscriptionAbsent`` where subscribing makes no subscription."""
        if is_durable and not self._policies.auto_creation:
            raise SubscriptionAbsent

    def check_subscriptions(self, count: int) -> None:
        """Raise ``NotAllowed`` where the topic has ``count`` subscriptions and may have no more."""
        if 0 < self._policies.subscriptions_max <= count:
            raise NotAllowed(
                f"Exceed the maximum number of subscriptions of the topic: {self._topic}"
            )

    def check_consumers(
        self, host: str, of_topic: Sequence[Consumer], of_subscription: int
    ) -> None:
        """Raise ``ConsumerBusy`` where a topic with these consumers may have no more, or no more of
        ``host``, or a subscription that has so many of them."""
        if 0 < self._policies.consumers_max <= len(of_topic):
            raise ConsumerBusy(TOPIC_FULL)
        per_host_max = self._policies.consumers_per_host_max
        if per_host_max > 0:
            of_host = sum(host_of(each.session.address) == host for each in of_topic)
            if of_host >= per_host_max:
                raise ConsumerBusy(HOST_FULL)
        if 0 < self._policies.consumers_per_subscription_max <= of_subscription:
            raise ConsumerBusy(SUBSCRIPTION_FULL)


def check_durability(*, is_durable: bool, wants_durable: bool) -> None:
    """Raise ``NotAllowed`` where a subscription of the name is there that is of the other kind."""
    if is_durable and not wants_durable:
        raise NotAllowed("Durable subscription with the same name already exists.")
    if wants_durable and not is_durable:
        raise NotAllowed("NonDurable subscription with the same name already exists.")
