"""When topics that are not used are deleted. Pure.

The rules are upstream's (``checkGC`` of ``PersistentTopic``), but for one: where using a topic does
not create it, it is deleted only if its namespace has a policy that says so. It was created by hand
there, and would not be created again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from annotated_types import Ge, Gt

from geminga_broker.managed_ledger.ledger_chain.retention import FOR_EVER
from geminga_broker.policies.auto_creation import AutoCreationConfig
from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import INT_MAX, Levels, nearest
from geminga_protocol.records.cluster.namespaces import InactiveTopics
from geminga_server.config import Upstream

DeleteMode = Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]
DELETE_MODES: tuple[str, ...] = get_args(DeleteMode)
WHEN_CAUGHT_UP: DeleteMode = "delete_when_subscriptions_caught_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class InactivityConfig:
    """What happens to topics that are not used, where neither topic nor namespace sets it."""

    deletes_topics: Annotated[bool, Upstream("brokerDeleteInactiveTopicsEnabled")] = True
    """Topics that are not used are deleted."""
    check_s: Annotated[float, Gt(0), Upstream("brokerDeleteInactiveTopicsFrequencySeconds")] = 60.0
    """How often the broker checks whether topics are used."""
    mode: Annotated[DeleteMode, Upstream("brokerDeleteInactiveTopicsMode")] = (
        "delete_when_no_subscriptions"
    )
    """delete_when_no_subscriptions, or delete_when_subscriptions_caught_up: also topics whose
    subscriptions have no backlog, with these."""
    unused_s_max: Annotated[
        float, Ge(0), Upstream("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds")
    ] = 0.0
    """After how long without use, in seconds; 0: after the interval between two checks."""


@dataclass(frozen=True, slots=True)
class Inactivity:
    """What happens to a topic that is not used."""

    is_deleting: bool = False
    # Whether the topic is deleted although it has subscriptions, if these have no backlog.
    takes_subscriptions: bool = False
    # How long it may be unused before that.
    inactive_s_max: float = 60.0


# Of system topics, and of the topic of the health check.
NEVER = Inactivity()


def inactivity(
    config: InactivityConfig, creation: AutoCreationConfig, levels: Levels
) -> Inactivity:
    """The rule for a topic."""
    # Whole: a level that sets it sets all three values.
    policy = nearest(
        _usable(levels.topic.inactive_topics), _usable(levels.namespace.inactive_topics), None
    )
    # An explicit policy also deletes topics that their use would not create again.
    if policy is not None:
        return Inactivity(
            policy.delete_while_inactive,
            policy.delete_mode == WHEN_CAUGHT_UP,
            policy.inactive_s_max,
        )
    # No level above the broker has a rule. A namespace that does not create topics on use keeps
    # those that were created by hand.
    override = levels.namespace.auto_topic_creation_override
    if override is not None and not override.allowed:
        return NEVER
    return Inactivity(
        # As above: where its use does not create a topic, it is not deleted either.
        config.deletes_topics and creation.auto_topic_creation,
        config.mode == WHEN_CAUGHT_UP,
        config.unused_s_max or config.check_s,
    )


def _usable(policy: InactiveTopics | None) -> InactiveTopics | None:
    """None for an impossible policy, as other writers of the record may have left it."""
    if policy is None or policy.delete_mode not in DELETE_MODES or policy.inactive_s_max <= 0:
        return None
    return policy


def check_inactive_topics(policy: InactiveTopics) -> None:
    """Raise ``InvalidPolicy`` for an unknown mode, or a duration that is not positive."""
    if policy.delete_mode not in DELETE_MODES:
        raise InvalidPolicy(f"inactiveTopicDeleteMode should be one of {', '.join(DELETE_MODES)}")
    if not 0 < policy.inactive_s_max <= INT_MAX:
        raise InvalidPolicy("maxInactiveDurationSeconds must be > 0")


def is_over(rule: Inactivity, *, idle_s: float, retention_ms: int) -> bool:
    """Whether a topic that was not used for ``idle_s`` is to be deleted. ``retention_ms`` is how
    long its messages are retained; it is not deleted before that."""
    # Deleting the topic would delete its messages: those that are retained keep it.
    if idle_s < rule.inactive_s_max or retention_ms == FOR_EVER:
        return False
    # From the last use on, which is later than the last message: no message is deleted too early.
    return idle_s * 1000 >= retention_ms
