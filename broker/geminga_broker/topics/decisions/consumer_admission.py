"""Which consumers may subscribe to a topic, before their subscription is looked up. Pure.

The checks concern subscription types and names, the numbers of consumers and subscriptions, and how
often a consumer subscribes. Their order and their words are upstream's
(``PersistentTopic.internalSubscribe``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from geminga_broker.client_session import host_of
from geminga_broker.errors import (
    ConsumerBusy,
    NameReserved,
    NotAllowed,
    SubscriptionAbsent,
)
from geminga_broker.policies.subscriptions import SubscribeLimit, SubscribePolicies
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.subscribe_request import (
    THE_BROKER,
    ConsumerIdentity,
    SubscribeRequest,
)
from geminga_protocol.pulsar.messages.replication import REPLICATOR_PREFIX
from geminga_protocol.pulsar.topics.topic_names import NOT_A_NODE, can_name_node

TOPIC_FULL = "Topic reached max consumers limit"
HOST_FULL = "Topic reached max same address consumers limit"
SUBSCRIPTION_FULL = "Subscription reached max consumers limit"

# Consumers whose attempts are counted in one period. A consumer that comes after so many others is
# not limited: memory stays bounded, and no client is refused for the number of others.
CONSUMERS_MAX = 10_000


def check_name(name: str, *, is_reserved: bool = False) -> None:
    """Raise ``NameReserved`` for a name that no client's subscription may have."""
    # Upstream takes a name of blanks for an empty one.
    if not name.strip():
        raise NameReserved("Empty subscription name")
    if is_reserved or name.startswith(REPLICATOR_PREFIX):
        raise NameReserved("Subscription with reserved subscription name attempted")


def check_stored_name(name: str) -> None:
    """Raise ``NotAllowed``, after which clients do not retry, for a name that no ZooKeeper node of
    a cursor can have."""
    if not can_name_node(name):
        raise NotAllowed(f"A durable subscription cannot be called {name!r}: {NOT_A_NODE}")


def check_durability(*, is_durable: bool, wants_durable: bool) -> None:
    """Raise ``NotAllowed`` if the existing subscription is durable and the request is not, or the
    reverse."""
    if is_durable and not wants_durable:
        raise NotAllowed("Durable subscription with the same name already exists.")
    if wants_durable and not is_durable:
        raise NotAllowed("NonDurable subscription with the same name already exists.")


@dataclass(slots=True, eq=False)
class ConsumerAdmission:
    """The limits on subscribing to a topic; ``apply`` replaces the policies at any time."""

    # The topic's name, for error texts.
    _topic: str
    policies: SubscribePolicies
    # Made with the first limited attempt: most topics have no such limit.
    _rate: SubscribeRate | None = field(default=None, init=False)

    def apply(self, policies: SubscribePolicies) -> None:
        """Hold new consumers to ``policies`` from now on."""
        self.policies = policies
        # Attempts that were counted before still count: a change gives no client a new period. The
        # period that runs is cut short if the new one is shorter (``SubscribeRate.take``).
        if self._rate is not None:
            self._rate.limit = policies.rate

    def check(self, request: SubscribeRequest, now_s: float) -> None:
        """Raise ``NotAllowed`` for a type that is not enabled, and for a consumer that subscribes
        too often."""
        # Types first: a refused type does not use up an attempt.
        if request.type not in self.policies.types:
            raise NotAllowed(
                f"Topic[{{{self._topic}}}] doesn't support {request.type.label} sub type!"
            )
        if self.policies.rate.per_consumer > 0:
            if self._rate is None:
                self._rate = SubscribeRate(self.policies.rate)
            if not self._rate.take(request.consumer, now_s):
                raise NotAllowed("Subscribe limited by subscribe rate limit per consumer.")

    def check_use(self, *, is_durable: bool) -> None:
        """Raise ``SubscriptionAbsent`` if subscribing does not create durable subscriptions."""
        if is_durable and not self.policies.auto_creation:
            raise SubscriptionAbsent

    def check_subscriptions(self, count: int) -> None:
        """Raise ``NotAllowed`` if a topic with ``count`` subscriptions may have no more."""
        if 0 < self.policies.subscriptions_max <= count:
            raise NotAllowed(
                f"Exceed the maximum number of subscriptions of the topic: {self._topic}"
            )

    def check_consumers(
        self, host: str, consumers: Iterable[Consumer], of_subscription: int
    ) -> None:
        """Raise ``ConsumerBusy`` if one more consumer would exceed a limit: that of the topic with
        these ``consumers``, that of its client's ``host``, or that of a subscription with
        ``of_subscription`` consumers."""
        # Limits of 0 and below are off. Without these two, the consumers of what may be many
        # subscriptions need not be gathered.
        topic_max, per_host_max = self.policies.consumers_max, self.policies.consumers_per_host_max
        # ``consumers`` is a generator, which can be walked through once; two limits may need it.
        of_topic = list(consumers) if topic_max > 0 or per_host_max > 0 else []
        if 0 < topic_max <= len(of_topic):
            raise ConsumerBusy(TOPIC_FULL)
        if per_host_max > 0:
            # Addresses have ports, which differ between connections of a client.
            of_host = sum(host_of(each.session.address) == host for each in of_topic)
            if of_host >= per_host_max:
                raise ConsumerBusy(HOST_FULL)
        if 0 < self.policies.consumers_per_subscription_max <= of_subscription:
            raise ConsumerBusy(SUBSCRIPTION_FULL)


@dataclass(slots=True, eq=False)
class SubscribeRate:
    """How often each consumer subscribed in the current period, compared with ``limit``.

    As upstream's ``SubscribeRateLimiter``: a consumer is an address, a name and an id, and all
    counts start again with each period.
    """

    # May be replaced at any time; a shorter period begins at once.
    limit: SubscribeLimit
    # Attempts in the current period that were let through.
    _subscribed: dict[ConsumerIdentity, int] = field(
        default_factory=dict[ConsumerIdentity, int], init=False
    )
    # When the current period ends, by the monotonic clock.
    _ends_at_s: float = field(default=0.0, init=False)

    def take(self, consumer: ConsumerIdentity, now_s: float) -> bool:
        """Whether ``consumer`` may subscribe once more now; if so, the attempt is counted."""
        limit = self.limit
        if limit.per_consumer <= 0 or consumer == THE_BROKER:
            return True
        # The second condition: the period was longer when it began than it is now. Fixed windows,
        # not a token bucket: a consumer may subscribe twice its limit in a short time around the
        # end of a period, as in upstream.
        if now_s >= self._ends_at_s or self._ends_at_s > now_s + limit.period_s:
            self._subscribed.clear()
            self._ends_at_s = now_s + limit.period_s
        count = self._subscribed.get(consumer, 0)
        if count >= limit.per_consumer:
            return False
        # A consumer that is counted already is always counted on, whatever the bound.
        if count or len(self._subscribed) < CONSUMERS_MAX:
            self._subscribed[consumer] = count + 1
        return True
