"""The levels at which a policy can be set: the topic, its namespace, its broker. Pure.

The nearest level that sets a policy decides: the topic before the namespace before the broker, each
policy for itself (upstream's ``HierarchyTopicPolicies`` of ``PolicyHierarchyValue``s). A value that
means nothing, as a limit below 0, counts as not set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.cluster.topic_policies import NO_TOPIC_POLICIES, TopicPolicies

# Numbers are bounded as Java's are (``int``, ``long``): a larger one would make a record unreadable
# for a Java broker of the same cluster.
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

PolicyT = TypeVar("PolicyT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """What is set above the broker's config.

    A namespace has one rate for each cluster: that of ``cluster``, the broker's own, counts.
    """

    topic: TopicPolicies = NO_TOPIC_POLICIES
    namespace: Policies = field(default_factory=Policies)
    cluster: str = "standalone"


#     topic ──set?──▶ namespace ──set?──▶ broker's config, which always has a value
def nearest(topic: PolicyT | None, namespace: PolicyT | None, broker: PolicyT) -> PolicyT:
    """The value of the nearest level that sets one."""
    # None alone means "not set": False and 0 are values, and hide those of the levels above.
    if topic is not None:
        return topic
    return broker if namespace is None else namespace


def nearest_limit(topic: int | None, namespace: int | None, broker: int) -> int:
    """The same for a limit, which counts as not set where it is below 0."""
    above = (each for each in (topic, namespace) if each is not None and each >= 0)
    return next(above, broker)
