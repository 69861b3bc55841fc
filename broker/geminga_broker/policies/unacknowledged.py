"""How many unacknowledged messages the consumers of a shared subscription may hold. Pure.

A consumer or subscription that reaches its limit is sent nothing more until half of it is
acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from geminga_broker.policies.levels import Levels, nearest_limit
from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class UnacknowledgedConfig:
    """What holds where neither topic nor namespace sets it."""

    max_unacked_messages_per_consumer: Annotated[
        int, Ge(0), Upstream("maxUnackedMessagesPerConsumer")
    ] = 50_000
    """How many unacknowledged messages a consumer of a Shared or Key_Shared subscription may hold,
    where its namespace does not say; 0: no limit."""
    max_unacked_messages_per_subscription: Annotated[
        int, Ge(0), Upstream("maxUnackedMessagesPerSubscription")
    ] = 200_000
    """How many all consumers of such a subscription may hold together; 0: no limit."""


@dataclass(frozen=True, slots=True)
class UnacknowledgedLimits:
    """The limits of a topic: for one consumer, and for all of a subscription; 0: no limit."""

    per_consumer: int = 0
    per_subscription: int = 0


# The default of a topic that was given no policies.
NO_LIMITS = UnacknowledgedLimits()


def unacknowledged_limits(config: UnacknowledgedConfig, levels: Levels) -> UnacknowledgedLimits:
    """The limits of a topic."""
    topic, namespace = levels.topic, levels.namespace
    # 0 is a value, and takes the limit of a level above away; below 0, the level sets nothing.
    # Unlike ``nearest``, which knows None alone as "not set".
    return UnacknowledgedLimits(
        nearest_limit(
            topic.unacked_per_consumer_max,
            namespace.unacked_per_consumer_max,
            config.max_unacked_messages_per_consumer,
        ),
        nearest_limit(
            topic.unacked_per_subscription_max,
            namespace.unacked_per_subscription_max,
            config.max_unacked_messages_per_subscription,
        ),
    )
