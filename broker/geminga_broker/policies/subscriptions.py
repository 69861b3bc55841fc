"""Limits on the consumers and subscriptions of a topic, and which types are allowed. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from annotated_types import Ge, Gt

from geminga_broker.policies.dispatch import check_period
from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import INT_MAX, Levels, nearest, nearest_limit
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.records.cluster.namespaces import AutoSubscriptionCreation, SubscribeRate
from geminga_server.config import Upstream

# The types of subscription, by the names that policies have for them. ``get_args`` keeps the order
# of the Literal, and so the order in which errors and ``--help`` name them.
TypeLabel = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]
LABELS: tuple[TypeLabel, ...] = get_args(TypeLabel)
# What holds where no type is named.
ALL_TYPES = frozenset(SubscriptionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeConfig:
    """What holds where neither topic nor namespace sets it, and settings that no policy changes;
    the defaults are upstream's, but for ``failover_delay_s``."""

    consumers_per_topic_max: Annotated[int, Ge(0), Upstream("maxConsumersPerTopic")] = 0
    """How many consumers a topic may have; 0: any number."""
    consumers_per_subscription_max: Annotated[
        int, Ge(0), Upstream("maxConsumersPerSubscription")
    ] = 0
    """How many consumers a subscription may have; 0: any number."""
    same_address_consumers_per_topic_max: Annotated[
        int, Ge(0), Upstream("maxSameAddressConsumersPerTopic")
    ] = 0
    """How many consumers of a topic may be on one host; 0: any number."""
    subscriptions_per_topic_max: Annotated[int, Ge(0), Upstream("maxSubscriptionsPerTopic")] = 0
    """How many subscriptions a topic may have; 0: any number."""
    types_enabled: Annotated[tuple[TypeLabel, ...], Upstream("subscriptionTypesEnabled")] = LABELS
    """The types of subscription that are allowed."""
    auto_creation: Annotated[bool, Upstream("allowAutoSubscriptionCreation")] = True
    """Whether subscribing creates a durable subscription."""
    failover_delay_s: Annotated[
        float, Ge(0), Upstream("activeConsumerFailoverDelayTimeMillis", 0.001)
    ] = 0.0
    """How long the former active consumer of a Failover subscription may still acknowledge what it
    was sent, before that goes to the next one (a second by default upstream)."""
    rate_per_consumer: Annotated[int, Ge(0), Upstream("subscribeThrottlingRatePerConsumer")] = 0
    """How often a consumer may subscribe to a topic in one period; 0: any number."""
    rate_period_s: Annotated[int, Gt(0), Upstream("subscribeRatePeriodPerConsumerInSecond")] = 30
    """The length of such a period in seconds."""


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


# Of system topics.
SUBSCRIBE_FREELY = SubscribePolicies()


def subscribe_policies(config: SubscribeConfig, levels: Levels) -> SubscribePolicies:
    """The subscribe policies of a topic."""
    topic, namespace = levels.topic, levels.namespace
    return SubscribePolicies(
        consumers_max=nearest_limit(
            topic.consumers_per_topic_max,
            namespace.consumers_per_topic_max,
            config.consumers_per_topic_max,
        ),
        consumers_per_subscription_max=nearest_limit(
            topic.consumers_per_subscription_max,
            namespace.consumers_per_subscription_max,
            config.consumers_per_subscription_max,
        ),
        # Only the broker can set it, as upstream.
        consumers_per_host_max=config.same_address_consumers_per_topic_max,
        subscriptions_max=nearest_limit(
            topic.subscriptions_per_topic_max,
            namespace.subscriptions_per_topic_max,
            config.subscriptions_per_topic_max,
        ),
        # An empty list in a record would allow no subscription at all; it counts as not set.
        types=nearest(
            _types(topic.subscription_types_enabled),
            _types(namespace.subscription_types_enabled),
            _types(config.types_enabled) or ALL_TYPES,
        ),
        auto_creation=nearest(
            _allowed(topic.auto_subscription_creation_override),
            _allowed(namespace.auto_subscription_creation_override),
            config.auto_creation,
        ),
        failover_delay_s=config.failover_delay_s,
        rate=nearest(
            _limit(topic.cluster_subscribe_rate),
            # A namespace may have another rate in each cluster.
            _limit(namespace.cluster_subscribe_rate.get(levels.cluster)),
            SubscribeLimit(config.rate_per_consumer, config.rate_period_s),
        ),
    )


def _types(labels: Iterable[str]) -> frozenset[SubscriptionType] | None:
    """The types of these names; None where there is none, which counts as not set."""
    named = frozenset(labels)
    return frozenset(each for each in SubscriptionType if each.label in named) or None


def _allowed(override: AutoSubscriptionCreation | None) -> bool | None:
    # The record has an object around the flag, which is missing where the flag is not set.
    # Upstream's ``AutoSubscriptionCreationOverride``.
    return None if override is None else override.allowed


def _limit(rate: SubscribeRate | None) -> SubscribeLimit | None:
    """None for a rate that limits nothing: as upstream, it counts as not set."""
    # Then the next level counts; -1, upstream's "no limit", cannot take the limit of a broker away.
    if rate is None or rate.per_consumer <= 0 or rate.period_s <= 0:
        return None
    return SubscribeLimit(rate.per_consumer, rate.period_s)


def check_subscribe_rate(rate: SubscribeRate) -> None:
    """Raise ``InvalidPolicy`` for a rate that Java cannot read, or without a period."""
    if abs(rate.per_consumer) > INT_MAX:
        raise InvalidPolicy("A subscribe rate is too large")
    check_period(rate.period_s)
