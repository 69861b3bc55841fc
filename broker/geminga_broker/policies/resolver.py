"""What holds for each topic of a broker, from what it says itself and its namespace, as of now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from geminga_broker.policies.effective import (
    EffectivePolicies,
    PolicyConfig,
    effective_policies,
    sharing,
)
from geminga_broker.policies.inactivity import NEVER
from geminga_broker.policies.levels import Levels
from geminga_cluster.errors import NamespaceNotFound
from geminga_protocol.pulsar.system_topics import is_change_events, is_system_topic
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_protocol.records.namespaces import Policies
from geminga_protocol.records.topic_policies import NO_TOPIC_POLICIES, TopicPolicies

PoliciesOf = Callable[[NamespaceName], Awaitable[Policies]]
"""The policies of a namespace; raises ``NamespaceNotFound``."""

# Namespaces of which it is kept what their policies mean; those of others are resolved anew.
NAMESPACES_KEPT_MAX = 1_000
# The same for topics that say something themselves: 1 KB each.
TOPICS_KEPT_MAX = 10_000


async def no_policies(_: NamespaceName) -> Policies:
    """Of namespaces that say nothing."""
    return Policies()


class TopicPolicySource(Protocol):
    """What topics say of themselves. Questions raise ``GemingaError`` where that is not known."""

    async def ready(self, namespace: NamespaceName) -> None:
        """Return when it is known what the topics of a namespace say."""
        ...

    def known(self, topic: TopicName) -> TopicPolicies:
        """What ``topic`` says, as far as it is known; asks nobody."""
        ...

    async def delete(self, topic: TopicName) -> None:
        """``topic`` is being deleted, and what it says with it."""
        ...


class NothingSaid:
    """Of topics that say nothing."""

    async def ready(self, namespace: NamespaceName) -> None:
        """It is known."""

    def known(self, topic: TopicName) -> TopicPolicies:
        """Nothing."""
        del topic
        return NO_TOPIC_POLICIES

    async def delete(self, topic: TopicName) -> None:
        """Nothing to do."""


class PolicyResolver:
    """Resolves by ``config`` what ``policies_of`` a namespace, and ``topics`` themselves, say to
    topics on brokers of ``cluster``.

    Topics for which the same holds share one object: there may be very many of them.
    """

    def __init__(
        self,
        config: PolicyConfig,
        policies_of: PoliciesOf,
        *,
        cluster: str = "standalone",
        topics: TopicPolicySource | None = None,
    ) -> None:
        self.config = config
        self._policies_of = policies_of
        self.cluster = cluster
        self.topics = topics or NothingSaid()
        self._common = effective_policies(config, Levels(cluster=cluster))
        # By namespace, and whether the topic is the brokers' own, and where policies stand.
        self._resolved: dict[
            tuple[NamespaceName, bool, bool], tuple[Policies, EffectivePolicies]
        ] = {}
        # By topic, of those that say something.
        self._by_topic: dict[TopicName, tuple[Policies, TopicPolicies, EffectivePolicies]] = {}

    async def of(self, name: TopicName) -> EffectivePolicies:
        """What holds for a topic now. Raises what asking for its namespace raises."""
        try:
            policies = await self._policies_of(name.namespace)
        except NamespaceNotFound:
            # A broker's own namespace, for its health check, has none; its topic stays.
            return replace(self.resolve(name, Policies()), inactivity=NEVER)
        if not is_system_topic(name):
            await self.topics.ready(name.namespace)
        return self.resolve(name, policies)

    def resolve(self, name: TopicName, policies: Policies) -> EffectivePolicies:
        """What ``policies`` of its namespace, and what is known of its own, mean for a topic."""
        said_by_topic = self.topics.known(name)
        if said_by_topic is not NO_TOPIC_POLICIES:
            return self._resolve_own(name.base, policies, said_by_topic)
        kind = name.namespace, is_system_topic(name), is_change_events(name)
        known = self._resolved.get(kind)
        if known is None or known[0] is not policies:
            if len(self._resolved) >= NAMESPACES_KEPT_MAX:
                self._resolved.clear()
            said = Levels(namespace=policies, cluster=self.cluster)
            held = effective_policies(
                self.config, said, is_system=kind[1], is_change_events=kind[2]
            )
            known = self._resolved[kind] = policies, sharing(held, self._common)
        return known[1]

    def _resolve_own(
        self, topic: TopicName, policies: Policies, said: TopicPolicies
    ) -> EffectivePolicies:
        known = self._by_topic.get(topic)
        if known is not None and known[0] is policies and known[1] == said:
            return known[2]
        if len(self._by_topic) >= TOPICS_KEPT_MAX:
            self._by_topic.clear()
        levels = Levels(topic=said, namespace=policies, cluster=self.cluster)
        held = sharing(effective_policies(self.config, levels), self._common)
        self._by_topic[topic] = policies, said, held
        return held
