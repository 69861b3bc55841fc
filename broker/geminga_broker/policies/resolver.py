"""The effective policies of each topic of a broker, as of now, remembered. Pure.

What this waits for, the policies of namespaces and topics, comes in through the constructor.
"""

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
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.cluster.topic_policies import NO_TOPIC_POLICIES, TopicPolicies

# The policies of a namespace; raises ``NamespaceNotFound``.
PoliciesOf = Callable[[NamespaceName], Awaitable[Policies]]

# How many namespaces' effective policies are remembered. Beyond that all are resolved anew, which
# costs time but changes nothing.
NAMESPACES_KEPT_MAX = 1_000
# The same for topics with policies of their own: 1 KB each.
TOPICS_KEPT_MAX = 10_000


async def no_policies(_: NamespaceName) -> Policies:
    """The policies of namespaces that set none."""
    return Policies()


class TopicPolicySource(Protocol):
    """The policies of single topics; ``topic_policies.store`` implements it.

    What the methods do here is right for brokers whose topics have no policies of their own.
    """

    async def ready(self, namespace: NamespaceName) -> None:
        """Return when the policies of the topics of a namespace are known. Raises ``GemingaError``
        where they cannot be read."""
        del namespace

    def known(self, topic: TopicName) -> TopicPolicies:
        """The policies of ``topic`` as they are known now. Does not wait."""
        del topic
        return NO_TOPIC_POLICIES

    async def delete(self, topic: TopicName) -> None:
        """Remove the policies of ``topic``, which is being deleted."""
        del topic


class NoTopicPolicies(TopicPolicySource):
    """The source of a broker whose topics have no policies of their own."""


class PolicyResolver:
    """Resolves the policies of topics on the brokers of ``cluster``.

    ``config`` has those of the broker, ``policies_of`` returns those of a namespace, and ``topics``
    those of single topics. Topics with the same policies share one object: there may be very many.
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
        self.topics: TopicPolicySource = topics or NoTopicPolicies()
        # What holds where neither namespace nor topic sets anything. Others share its objects. Also
        # what topics of a namespace without policies get, object for object: 100,000 topics then
        # share thirteen objects.
        self._common = effective_policies(config, Levels(cluster=cluster))
        # By namespace, whether it is a system topic, and whether it is ``__change_events``; with
        # the policies of the namespace that they were resolved from.
        self._resolved: dict[
            tuple[NamespaceName, bool, bool], tuple[Policies, EffectivePolicies]
        ] = {}
        # By topic, of those that have policies of their own; with what they were resolved from.
        # Keyed by the partitioned topic, whose policies its partitions share.
        self._by_topic: dict[TopicName, tuple[Policies, TopicPolicies, EffectivePolicies]] = {}

    async def of(self, name: TopicName) -> EffectivePolicies:
        """The policies of a topic that is being loaded. Raises what reading those of its namespace,
        or of the namespace's topics, raises."""
        try:
            policies = await self._policies_of(name.namespace)
        except NamespaceNotFound:
            # The namespace of a broker's health check has no record. Its topic is never deleted.
            return replace(self.resolve(name, Policies()), inactivity=NEVER)
        # The policies of topics are stored in a system topic: loading that must not wait for them.
        if not is_system_topic(name):
            await self.topics.ready(name.namespace)
        return self.resolve(name, policies)

    def resolve(self, name: TopicName, policies: Policies) -> EffectivePolicies:
        """The policies of a topic whose namespace has ``policies``, with those of its own that are
        known. Does not wait."""
        # Read anew each time: a change of these is notified after it can be read here. No await in
        # this method, so that a policy that is set while a topic loads is either in here, or
        # notified after the topic is open.
        own = self.topics.known(name)
        if own is not NO_TOPIC_POLICIES:
            return self._resolve_own(name.base, policies, own)
        # All that tells two topics of a namespace apart which have no policies of their own.
        kind = name.namespace, is_system_topic(name), is_change_events(name)
        known = self._resolved.get(kind)
        # By identity: namespaces hand out one object until their record changes.
        if known is None or known[0] is not policies:
            # Simpler than forgetting the oldest, and as good: a broker with so many namespaces is
            # rare.
            if len(self._resolved) >= NAMESPACES_KEPT_MAX:
                self._resolved.clear()
            levels = Levels(namespace=policies, cluster=self.cluster)
            effective = effective_policies(
                self.config, levels, is_system=kind[1], is_change_events=kind[2]
            )
            known = self._resolved[kind] = policies, sharing(effective, self._common)
        return known[1]

    def _resolve_own(
        self, topic: TopicName, policies: Policies, own: TopicPolicies
    ) -> EffectivePolicies:
        known = self._by_topic.get(topic)
        # The own policies by value, as the source may merge them anew for each call; those of the
        # namespace by identity, as in ``resolve``.
        if known is not None and known[0] is policies and known[1] == own:
            return known[2]
        if len(self._by_topic) >= TOPICS_KEPT_MAX:
            self._by_topic.clear()
        levels = Levels(topic=own, namespace=policies, cluster=self.cluster)
        effective = sharing(effective_policies(self.config, levels), self._common)
        self._by_topic[topic] = policies, own, effective
        return effective
