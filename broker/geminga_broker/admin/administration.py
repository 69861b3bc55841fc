"""What the REST side does with the topics of this broker.

Callers have made sure that this broker owns the bundle of each topic (``owner_routes``). A topic
that exists and is not loaded is loaded, unless a method says otherwise.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from geminga_broker.admin.documents.internal_stats import Document
from geminga_broker.admin.documents.topic_stats import TopicStats
from geminga_broker.admin.topics.internal_stats import internal_stats
from geminga_broker.admin.topics.stats import StatsQuery, add_earliest, topic_stats
from geminga_broker.compaction.report import CompactionReport
from geminga_broker.errors import NotAllowed, TopicNotFound
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_ledger import Ledgers, NoSuchLedger
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata


@dataclass(frozen=True, slots=True, eq=False)
class Administration:
    """Administers the topics of one broker."""

    # The topics themselves, for what takes no more than a call of theirs: to create, to delete.
    topics: TopicDirectory
    # Asked for the metadata of ledgers only.
    ledgers: Ledgers
    ownership: Ownership

    async def topic_stats(self, topic: TopicName, query: StatsQuery) -> TopicStats:
        """The stats of a topic. Raises ``TopicNotFound``."""
        loaded = await self.topics.get(topic, create=False)
        stats = topic_stats(loaded, query, self.ownership.address.broker_id)
        # The only part of the stats that reads from bookies.
        if query.earliest_time_in_backlog and loaded.name.is_persistent:
            await add_earliest(stats, loaded)
        return stats

    async def internal_stats(self, topic: TopicName, *, with_metadata: bool) -> Document:
        """The ledgers and cursors of a topic, ``with_metadata`` with the stored metadata of each
        ledger. Raises ``TopicNotFound``."""
        loaded = await self.topics.get(topic, create=False)
        compaction = loaded.find(TopicCompaction)
        if compaction is None:
            # Only persistent topics have a part for compaction.
            return internal_stats(loaded, {})
        # Before the metadata, which takes an ``await`` for each ledger: the rest of the stats is
        # then read in one turn.
        compacted = await compaction.view.ledger_stats()
        metadata: dict[int, LedgerMetadata] = {}
        if with_metadata:
            # One after the other: a topic may have thousands of ledgers, and an operator can wait.
            for span in loaded.managed_ledger.chain.spans:
                with suppress(NoSuchLedger):  # trimmed meanwhile
                    metadata[span.ledger_id] = await self.ledgers.metadata(span.ledger_id)
        return internal_stats(loaded, metadata, compacted)

    async def unload_topic(self, topic: TopicName) -> None:
        """Close a topic if it is loaded; its clients look it up again. Raises ``TopicNotFound``."""
        # Without loading it: what is not loaded has nothing to close.
        if not await self.topics.exists(topic):
            raise TopicNotFound(str(topic))
        await self.topics.unload(topic)

    async def trim_topic(self, topic: TopicName) -> None:
        """Delete the ledgers of a persistent topic that are acknowledged and not retained. Raises
        ``TopicNotFound``."""
        await (await self.persistent_topic(topic)).managed_ledger.trimmer.trim()

    async def truncate_topic(self, topic: TopicName) -> None:
        """Delete all messages of a persistent topic. Raises ``TopicNotFound``."""
        await (await self.persistent_topic(topic)).truncate()

    async def compact_topic(self, topic: TopicName) -> None:
        """Start the compaction of a persistent topic. Raises ``TopicNotFound``,
        ``CompactionRunning``."""
        await (await self.persistent_topic(topic)).part(TopicCompaction).trigger()

    async def compaction_report(self, topic: TopicName) -> CompactionReport:
        """The outcome of a topic's last compaction. Raises ``TopicNotFound``."""
        return (await self.persistent_topic(topic)).part(TopicCompaction).report

    async def terminate_topic(self, topic: TopicName) -> Position:
        """Terminate a persistent topic: it takes no more messages. Returns the position of its
        last one. Raises ``TopicNotFound``."""
        return await (await self.persistent_topic(topic)).terminate()

    async def persistent_topic(self, topic: TopicName, *, create: bool = False) -> Topic:
        """A persistent topic itself, with ``create`` created if it does not exist: for requests
        about its subscriptions and its messages. Raises ``TopicNotFound``, ``NotAllowed`` for a
        non-persistent topic."""
        # A topic that does not exist is reported as that, whatever its kind.
        loaded = await self.topics.get(topic, create=create)
        if not loaded.name.is_persistent:
            raise NotAllowed(f"{topic} keeps no messages")
        return loaded

    async def subscription_names(self, topic: TopicName) -> list[str]:
        """The names of the subscriptions of a topic. Raises ``TopicNotFound``."""
        if not await self.topics.exists(topic):
            raise TopicNotFound(str(topic))
        return list((await self.topics.get(topic, create=False)).subscribing.subscriptions)

    async def copy_subscriptions(self, source: TopicName, target: TopicName) -> bool:
        """Give the new partition ``target`` the durable subscriptions of an older one, from its
        first message on. False where there is no ``source``.

        Raises ``TopicNotFound`` where there is no ``target``.
        """
        try:
            known = await self.topics.get(source, create=False)
        except TopicNotFound:
            return False
        fresh = await self.topics.get(target, create=False)
        stored = known.find(PersistentSubscriptions)
        if stored is not None:
            for subscription in stored.subscriptions.values():
                # Others go with their consumer, which the new partition does not have. The cursor
                # of a reader, say: the client makes a new one for the new partition.
                if subscription.cursor.is_durable:
                    await fresh.subscribing.create(subscription.name, from_earliest=True)
        return True
