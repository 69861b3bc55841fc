"""Which topics nobody uses any more, so that they are deleted. Pure.

The rules are upstream's (``checkGC`` of ``PersistentTopic``), but for one: where using a topic does
not make it, none is deleted unless its namespace asks for it by a policy of its own. Whoever made
it by hand would find it gone, and nothing would bring it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from annotated_types import Ge, Gt

from geminga_broker.managed_ledger.ledger_chain.retention import FOR_EVER
from geminga_broker.policies.auto_creation import AutoCreationConfig
from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import INT_MAX, Levels, nearest
from geminga_protocol.records.namespaces import InactiveTopics
from geminga_server.config import Upstream

DeleteMode = Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]
DELETE_MODES: tuple[str, ...] = get_args(DeleteMode)
WHEN_CAUGHT_UP: DeleteMode = "delete_when_subscriptions_caught_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class InactivityConfig:
    """What becomes of topics that nobody uses, where a namespace does not say."""

    deletes_topics: Annotated[bool, Upstream("brokerDeleteInactiveTopicsEnabled")] = True
    """They are deleted."""
    check_s: Annotated[float, Gt(0), Upstream("brokerDeleteInactiveTopicsFrequencySeconds")] = 60.0
    """How often it is looked for them."""
    mode: Annotated[DeleteMode, Upstream("brokerDeleteInactiveTopicsMode")] = (
        "delete_when_no_subscriptions"
    )
    """delete_when_no_subscriptions, or delete_when_subscriptions_caught_up: those too whose
    subscriptions have no backlog, with their subscriptions."""
    unused_s_max: Annotated[
        float, Ge(0), Upstream("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds")
    ] = 0.0
    """After how long without use; 0: as often as it is looked."""


@dataclass(frozen=True, slots=True)
class Inactivity:
    """What holds for a topic."""

    is_deleting: bool = False
    takes_subscriptions: bool = False
    inactive_s_max: float = 60.0


NEVER = Inactivity()


def inactivity(config: InactivityConfig, creation: AutoCreationConfig, said: Levels) -> Inactivity:
    """What holds for a topic of which the levels say this."""
    policy = nearest(
        _usable(said.topic.inactive_topics), _usable(said.namespace.inactive_topics), None
    )
    if policy is not None:
        return Inactivity(
            policy.delete_while_inactive,
            policy.delete_mode == WHEN_CAUGHT_UP,
            policy.inactive_s_max,
        )
    override = said.namespace.auto_topic_creation_override
    if override is not None and not override.allowed:
        return NEVER
    return Inactivity(
        config.deletes_topics and creation.auto_topic_creation,
        config.mode == WHEN_CAUGHT_UP,
        config.unused_s_max or config.check_s,
    )


def _usable(policy: InactiveTopics | None) -> InactiveTopics | None:
    """None for a policy that was written by somebody who did not check it."""
    if policy is None or policy.delete_mode not in DELETE_MODES or policy.inactive_s_max <= 0:
        return None
    return policy


def check_inactive_topics(policy: InactiveTopics) -> None:
    """Raise ``InvalidPolicy`` for a mode there is not, or a time in which nobody could come."""
    if policy.delete_mode not in DELETE_MODES:
        raise InvalidPolicy(f"inactiveTopicDeleteMode should be one of {', '.join(DELETE_MODES)}")
    if not 0 < policy.inactive_s_max <= INT_MAX:
        raise InvalidPolicy("maxInactiveDurationSeconds must be > 0")


def is_over(rule: Inactivity, *, idle_s: float, retention_ms: int) -> bool:
    """Whether a topic may go that nobody has used for ``idle_s``; what is published to it is kept
    for ``retention_ms`` after that."""
    if idle_s < rule.inactive_s_max or retention_ms == FOR_EVER:
        return False
    return idle_s * 1000 >= retention_ms
