"""The partitioned topics: how many partitions each has, under ``/admin/partitioned-topics``.

A partition is a topic of its own, ``<name>-partition-<i>``. Creating a persistent partitioned topic
creates the empty managed ledgers of its partitions with it, in one transaction unless they are
thousands, so that a crash leaves all of it or nothing. Clients first ask whether a topic is
partitioned; for a topic that is not, this costs no round trip, since the names of a namespace's
partitioned topics are cached.

Where clusters share a configuration store, it has the records, and the ZooKeeper of the cluster in
which the topic was created has the managed ledgers. In the other clusters the partitions are
created as clients use them. A crash may then leave managed ledgers without a record; creating the
topic again takes them over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from geminga_cluster.errors import (
    PartitionedTopicExists,
    PartitionedTopicNotFound,
    RecordContended,
    TooFewPartitions,
)
from geminga_cluster.persistent_topics import topic_path, topics_named
from geminga_cluster.watched import watched_children, watched_values
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.partitioned_topics import (
    PARTITIONED_TOPICS_PATH,
    PartitionedTopicMetadata,
    partitioned_topic_path,
)
from geminga_runtime.coordination import (
    Coordination,
    Create,
    NodeExists,
    NodeMissing,
    Operation,
    VersionMismatch,
)

# ZooKeeper takes 1 MB in one request; a node with the longest usual name takes about 300 bytes.
CREATES_PER_TRANSACTION = 1000

# A round fails when another process changes the record between our read and our write.
ROUNDS_MAX = 16

# The order of each change. A crash in between leaves what the same request, made again, completes:
#
#     create    the managed ledgers, then the record
#     grow      the managed ledgers, ``prepare`` for each new partition, then the record
#     delete    the mark (``set_deleted``), the partitions (by the caller), then the record

PreparePartition = Callable[[TopicName], Awaitable[None]]


class PartitionedTopics:
    """The partitioned topics of all namespaces. Records are kept in memory under watches.

    ``configuration`` is the configuration store, where that is not the cluster's ZooKeeper.
    """

    def __init__(
        self, coordination: Coordination, configuration: Coordination | None = None
    ) -> None:
        self._coordination = coordination
        self._configuration = configuration or coordination
        # A record by topic, and the encoded names of a namespace's partitioned topics by domain.
        self._records = watched_values(self._configuration, PartitionedTopicMetadata.decode)
        # While the configuration store is away, the cluster goes on serving its topics: clients,
        # which ask first, get the answer that a topic is not partitioned if that was so.
        is_shared = self._configuration is not coordination
        self._names = watched_children(self._configuration, holds_missing=is_shared)

    async def metadata(self, topic: TopicName) -> PartitionedTopicMetadata | None:
        """The record of ``topic``, which is no partition; None if it is not partitioned."""
        # The names of the namespace first, one cached answer for all of its topics: most topics are
        # not partitioned, and a cached "there is no such node" for each would fill the cache.
        names = await self._names.get(_parent_path(topic.namespace, topic.domain))
        if names is None or topic.encoded_local not in names:
            return None
        return await self._records.get(_path(topic))

    async def partitions(self, topic: TopicName) -> int:
        """How many partitions ``topic`` has; 0 if it is not partitioned or does not exist."""
        record = await self.metadata(topic)
        return 0 if record is None else record.partitions

    async def names(self, namespace: NamespaceName, domain: str) -> list[TopicName]:
        """The namespace's partitioned topics of that domain, sorted; empty for an unknown one."""
        names = await self._names.get(_parent_path(namespace, domain)) or frozenset()
        return sorted(topics_named(namespace, names, domain), key=lambda topic: topic.full)

    async def create(
        self, topic: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create ``topic`` with its partitions. Raises ``PartitionedTopicExists``.

        Partitions that exist already, as after an interrupted deletion, are used as they are.
        """
        assert partitions > 0
        # Before the partitions are created: they would stay behind if the record then exists.
        if await self.metadata(topic) is not None:
            raise PartitionedTopicExists(str(topic))
        record = PartitionedTopicMetadata(partitions=partitions, properties=properties)
        path = _path(topic)
        try:
            ledgers = _partition_paths(topic, 0, partitions)
            # Two stores cannot share a transaction. The managed ledgers come first: once clients
            # find the record, all partitions exist.
            if self._configuration is not self._coordination:
                await _create_nodes(self._coordination, ledgers, {})
                ledgers = []
            await _create_nodes(self._configuration, [*ledgers, path], {path: record.encode()})
        except NodeExists:
            raise PartitionedTopicExists(str(topic)) from None
        finally:
            # Also after an error: a creation without an answer may have been carried out.
            self._forget(topic)

    async def grow(
        self, topic: TopicName, partitions: int, prepare: PreparePartition | None = None
    ) -> None:
        """Add partitions until there are ``partitions``; ``prepare`` is awaited for each new one.

        Clients see the new ones only once all are prepared. Raises ``PartitionedTopicNotFound``,
        ``TooFewPartitions``, ``RecordContended``.
        """
        path = _path(topic)
        for _ in range(ROUNDS_MAX):
            try:
                value, stat = await self._configuration.get(path)
            except NodeMissing:
                raise PartitionedTopicNotFound(str(topic)) from None
            record = PartitionedTopicMetadata.decode(value)
            if partitions < record.partitions:
                raise TooFewPartitions(partitions, record.partitions)
            if partitions == record.partitions:
                return
            # Repeating this is harmless: nodes that exist, from a round before, stay. The managed
            # ledgers exist before the record counts them: a client that sees the new number may use
            # each of the partitions at once.
            ledgers = _partition_paths(topic, record.partitions, partitions)
            await _create_nodes(self._coordination, ledgers, {})
            for index in range(record.partitions, partitions):
                if prepare is not None:
                    await prepare(topic.partition(index))
            # Compare and set: if another request grew the topic meanwhile, the next round reads its
            # record and decides anew.
            grown = replace(record, partitions=partitions)
            if await self._replace(topic, grown, stat.version):
                return
        raise RecordContended(f"the partitions of {topic} keep changing while they are changed")

    async def set_deleted(self, topic: TopicName, *, deleted: bool) -> int:
        """Mark the partitions as being deleted, or not; return how many there are.

        Raises ``PartitionedTopicNotFound``, ``RecordContended``.
        """
        path = _path(topic)
        for _ in range(ROUNDS_MAX):
            try:
                value, stat = await self._configuration.get(path)
            except NodeMissing:
                raise PartitionedTopicNotFound(str(topic)) from None
            record = PartitionedTopicMetadata.decode(value)
            # Marked before the first partition is deleted: a crash leaves a topic that is seen to
            # be deleted, and the deletion can be repeated.
            marked = replace(record, deleted=deleted)
            # It is marked already, perhaps by an earlier request of ours that got no answer.
            if record == marked or await self._replace(topic, marked, stat.version):
                return record.partitions
        raise RecordContended(f"the partitions of {topic} keep changing while they are deleted")

    async def delete(self, topic: TopicName) -> None:
        """Delete the record of ``topic``, whose partitions were deleted before. Raises
        ``PartitionedTopicNotFound``."""
        try:
            await self._configuration.delete(_path(topic))
        except NodeMissing:
            raise PartitionedTopicNotFound(str(topic)) from None
        finally:
            self._forget(topic)

    async def _replace(
        self, topic: TopicName, record: PartitionedTopicMetadata, version: int
    ) -> bool:
        """Write a record unless it changed since ``version``; return whether it was written."""
        try:
            await self._configuration.set(_path(topic), record.encode(), version=version)
        # Either way the caller's next round reads the record, and finds out which it was.
        except (VersionMismatch, NodeMissing):
            return False
        finally:
            self._forget(topic)
        return True

    def _forget(self, topic: TopicName) -> None:
        self._records.forget(_path(topic))
        self._names.forget(_parent_path(topic.namespace, topic.domain))


async def _create_nodes(
    coordination: Coordination, paths: Sequence[str], values: Mapping[str, bytes]
) -> None:
    """Create nodes in the order of ``paths``, in transactions of bounded size.

    Nodes without a value may exist; for one with a value ``NodeExists`` is raised.
    """
    # In order: the record stands last, so that a crash between two transactions leaves nodes
    # without a record, never the other way round.
    for start in range(0, len(paths), CREATES_PER_TRANSACTION):
        wanted = list(paths[start : start + CREATES_PER_TRANSACTION])
        while wanted:
            operations: list[Operation] = [Create(path, values.get(path, b"")) for path in wanted]
            try:
                await coordination.transaction(operations)
            except NodeMissing:
                # Parents exist nearly always. ZooKeeper does not say which one is missing. Each is
                # tried, also those that exist: the next round of the loop then finds all of them.
                for parent in sorted({path.rpartition("/")[0] for path in wanted}):
                    with suppress(NodeExists):
                        await coordination.create(parent, make_parents=True)
            except NodeExists as error:
                # A transaction names the first node that exists, and creates none. Each round
                # leaves one node out, so this ends.
                if error.path in values:
                    raise
                wanted.remove(error.path)
            else:
                break


def _path(topic: TopicName) -> str:
    return partitioned_topic_path(str(topic.namespace), topic.domain, topic.encoded_local)


def _parent_path(namespace: NamespaceName, domain: str) -> str:
    return f"{PARTITIONED_TOPICS_PATH}/{namespace}/{domain}"


def _partition_paths(topic: TopicName, first: int, end: int) -> list[str]:
    """The managed ledgers' nodes of partitions first..end-1; none if messages are not stored."""
    if not topic.is_persistent:
        return []
    # A partition is a persistent topic of its own, and its node is that of its log.
    return [topic_path(topic.partition(index)) for index in range(first, end)]
