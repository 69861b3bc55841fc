"""How fast may be dispatched: what a broker is told, and what holds for a topic. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from geminga_broker.subscriptions.dispatch_rate import COUNT_ALL, Counting, DispatchLimit
from geminga_protocol.records.namespaces import DispatchRate, Policies

UNLIMITED = DispatchLimit()


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """The broker's settings, in messages and bytes a second, 0: any number; upstream's names in
    brackets, its defaults here. Those for topics and subscriptions hold where a namespace says
    nothing."""

    broker_messages_per_s_max: Annotated[int, Ge(0)] = 0
    """To all consumers of the broker together (dispatchThrottlingRateInMsg)."""
    broker_bytes_per_s_max: Annotated[int, Ge(0)] = 0
    """The same in bytes (dispatchThrottlingRateInByte)."""
    topic_messages_per_s_max: Annotated[int, Ge(0)] = 0
    """To all consumers of a topic together (dispatchThrottlingRatePerTopicInMsg)."""
    topic_bytes_per_s_max: Annotated[int, Ge(0)] = 0
    """The same in bytes (dispatchThrottlingRatePerTopicInByte)."""
    subscription_messages_per_s_max: Annotated[int, Ge(0)] = 0
    """To the consumers of a subscription (dispatchThrottlingRatePerSubscriptionInMsg)."""
    subscription_bytes_per_s_max: Annotated[int, Ge(0)] = 0
    """The same in bytes (dispatchThrottlingRatePerSubscriptionInByte)."""
    relative_to_publish_rate: bool = False
    """Whether those of topics and subscriptions are how much faster may be dispatched than is
    published (dispatchThrottlingRateRelativeToPublishRate)."""
    throttles_non_backlog: bool = True
    """Whether those are held back too who keep up with what is published
    (dispatchThrottlingOnNonBacklogConsumerEnabled)."""
    counts_batches: bool = False
    """Whether a batch counts as one message (dispatchThrottlingOnBatchMessageEnabled)."""

    @property
    def broker_limit(self) -> DispatchLimit:
        """What holds for the broker as a whole."""
        return DispatchLimit(self.broker_messages_per_s_max, self.broker_bytes_per_s_max)


DEFAULT_OPTIONS = DispatchOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPolicies:
    """What holds for one topic, and for each of its subscriptions."""

    topic: DispatchLimit = UNLIMITED
    subscription: DispatchLimit = UNLIMITED
    counting: Counting = COUNT_ALL

    @classmethod
    def default(cls, options: DispatchOptions) -> DispatchPolicies:
        """What holds where a namespace says nothing."""
        return cls(
            topic=DispatchLimit(
                options.topic_messages_per_s_max,
                options.topic_bytes_per_s_max,
                is_relative=options.relative_to_publish_rate,
            ),
            subscription=DispatchLimit(
                options.subscription_messages_per_s_max,
                options.subscription_bytes_per_s_max,
                is_relative=options.relative_to_publish_rate,
            ),
            counting=Counting(options.throttles_non_backlog, options.counts_batches),
        )


DEFAULT_POLICIES = DispatchPolicies()


def dispatch_policies(
    policies: Policies, default: DispatchPolicies, cluster: str
) -> DispatchPolicies:
    """What holds in a namespace with ``policies`` on the brokers of ``cluster``."""
    held = DispatchPolicies(
        topic=_limit(policies.topic_dispatch_rate.get(cluster), default.topic),
        subscription=_limit(policies.subscription_dispatch_rate.get(cluster), default.subscription),
        counting=default.counting,
    )
    # There may be very many topics, most of which hold to the default.
    return default if held == default else held


def _limit(rate: DispatchRate | None, default: DispatchLimit) -> DispatchLimit:
    """A rate that limits nothing is as good as none, as upstream has it."""
    if rate is None or rate.period_s <= 0 or (rate.messages <= 0 and rate.size_bytes <= 0):
        return default
    return DispatchLimit(
        max(rate.messages, 0), max(rate.size_bytes, 0), rate.period_s, rate.relative_to_publish_rate
    )
