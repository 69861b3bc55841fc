"""Who says something of a topic: the topic itself, its namespace, its broker. Pure.

The nearest word holds: the topic's before the namespace's before the broker's, each policy for
itself (upstream's ``HierarchyTopicPolicies`` of ``PolicyHierarchyValue``s). What no level can mean,
as a limit below 0, is as good as not said.
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

SaidT = TypeVar("SaidT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """What is said above the broker's config. Rates are a namespace's for each cluster: that of
    ``cluster``, which the broker belongs to, counts."""

    topic: TopicPolicies = NO_TOPIC_POLICIES
    namespace: Policies = field(default_factory=Policies)
    cluster: str = "standalone"


def nearest(topic: SaidT | None, namespace: SaidT | None, broker: SaidT) -> SaidT:
    """What holds, of what the three levels say."""
    if topic is not None:
        return topic
    return broker if namespace is None else namespace


def nearest_limit(topic: int | None, namespace: int | None, broker: int) -> int:
    """The same for a limit, which says nothing where it is below 0."""
    above = (each for each in (topic, namespace) if each is not None and each >= 0)
    return next(above, broker)
