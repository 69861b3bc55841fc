"""The persistent topics: the nodes of their managed ledgers under ``/managed-ledgers``.

A topic exists when its node does, even before anything was written to it. Only the broker that
serves the topic writes the node's content; here it is only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName, decode_local
from geminga_protocol.records.topics.cursor import CursorRecord
from geminga_protocol.records.topics.managed_ledger import (
    MANAGED_LEDGERS_PATH,
    ManagedLedgerRecord,
    managed_ledger_path,
)
from geminga_runtime.coordination import Coordination, NodeMissing, NodeStat

# The nodes of a topic; names of topics and cursors are URL-encoded:
#
#     /managed-ledgers/<tenant>/<namespace>/persistent/<topic>              ManagedLedgerInfo
#     /managed-ledgers/<tenant>/<namespace>/persistent/<topic>/<cursor>     ManagedCursorInfo


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """A cursor's record and the facts of its node."""

    record: CursorRecord
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class StoredLog:
    """A topic's record and the facts of its node; its cursors by name."""

    record: ManagedLedgerRecord
    stat: NodeStat
    cursors: Mapping[str, StoredCursor]


@dataclass(eq=False, slots=True)
class PersistentTopics:
    """The persistent topics. Nothing is cached: the lists are long and change often."""

    coordination: Coordination

    async def names(self, namespace: NamespaceName) -> list[TopicName]:
        """The namespace's topics, partitions one by one, sorted; empty for an unknown one."""
        try:
            # One request, whatever the number of topics: ZooKeeper answers with all names at once.
            encoded = await self.coordination.children(domain_path(namespace, "persistent"))
        except NodeMissing:  # no topic was ever created in the namespace
            return []
        return sorted(topics_named(namespace, encoded), key=lambda topic: topic.full)

    async def stored(self, topic: TopicName) -> StoredLog | None:
        """The records of a topic in ZooKeeper, loaded or not; None where it does not exist."""
        path = topic_path(topic)
        try:
            value, stat = await self.coordination.get(path)
            # Several requests, not one snapshot: the cursors may be newer than the record.
            names = await self.coordination.children(path)
        except NodeMissing:
            return None
        cursors: dict[str, StoredCursor] = {}
        for name in names:
            # A cursor may be deleted between the list and its turn. One request after the other: a
            # topic has few cursors, and operators ask for one topic at a time.
            with suppress(NodeMissing):
                cursor, cursor_stat = await self.coordination.get(f"{path}/{name}")
                cursors[decode_local(name)] = StoredCursor(CursorRecord.decode(cursor), cursor_stat)
        return StoredLog(ManagedLedgerRecord.decode(value), stat, cursors)

    async def cursors(self, topic: TopicName) -> list[str]:
        """The names of the topic's cursors; none where it does not exist."""
        try:
            return list(map(decode_local, await self.coordination.children(topic_path(topic))))
        except NodeMissing:
            return []

    async def exists(self, topic: TopicName) -> bool:
        """Whether the topic, or the partition, has a managed ledger."""
        # Without the content: a topic's record may have many ledgers, and no part of it is needed.
        return await self.coordination.exists(topic_path(topic)) is not None


def topic_path(topic: TopicName) -> str:
    """The node of a persistent topic: its log's."""
    return managed_ledger_path(topic.managed_ledger_name)


def domain_path(namespace: NamespaceName, domain: str) -> str:
    """The parent of the nodes of a namespace's topics."""
    return f"{MANAGED_LEDGERS_PATH}/{namespace}/{domain}"


def topics_named(
    namespace: NamespaceName, encoded_locals: Iterable[str], domain: str = "persistent"
) -> Iterator[TopicName]:
    """The topics whose nodes have these names, in their order; parsed one by one as they are taken,
    since a namespace may have very many."""
    for encoded in encoded_locals:
        try:
            topic = TopicName.of(domain, namespace.tenant, namespace.local, decode_local(encoded))
        except InvalidTopicName:  # another program has written this node
            continue
        yield topic
