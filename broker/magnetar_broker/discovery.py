"""What clients ask before they connect to a topic: who owns it, its partitions, its neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_broker.metadata.namespaces import Namespaces
from magnetar_broker.metadata.partitioned_topics import PartitionedTopics
from magnetar_broker.metadata.persistent_topics import PersistentTopics
from magnetar_broker.ownership.address import Owner
from magnetar_broker.ownership.ownership import Ownership
from magnetar_protocol.pulsar.topic_names import NamespaceName, TopicName


class Discovery:
    """Answers from the cluster's records; who asks before the broker is ready waits for it."""

    def __init__(
        self,
        ownership: Ownership,
        namespaces: Namespaces,
        partitioned_topics: PartitionedTopics,
        persistent_topics: PersistentTopics,
        *,
        non_persistent_topics: Callable[[NamespaceName], list[TopicName]],
    ) -> None:
        self._ownership = ownership
        self._namespaces = namespaces
        self._partitioned_topics = partitioned_topics
        self._persistent_topics = persistent_topics
        self._non_persistent_topics = non_persistent_topics
        self._is_open = asyncio.Event()

    def open(self) -> None:
        """The broker is registered: answer."""
        self._is_open.set()

    async def owner(self, topic: TopicName) -> Owner:
        """The broker that serves ``topic``; an unowned bundle is taken."""
        await self._is_open.wait()
        return await self._ownership.owner(topic)

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """How many partitions; 0 for a topic that has none.

        Topics made on demand are not partitioned, so ``create`` changes nothing yet. Raises
        ``NamespaceNotFound``, ``TenantNotFound``.
        """
        del create
        await self._is_open.wait()
        await self._namespaces.policies(topic.namespace)
        if topic.partition_index >= 0:
            return 0
        return await self._partitioned_topics.partitions(topic)

    async def topics_of(self, namespace: NamespaceName) -> list[TopicName]:
        """All topics of the namespace, partitions one by one; empty for an unknown one."""
        await self._is_open.wait()
        stored = await self._persistent_topics.names(namespace)
        return stored + self._non_persistent_topics(namespace)
