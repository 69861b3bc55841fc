"""What clients look up before they use a topic: its owner, its partitions, the other topics of its
namespace, and whether it is created on use.

Lookups over the binary protocol come here. Those that come before the broker is registered wait.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from geminga_broker.errors import NotAllowed, TopicNotFound
from geminga_broker.non_persistent_topics import NonPersistentTopics
from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.policies.auto_creation import (
    ALWAYS,
    AutoCreation,
    AutoCreationConfig,
    auto_creation,
)
from geminga_cluster.errors import NamespaceNotFound, PartitionedTopicExists
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_cluster.persistent_topics import PersistentTopics
from geminga_protocol.pulsar.system_topics import is_system_topic
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName


@dataclass(slots=True, eq=False)
class Discovery:
    """Answers from the cluster's records."""

    ownership: Ownership
    namespaces: Namespaces
    partitioned_topics: PartitionedTopics
    persistent_topics: PersistentTopics
    non_persistent_topics: NonPersistentTopics
    # The broker's setting, which counts where a namespace has none.
    auto_creation: AutoCreationConfig = field(kw_only=True)
    # Set when the broker is registered: whatever is asked before waits for it. Never cleared: a
    # broker that closes refuses lookups by its ownership (``check_ready``).
    is_open: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def owner(self, topic: TopicName, *, authoritative: bool = False) -> Owner:
        """The broker that serves ``topic``, or the one to ask instead (``Ownership.owner``).

        A bundle without an owner is acquired where it is placed on this broker, or where the client
        was sent here with authority.
        """
        await self.is_open.wait()
        return await self.ownership.owner(topic, authoritative=authoritative)

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """The number of partitions; 0 for a topic that is not partitioned.

        With ``create``, a topic that its use would create is answered as if it existed; if its
        namespace wants it partitioned, it is created. Raises ``NamespaceNotFound``,
        ``TenantNotFound``, ``TopicNotFound``, ``ServedInOtherClusters``.
        """
        await self.is_open.wait()
        # Raises where there is no such namespace, before anything else is asked.
        rule = await self._rule(topic)
        # As upstream, topics that a peer cluster serves are answered, too. For all others this
        # raises if this cluster does not serve them.
        await self.ownership.peer_of(topic.namespace)
        if topic.partition_index < 0:
            # A partition is not partitioned itself.
            partitions = await self.partitioned_topics.partitions(topic)
            if partitions:
                return partitions
        # Not partitioned so far. What its use would create is not created here, unless it is to be
        # partitioned: the topic itself is created by the broker that serves it. Upstream creates
        # the metadata of the partitioned topic at this request, too, which clients send before they
        # use a topic.
        is_created = create and rule.is_allowed
        wanted = rule.partitions if topic.partition_index < 0 else 0
        # Existence is asked only where it matters: a topic that may be created without partitions
        # is answered with 0 in either case.
        if (is_created and not wanted) or await self._exists(topic):
            return 0
        if not is_created:
            raise TopicNotFound(str(topic))
        # ``create`` makes the record alone; each partition is created by its first user.
        with suppress(PartitionedTopicExists):  # another client's request was faster
            await self.partitioned_topics.create(topic, wanted)
        # Read again, and not ``wanted``: the faster request may have come from a broker with
        # another setting.
        return await self.partitioned_topics.partitions(topic)

    async def may_create(self, topic: TopicName) -> bool:
        """Whether using ``topic``, which does not exist, creates it.

        A missing partition of an existing partitioned topic is created in any case. Raises
        ``NamespaceNotFound``, ``TenantNotFound``; ``NotAllowed`` for a partition that its topic
        does not have.
        """
        await self.is_open.wait()
        rule = await self._rule(topic)
        # A topic that is not a partition: its namespace's rule decides.
        if topic.partition_index < 0:
            return rule.is_allowed
        # None: the name only looks like that of a partition.
        record = await self.partitioned_topics.metadata(topic.base)
        if record is None:
            return rule.is_allowed and topic.is_persistent
        # The text is upstream's. The client does not retry: more partitions come by an update only.
        if topic.partition_index >= record.partitions:
            raise NotAllowed(
                f"Illegal topic partition name {topic} with max allowed "
                f"{record.partitions} partitions"
            )
        # Creating the partitioned topic allowed its partitions. One may be missing as it was
        # deleted alone, or as it is not persistent and so stored nowhere. A topic that is being
        # deleted is marked first (``deleted``): its partitions must not come back one by one while
        # they are deleted.
        return not record.deleted

    async def _rule(self, topic: TopicName) -> AutoCreation:
        policies = await self.namespaces.policies(topic.namespace)
        # Brokers need these, whatever the namespace says.
        if is_system_topic(topic):
            return ALWAYS
        return auto_creation(self.auto_creation, policies)

    async def _exists(self, topic: TopicName) -> bool:
        if topic.is_persistent:
            # By its node in ZooKeeper, whether or not a broker has it loaded.
            return await self.persistent_topics.exists(topic)
        if topic.partition_index >= 0:
            # A non-persistent partition counts as existing, for its owner may just not have loaded
            # it.
            return topic.partition_index < await self.partitioned_topics.partitions(topic.base)
        return await self.non_persistent_topics.exists(topic)

    async def persistent_topics_of(self, namespace: NamespaceName) -> list[TopicName]:
        """The stored topics of the namespace, each partition by itself; none for an unknown one."""
        await self.is_open.wait()
        return await self.persistent_topics.names(namespace)

    async def non_persistent_topics_of(self, namespace: NamespaceName) -> list[TopicName]:
        """The non-persistent topics of the namespace on all brokers; none for an unknown one.

        Raises as ``NonPersistentTopics`` does where another broker does not answer.
        """
        await self.is_open.wait()
        try:
            ring = await self.ownership.rings.ring_of(namespace)
        except NamespaceNotFound:
            return []
        return await self.non_persistent_topics.of(ring)
