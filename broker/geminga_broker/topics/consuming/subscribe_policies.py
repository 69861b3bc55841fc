"""Who may subscribe to a topic: what a broker is told, and what holds for a topic. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.records.namespaces import Policies, SubscribeRate

TypeLabel = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]
ALL_LABELS: tuple[TypeLabel, ...] = ("Exclusive", "Shared", "Failover", "Key_Shared")
ALL_TYPES = frozenset(SubscriptionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """The broker's settings, which hold where a namespace says nothing; upstream's names in
    brackets, its defaults here."""

    consumers_per_topic_max: Annotated[int, Ge(0)] = 0
    """So many consumers may a topic have; 0: any number (maxConsumersPerTopic)."""
    consumers_per_subscription_max: Annotated[int, Ge(0)] = 0
    """So many may a subscription have; 0: any number (maxConsumersPerSubscription)."""
    same_address_consumers_per_topic_max: Annotated[int, Ge(0)] = 0
    """So many of a topic's consumers may be clients of one host; 0: any number
    (maxSameAddressConsumersPerTopic)."""
    subscriptions_per_topic_max: Annotated[int, Ge(0)] = 0
    """So many subscriptions may a topic have; 0: any number (maxSubscriptionsPerTopic)."""
    types_enabled: tuple[TypeLabel, ...] = ALL_LABELS
    """The types of subscription that there may be (subscriptionTypesEnabled)."""
    auto_creation: bool = True
    """Whether subscribing makes a durable subscription (allowAutoSubscriptionCreation)."""
    failover_delay_s: Annotated[float, Ge(0)] = 0.0
    """When another consumer of a Failover subscription becomes the active one: how long the one
    before may still acknowledge what it was sent, before that goes to the next one
    (activeConsumerFailoverDelayTimeMillis, a second by default upstream)."""
    rate_per_consumer: Annotated[int, Ge(0)] = 0
    """So often may a consumer subscribe to a topic in one period; 0: any number
    (subscribeThrottlingRatePerConsumer)."""
    rate_period_s: Annotated[int, Gt(0)] = 30
    """How long a period is (subscribeRatePeriodPerConsumerInSecond)."""


DEFAULT_OPTIONS = SubscribeOptions()


@dataclass(frozen=True, slots=True)
class SubscribeLimit:
    """How often a consumer may subscribe in a period; 0 and below: any number."""

    per_consumer: int = 0
    period_s: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribePolicies:
    """What holds for one topic; 0 is any number."""

    consumers_max: int = 0
    consumers_per_subscription_max: int = 0
    consumers_per_host_max: int = 0
    subscriptions_max: int = 0
    types: frozenset[SubscriptionType] = ALL_TYPES
    auto_creation: bool = True
    failover_delay_s: float = 0.0
    rate: SubscribeLimit = SubscribeLimit()

    @classmethod
    def default(cls, options: SubscribeOptions) -> SubscribePolicies:
        """What holds where a namespace says nothing."""
        return cls(
            consumers_max=options.consumers_per_topic_max,
            consumers_per_subscription_max=options.consumers_per_subscription_max,
            consumers_per_host_max=options.same_address_consumers_per_topic_max,
            subscriptions_max=options.subscriptions_per_topic_max,
            types=types_of(options.types_enabled) or ALL_TYPES,
            auto_creation=options.auto_creation,
            failover_delay_s=options.failover_delay_s,
            rate=SubscribeLimit(options.rate_per_consumer, options.rate_period_s),
        )


DEFAULT_POLICIES = SubscribePolicies()


def types_of(labels: Iterable[str]) -> frozenset[SubscriptionType]:
    """The types of these names; names of none are left out."""
    known = {each.label: each for each in SubscriptionType}
    return frozenset(known[label] for label in labels if label in known)


def subscribe_policies(
    policies: Policies, default: SubscribePolicies, cluster: str
) -> SubscribePolicies:
    """What holds in a namespace with ``policies`` on the brokers of ``cluster``."""
    override = policies.auto_subscription_creation_override
    held = replace(
        default,
        consumers_max=_limit(policies.consumers_per_topic_max, default.consumers_max),
        consumers_per_subscription_max=_limit(
            policies.consumers_per_subscription_max, default.consumers_per_subscription_max
        ),
        subscriptions_max=_limit(policies.subscriptions_per_topic_max, default.subscriptions_max),
        types=types_of(policies.subscription_types_enabled) or default.types,
        auto_creation=default.auto_creation if override is None else override.allowed,
        rate=_rate(policies.cluster_subscribe_rate.get(cluster), default.rate),
    )
    # There may be very many topics, most of which hold to the default.
    return default if held == default else held


def _limit(limit: int | None, default: int) -> int:
    return default if limit is None or limit < 0 else limit


def _rate(rate: SubscribeRate | None, default: SubscribeLimit) -> SubscribeLimit:
    """A rate that limits nothing is as good as none, as upstream has it."""
    if rate is None or rate.per_consumer <= 0 or rate.period_s <= 0:
        return default
    return SubscribeLimit(rate.per_consumer, rate.period_s)
