"""Which persistent topics exist: their managed ledgers' nodes under ``/managed-ledgers``.

A topic exists when its node does, even before anything was written to it; what the node holds is
the business of ``log``.
"""

from __future__ import annotations

from magnetar_protocol.pulsar.errors import InvalidTopicName
from magnetar_protocol.pulsar.topic_names import NamespaceName, TopicName, decode_local
from magnetar_runtime.coordination import Coordination, NodeMissing

MANAGED_LEDGERS_PATH = "/managed-ledgers"


class PersistentTopics:
    """The names of the persistent topics. Nothing is cached: the lists are long and change."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination

    async def names(self, namespace: NamespaceName) -> list[TopicName]:
        """The namespace's topics, partitions one by one, sorted; empty for an unknown one."""
        try:
            encoded = await self._coordination.children(domain_path(namespace, "persistent"))
        except NodeMissing:
            return []
        topics = [_topic_named(namespace, each) for each in encoded]
        return sorted(
            (topic for topic in topics if topic is not None), key=lambda topic: topic.full
        )

    async def exists(self, topic: TopicName) -> bool:
        """Whether the topic, or the partition, has a managed ledger."""
        return await self._coordination.exists(managed_ledger_path(topic)) is not None


def managed_ledger_path(topic: TopicName) -> str:
    """The node of a persistent topic."""
    return f"{MANAGED_LEDGERS_PATH}/{topic.managed_ledger_name}"


def domain_path(namespace: NamespaceName, domain: str) -> str:
    """The parent of the nodes of a namespace's topics."""
    return f"{MANAGED_LEDGERS_PATH}/{namespace}/{domain}"


def _topic_named(namespace: NamespaceName, encoded_local: str) -> TopicName | None:
    try:
        local = decode_local(encoded_local)
        return TopicName.of("persistent", namespace.tenant, namespace.local, local)
    except InvalidTopicName:
        return None  # not a topic's node: nothing that a client could name
