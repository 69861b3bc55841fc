"""What the REST side has the broker do to its topics, and asks of it (``BrokerFacade``).

Every topic handed in belongs to a bundle that this broker owns: who asks has made sure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from geminga_broker.admin.documents.internal_stats import Document
from geminga_broker.admin.documents.topic_stats import TopicStats
from geminga_broker.admin.facade import StatsQuery
from geminga_broker.admin.topics.internal_stats import internal_stats
from geminga_broker.admin.topics.stats import add_earliest, topic_stats
from geminga_broker.compaction.report import CompactionReport
from geminga_broker.errors import NotAllowed, TopicNotFound
from geminga_broker.health import HealthCheck
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.metrics.collector import BrokerMetrics
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.topics.consuming.stored_subscriptions import StoredSubscriptions
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.topic import Topic
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_ledger import Ledgers, NoSuchLedger
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_protocol.records.ledger_metadata import LedgerMetadata


class Administration:
    """Implements ``BrokerFacade`` over the ``topics`` of one broker."""

    def __init__(
        self,
        topics: TopicDirectory,
        ledgers: Ledgers,
        ownership: Ownership,
        health: HealthCheck,
        metrics: BrokerMetrics,
    ) -> None:
        self._topics = topics
        self._ledgers = ledgers
        self._ownership = ownership
        self._health = health
        self._metrics = metrics

    async def create_topic(self, topic: TopicName, properties: Mapping[str, str]) -> None:
        """Create one topic or one partition. Raises ``TopicExists``."""
        await self._topics.create(topic, properties)

    async def delete_topic(self, topic: TopicName, *, force: bool) -> None:
        """Delete a topic with its ledgers. Raises ``TopicNotFound``, ``TopicReplicated``,
        ``TopicBusy``."""
        await self._topics.delete(topic, force=force)

    async def topic_stats(self, topic: TopicName, query: StatsQuery) -> TopicStats:
        """Stats of a topic, which is loaded if it exists. Raises ``TopicNotFound``."""
        loaded = await self._topics.get(topic, create=False)
        stats = topic_stats(loaded, query, self._ownership.address.broker_id)
        if query.earliest_time_in_backlog and loaded.keeps_messages:
            await add_earliest(stats, loaded)
        return stats

    async def internal_stats(self, topic: TopicName, *, with_metadata: bool) -> Document:
        """The insides of a topic, which is loaded if it exists. Raises ``TopicNotFound``."""
        loaded = await self._topics.get(topic, create=False)
        compaction = loaded.find(TopicCompaction)
        if compaction is None:
            return internal_stats(loaded, {})
        compacted = await compaction.view.ledger_stats()
        metadata: dict[int, LedgerMetadata] = {}
        if with_metadata:
            metadata = await self._metadata_of(loaded)
        return internal_stats(loaded, metadata, compacted)

    async def _metadata_of(self, topic: Topic) -> dict[int, LedgerMetadata]:
        found: dict[int, LedgerMetadata] = {}
        for span in topic.managed_ledger.chain.spans:
            with suppress(NoSuchLedger):  # trimmed meanwhile
                found[span.ledger_id] = await self._ledgers.metadata(span.ledger_id)
        return found

    async def unload_topic(self, topic: TopicName) -> None:
        """Close a topic; its clients look it up again. Raises ``TopicNotFound``."""
        if not await self._topics.exists(topic):
            raise TopicNotFound(str(topic))
        await self._topics.unload(topic)

    async def trim_topic(self, topic: TopicName) -> None:
        """Delete ledgers that nobody needs. Raises ``TopicNotFound``."""
        await (await self.persistent_topic(topic)).managed_ledger.trim()

    async def truncate_topic(self, topic: TopicName) -> None:
        """Delete all messages. Raises ``TopicNotFound``."""
        await (await self.persistent_topic(topic)).truncate()

    async def compact_topic(self, topic: TopicName) -> None:
        """Begin to compact a topic. Raises ``TopicNotFound``, ``CompactionRunning``."""
        await (await self.persistent_topic(topic)).part(TopicCompaction).trigger()

    async def compaction_report(self, topic: TopicName) -> CompactionReport:
        """How a topic's compactions went. Raises ``TopicNotFound``."""
        return (await self.persistent_topic(topic)).part(TopicCompaction).report

    async def terminate_topic(self, topic: TopicName) -> Position:
        """Have a topic take no more messages; its last one. Raises ``TopicNotFound``."""
        return await (await self.persistent_topic(topic)).terminate()

    async def persistent_topic(self, topic: TopicName, *, create: bool = False) -> Topic:
        """The topic itself. Raises ``TopicNotFound``, ``NotAllowed`` for one that keeps nothing."""
        loaded = await self._topics.get(topic, create=create)
        if not loaded.keeps_messages:
            raise NotAllowed(f"{topic} keeps no messages")
        return loaded

    async def subscription_names(self, topic: TopicName) -> list[str]:
        """The subscriptions of any topic. Raises ``TopicNotFound``."""
        if not await self._topics.exists(topic):
            raise TopicNotFound(str(topic))
        return list((await self._topics.get(topic, create=False)).subscriptions)

    async def copy_subscriptions(self, source: TopicName, target: TopicName) -> bool:
        """Give ``target`` the durable subscriptions of ``source``, from its first message; whether
        there is a ``source``."""
        try:
            known = await self._topics.get(source, create=False)
        except TopicNotFound:
            return False
        fresh = await self._topics.get(target, create=False)
        stored = known.find(StoredSubscriptions)
        if stored is not None:
            for subscription in stored.subscriptions.values():
                if subscription.cursor.is_durable:
                    await fresh.create_subscription(subscription.name, from_earliest=True)
        return True

    async def delete_doomed_topic(self, topic: TopicName) -> None:
        """Delete a topic of a namespace that is marked as deleted. Raises ``TopicNotFound``."""
        await self._topics.delete_doomed(topic)

    async def topics_settled(self, namespace: NamespaceName) -> None:
        """Return when all loading, closing and deleting of a namespace's topics is done."""
        await self._topics.settled(namespace)

    def non_persistent_topics(self, namespace: NamespaceName) -> list[TopicName]:
        """The non-persistent topics of a namespace that are loaded here."""
        return self._topics.non_persistent_in(namespace)

    def metrics_text(self, *, cluster: str, version: str, host: str) -> Iterator[str]:
        """What ``/metrics`` shows of the broker, in pieces."""
        return self._metrics.text(cluster=cluster, version=version, host=host)

    async def check_health(self) -> None:
        """Publish one message and read it back. Raises what went wrong."""
        await self._ownership.owner(self._health.topic)
        await self._health.run()
