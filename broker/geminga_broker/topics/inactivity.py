"""Which topics nobody uses any more, so that they are deleted. Pure.

The rules are upstream's (``checkGC`` of ``PersistentTopic``), but for one: where using a topic does
not make it, none is deleted unless its namespace asks for it by a policy of its own. Whoever made
it by hand would find it gone, and nothing would bring it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from geminga_broker.log.retention import FOR_EVER
from geminga_broker.metadata.policy_rules import DELETE_MODES, WHEN_CAUGHT_UP
from geminga_protocol.records.namespaces import Policies

DeleteMode = Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InactivityOptions:
    """What becomes of topics that nobody uses, where a namespace does not say; upstream's names in
    brackets."""

    deletes_topics: bool = True
    """They are deleted (brokerDeleteInactiveTopicsEnabled)."""
    check_s: Annotated[float, Gt(0)] = 60.0
    """How often it is looked for them (brokerDeleteInactiveTopicsFrequencySeconds)."""
    mode: DeleteMode = "delete_when_no_subscriptions"
    """delete_when_no_subscriptions, or delete_when_subscriptions_caught_up: those too whose
    subscriptions have no backlog, with their subscriptions (brokerDeleteInactiveTopicsMode)."""
    unused_s_max: Annotated[float, Ge(0)] = 0.0
    """After how long without use; 0: as often as it is looked
    (brokerDeleteInactiveTopicsMaxInactiveDurationSeconds)."""

    @property
    def inactive_s_max(self) -> float:
        """After how long without use a topic is deleted."""
        return self.unused_s_max or self.check_s


@dataclass(frozen=True, slots=True)
class Inactivity:
    """What holds for a topic."""

    is_deleting: bool = False
    takes_subscriptions: bool = False
    inactive_s_max: float = 60.0

    @classmethod
    def default(cls, options: InactivityOptions, *, is_made_by_use: bool) -> Inactivity:
        """What holds where a namespace says nothing; whether using a topic makes it there."""
        return cls(
            options.deletes_topics and is_made_by_use,
            options.mode == WHEN_CAUGHT_UP,
            options.inactive_s_max,
        )


NEVER = Inactivity()


def inactivity(policies: Policies, default: Inactivity) -> Inactivity:
    """What holds in a namespace with these policies."""
    policy = policies.inactive_topics
    if policy is not None and policy.delete_mode in DELETE_MODES and policy.inactive_s_max > 0:
        return Inactivity(
            policy.delete_while_inactive,
            policy.delete_mode == WHEN_CAUGHT_UP,
            policy.inactive_s_max,
        )
    creation = policies.auto_topic_creation_override
    return NEVER if creation is not None and not creation.allowed else default


def is_over(rule: Inactivity, *, idle_s: float, retention_ms: int) -> bool:
    """Whether a topic may go that nobody has used for ``idle_s``; what is published to it is kept
    for ``retention_ms`` after that."""
    if idle_s < rule.inactive_s_max or retention_ms == FOR_EVER:
        return False
    return idle_s * 1000 >= retention_ms
