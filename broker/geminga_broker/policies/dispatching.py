"""How fast may be dispatched: by a broker, to a topic's and to a subscription's consumers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import INT_MAX, LONG_MAX, Levels, nearest
from geminga_protocol.records.cluster.namespaces import DispatchRate
from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True)
class DispatchLimit:
    """So much in ``period_s``; 0 and below: any number. Where the limit ``is_relative``, it is how
    much faster may be dispatched than is published."""

    messages: int = 0
    size_bytes: int = 0
    period_s: int = 1
    is_relative: bool = False

    @property
    def is_unlimited(self) -> bool:
        """Whether there is nothing to count."""
        return self.messages <= 0 and self.size_bytes <= 0


@dataclass(frozen=True, slots=True)
class Counting:
    """What is counted against a limit."""

    of_those_keeping_up: bool = True
    """Whether those are held back that read what was just published."""
    batches_as_one: bool = False
    """Whether a batch counts as one message."""


UNLIMITED = DispatchLimit()
COUNT_ALL = Counting()


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchConfig:
    """In messages and bytes a second, 0: any number; the defaults are upstream's.

    What is for topics and subscriptions holds where neither topic nor namespace says something.
    """

    broker_messages_per_s_max: Annotated[int, Ge(0), Upstream("dispatchThrottlingRateInMsg")] = 0
    """To all consumers of the broker together."""
    broker_bytes_per_s_max: Annotated[int, Ge(0), Upstream("dispatchThrottlingRateInByte")] = 0
    """The same in bytes."""
    topic_messages_per_s_max: Annotated[
        int, Ge(0), Upstream("dispatchThrottlingRatePerTopicInMsg")
    ] = 0
    """To all consumers of a topic together."""
    topic_bytes_per_s_max: Annotated[
        int, Ge(0), Upstream("dispatchThrottlingRatePerTopicInByte")
    ] = 0
    """The same in bytes."""
    subscription_messages_per_s_max: Annotated[
        int, Ge(0), Upstream("dispatchThrottlingRatePerSubscriptionInMsg")
    ] = 0
    """To the consumers of a subscription."""
    subscription_bytes_per_s_max: Annotated[
        int, Ge(0), Upstream("dispatchThrottlingRatePerSubscriptionInByte")
    ] = 0
    """The same in bytes."""
    replicator_messages_per_s_max: Annotated[
        int, Ge(0), Upstream("dispatchThrottlingRatePerReplicatorInMsg")
    ] = 0
    """From a topic to each other cluster."""
    replicator_bytes_per_s_max: Annotated[
        int, Ge(0), Upstream("dispatchThrottlingRatePerReplicatorInByte")
    ] = 0
    """The same in bytes."""
    relative_to_publish_rate: Annotated[
        bool, Upstream("dispatchThrottlingRateRelativeToPublishRate")
    ] = False
    """Whether those of topics and subscriptions are how much faster may be dispatched than is
    published."""
    throttles_non_backlog: Annotated[
        bool, Upstream("dispatchThrottlingOnNonBacklogConsumerEnabled")
    ] = True
    """Whether those are held back too who keep up with what is published."""
    counts_batches: Annotated[bool, Upstream("dispatchThrottlingOnBatchMessageEnabled")] = False
    """Whether a batch counts as one message."""

    @property
    def broker_limit(self) -> DispatchLimit:
        """What holds for the broker as a whole."""
        return DispatchLimit(self.broker_messages_per_s_max, self.broker_bytes_per_s_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPolicies:
    """What holds for one topic, and for each of its subscriptions."""

    topic: DispatchLimit = UNLIMITED
    subscription: DispatchLimit = UNLIMITED
    counting: Counting = COUNT_ALL


DISPATCH_FREELY = DispatchPolicies()


def dispatch_policies(config: DispatchConfig, said: Levels) -> DispatchPolicies:
    """What holds for a topic of which the levels say this."""
    topic, namespace, cluster = said.topic, said.namespace, said.cluster
    # The second is the first's old name; upstream writes both, and reads the old one too.
    of_topics = namespace.topic_dispatch_rate.get(cluster) or namespace.cluster_dispatch_rate.get(
        cluster
    )
    return DispatchPolicies(
        topic=nearest(
            _limit(topic.topic_dispatch_rate),
            _limit(of_topics),
            DispatchLimit(
                config.topic_messages_per_s_max,
                config.topic_bytes_per_s_max,
                is_relative=config.relative_to_publish_rate,
            ),
        ),
        subscription=nearest(
            _limit(topic.subscription_dispatch_rate),
            _limit(namespace.subscription_dispatch_rate.get(cluster)),
            DispatchLimit(
                config.subscription_messages_per_s_max,
                config.subscription_bytes_per_s_max,
                is_relative=config.relative_to_publish_rate,
            ),
        ),
        counting=Counting(config.throttles_non_backlog, config.counts_batches),
    )


def replicator_limit(config: DispatchConfig, said: Levels) -> DispatchLimit:
    """What holds for each way of a topic to another cluster."""
    return nearest(
        _limit(said.topic.replicator_dispatch_rate),
        _limit(said.namespace.replicator_dispatch_rate.get(said.cluster)),
        DispatchLimit(config.replicator_messages_per_s_max, config.replicator_bytes_per_s_max),
    )


def _limit(rate: DispatchRate | None) -> DispatchLimit | None:
    """None for a rate that limits nothing: it is as good as none, as upstream has it."""
    if rate is None or rate.period_s <= 0 or (rate.messages <= 0 and rate.size_bytes <= 0):
        return None
    return DispatchLimit(
        max(rate.messages, 0), max(rate.size_bytes, 0), rate.period_s, rate.relative_to_publish_rate
    )


def check_dispatch_rate(rate: DispatchRate) -> None:
    """Raise ``InvalidPolicy`` for a rate that nobody can keep."""
    if abs(rate.messages) > INT_MAX or abs(rate.size_bytes) > LONG_MAX:
        raise InvalidPolicy("A dispatch rate is too large")
    check_period(rate.period_s)


def check_period(period_s: int) -> None:
    """Raise ``InvalidPolicy`` for what is no period of a rate."""
    if not 0 < period_s <= INT_MAX:
        raise InvalidPolicy("ratePeriodInSecond must be a number of seconds, 1 or more")
