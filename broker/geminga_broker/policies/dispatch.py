"""How fast messages are dispatched, by a broker, of a topic and to a subscription. Pure."""

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
    """How many messages and bytes may be dispatched in ``period_s`` seconds."""

    # 0 and below: any number. A limit with neither, ``is_unlimited``, has no rate limiter at all.
    messages: int = 0
    size_bytes: int = 0
    period_s: int = 1
    # The limit is how much more may be dispatched than is published in the same time. Upstream's
    # ``relativeToPublishRate``. A backlog then shrinks by at most so much.
    is_relative: bool = False

    @property
    def is_unlimited(self) -> bool:
        """Whether there is nothing to count."""
        return self.messages <= 0 and self.size_bytes <= 0


@dataclass(frozen=True, slots=True)
class Counting:
    """What counts against a limit."""

    # Whether subscriptions without a backlog are limited, too, which read what was just published.
    # Upstream's ``dispatchThrottlingOnNonBacklogConsumerEnabled``.
    of_those_keeping_up: bool = True
    # Whether a batch counts as one message.
    batches_as_one: bool = False


UNLIMITED = DispatchLimit()
COUNT_ALL = Counting()


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchConfig:
    """Limits in messages and bytes a second, 0: any number; the defaults are upstream's.

    Those of topics, subscriptions and replicators hold where neither topic nor namespace sets them.
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
    """Whether the limits of topics and subscriptions are relative: how much more may be dispatched
    than is published."""
    throttles_non_backlog: Annotated[
        bool, Upstream("dispatchThrottlingOnNonBacklogConsumerEnabled")
    ] = True
    """Whether subscriptions without a backlog are limited, too."""
    counts_batches: Annotated[bool, Upstream("dispatchThrottlingOnBatchMessageEnabled")] = False
    """Whether a batch counts as one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPolicies:
    """What holds for one topic, and for each of its subscriptions."""

    topic: DispatchLimit = UNLIMITED
    subscription: DispatchLimit = UNLIMITED
    counting: Counting = COUNT_ALL


# Of system topics.
DISPATCH_FREELY = DispatchPolicies()


def dispatch_policies(config: DispatchConfig, levels: Levels) -> DispatchPolicies:
    """The limits of a topic and its subscriptions."""
    topic, namespace, cluster = levels.topic, levels.namespace, levels.cluster
    # ``cluster_dispatch_rate`` is the old name of the other; upstream writes both, and reads the
    # old one where the new one is missing. Rates of namespaces are kept for each cluster: one
    # namespace may be served by several.
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
        # Each kind of limit is resolved for itself: a topic may set its own and keep that of its
        # namespace for the subscriptions.
        subscription=nearest(
            _limit(topic.subscription_dispatch_rate),
            _limit(namespace.subscription_dispatch_rate.get(cluster)),
            DispatchLimit(
                config.subscription_messages_per_s_max,
                config.subscription_bytes_per_s_max,
                is_relative=config.relative_to_publish_rate,
            ),
        ),
        # Only the broker can set these.
        counting=Counting(config.throttles_non_backlog, config.counts_batches),
    )


def replicator_limit(config: DispatchConfig, levels: Levels) -> DispatchLimit:
    """The limit of the replication of a topic to each other cluster."""
    # Never relative to the publish rate, unless a policy says so: the setting of the broker that
    # makes limits relative is for topics and subscriptions.
    return nearest(
        _limit(levels.topic.replicator_dispatch_rate),
        _limit(levels.namespace.replicator_dispatch_rate.get(levels.cluster)),
        DispatchLimit(config.replicator_messages_per_s_max, config.replicator_bytes_per_s_max),
    )


def _limit(rate: DispatchRate | None) -> DispatchLimit | None:
    """None for a rate that limits nothing: as upstream, it counts as not set."""
    # Other writers of the record do not check the period; one of 0 would have no tokens for ever.
    if rate is None or rate.period_s <= 0 or (rate.messages <= 0 and rate.size_bytes <= 0):
        return None
    # At least one of the two is a limit; -1, as upstream has for "none", becomes 0.
    return DispatchLimit(
        max(rate.messages, 0), max(rate.size_bytes, 0), rate.period_s, rate.relative_to_publish_rate
    )


def check_dispatch_rate(rate: DispatchRate) -> None:
    """Raise ``InvalidPolicy`` for a rate that Java cannot read, or without a period."""
    if abs(rate.messages) > INT_MAX or abs(rate.size_bytes) > LONG_MAX:
        raise InvalidPolicy("A dispatch rate is too large")
    check_period(rate.period_s)


def check_period(period_s: int) -> None:
    """Raise ``InvalidPolicy`` for the period of a rate that is no positive number of seconds."""
    if not 0 < period_s <= INT_MAX:
        raise InvalidPolicy("ratePeriodInSecond must be a number of seconds, 1 or more")
