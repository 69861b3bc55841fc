"""What holds for each topic of a broker, from the policies of its namespace as they are now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from geminga_broker.policies.effective import (
    EffectivePolicies,
    PolicyConfig,
    effective_policies,
    sharing,
)
from geminga_broker.policies.inactivity import NEVER
from geminga_broker.policies.levels import Levels
from geminga_cluster.errors import NamespaceNotFound
from geminga_cluster.system_topics import is_system_topic
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_protocol.records.namespaces import Policies

PoliciesOf = Callable[[NamespaceName], Awaitable[Policies]]
"""The policies of a namespace; raises ``NamespaceNotFound``."""

# Namespaces of which it is kept what their policies mean; those of others are resolved anew.
NAMESPACES_KEPT_MAX = 1_000


async def no_policies(_: NamespaceName) -> Policies:
    """Of namespaces that say nothing."""
    return Policies()


class PolicyResolver:
    """Resolves by ``config`` what ``policies_of`` a namespace says to topics on brokers of
    ``cluster``.

    Topics for which the same holds share one object: there may be very many of them.
    """

    def __init__(
        self, config: PolicyConfig, policies_of: PoliciesOf, *, cluster: str = "standalone"
    ) -> None:
        self.config = config
        self._policies_of = policies_of
        self.cluster = cluster
        self._common = effective_policies(config, Levels(cluster=cluster))
        # By namespace, and whether the topic is the brokers' own.
        self._resolved: dict[tuple[NamespaceName, bool], tuple[Policies, EffectivePolicies]] = {}

    async def of(self, name: TopicName) -> EffectivePolicies:
        """What holds for a topic now. Raises what asking for its namespace raises."""
        try:
            policies = await self._policies_of(name.namespace)
        except NamespaceNotFound:
            # A broker's own namespace, for its health check, has none; its topic stays.
            return replace(self.resolve(name, Policies()), inactivity=NEVER)
        return self.resolve(name, policies)

    def resolve(self, name: TopicName, policies: Policies) -> EffectivePolicies:
        """What ``policies`` of its namespace mean for a topic."""
        kind = name.namespace, is_system_topic(name)
        known = self._resolved.get(kind)
        if known is None or known[0] is not policies:
            if len(self._resolved) >= NAMESPACES_KEPT_MAX:
                self._resolved.clear()
            said = Levels(namespace=policies, cluster=self.cluster)
            held = effective_policies(self.config, said, is_system=kind[1])
            known = self._resolved[kind] = policies, sharing(held, self._common)
        return known[1]
