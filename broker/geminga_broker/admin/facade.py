"""What the REST side needs of the rest of the broker.

``BrokerFacade`` is the topics of this broker, which ``administration`` implements. ``Services``
puts it beside the metadata and the ownership, and is all that ``app.create_app`` takes. Nothing
here imports a web framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from geminga_broker.admin.config import AdminConfig
from geminga_broker.admin.documents.internal_stats import Document
from geminga_broker.admin.documents.topic_stats import TopicStats
from geminga_broker.compaction.report import CompactionReport
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.non_persistent_topics import NonPersistentTopics
from geminga_broker.ownership.brokers import Brokers
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.policies.auto_creation import AutoCreationConfig
from geminga_broker.policies.resolver import PolicyResolver
from geminga_broker.replication.remote_topics import RemoteTopics
from geminga_broker.schemas.registry import SchemaRegistry
from geminga_broker.topic_policies.store import TopicPolicyStore
from geminga_broker.topics.topic import Topic
from geminga_cluster.clusters import Clusters
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_cluster.persistent_topics import PersistentTopics
from geminga_cluster.tenants import Tenants
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_server.authorization import Authorize
from geminga_server.metrics import PartMetrics
from geminga_server.rest_calls import RestCalls


@dataclass(frozen=True, slots=True)
class StatsQuery:
    """Which costly or long parts of topic stats are wanted (the query flags of ``…/stats``)."""

    # Accepted, and without effect: backlogs are always precise.
    precise_backlog: bool = False
    subscription_backlog_size: bool = True
    # Takes a read of one entry per subscription.
    earliest_time_in_backlog: bool = False
    exclude_publishers: bool = False
    exclude_consumers: bool = False


class BrokerFacade(Protocol):
    """The topics of this broker. Callers have made sure that it owns the bundle of each topic.

    A topic that exists and is not loaded is loaded, unless a method says otherwise.
    """

    async def create_topic(self, topic: TopicName, properties: Mapping[str, str]) -> None:
        """Create one topic or one partition. Raises ``TopicExists``."""
        ...

    async def delete_topic(self, topic: TopicName, *, force: bool) -> None:
        """Delete a topic with its ledgers; ``force`` closes producers and consumers first.

        Raises ``TopicNotFound``, ``TopicReplicated``, ``TopicBusy``.
        """
        ...

    async def topic_stats(self, topic: TopicName, query: StatsQuery) -> TopicStats:
        """The stats of a topic. Raises ``TopicNotFound``."""
        ...

    async def internal_stats(self, topic: TopicName, *, with_metadata: bool) -> Document:
        """The ledgers and cursors of a topic, ``with_metadata`` with the stored metadata of each
        ledger. Raises ``TopicNotFound``."""
        ...

    async def unload_topic(self, topic: TopicName) -> None:
        """Close a topic if it is loaded; its clients look it up again. Raises ``TopicNotFound``."""
        ...

    async def trim_topic(self, topic: TopicName) -> None:
        """Delete the ledgers of a persistent topic that are acknowledged and not retained. Raises
        ``TopicNotFound``."""
        ...

    async def truncate_topic(self, topic: TopicName) -> None:
        """Delete all messages of a persistent topic. Raises ``TopicNotFound``."""
        ...

    async def compact_topic(self, topic: TopicName) -> None:
        """Start the compaction of a persistent topic. Raises ``TopicNotFound``,
        ``CompactionRunning``."""
        ...

    async def compaction_report(self, topic: TopicName) -> CompactionReport:
        """The outcome of a topic's last compaction. Raises ``TopicNotFound``."""
        ...

    async def terminate_topic(self, topic: TopicName) -> Position:
        """Terminate a persistent topic: it takes no more messages. Returns the position of its
        last one. Raises ``TopicNotFound``."""
        ...

    async def persistent_topic(self, topic: TopicName, *, create: bool = False) -> Topic:
        """A persistent topic itself, with ``create`` created if it does not exist: for requests
        about its subscriptions and its messages. Raises ``TopicNotFound``, ``NotAllowed`` for a
        non-persistent topic."""
        ...

    async def subscription_names(self, topic: TopicName) -> list[str]:
        """The names of the subscriptions of a topic. Raises ``TopicNotFound``."""
        ...

    async def copy_subscriptions(self, source: TopicName, target: TopicName) -> bool:
        """Give the new partition ``target`` the durable subscriptions of an older one, from its
        first message on. False where there is no ``source``.

        Raises ``TopicNotFound`` where there is no ``target``.
        """
        ...

    async def delete_doomed_topic(self, topic: TopicName) -> None:
        """Delete a topic, by force, of a namespace that is marked as deleted, in a bundle that this
        broker owned when it was marked. Raises ``TopicNotFound``."""
        ...

    async def topics_settled(self, namespace: NamespaceName) -> None:
        """Return when no topic of a namespace is being loaded, closed or deleted any more."""
        ...

    def non_persistent_topics(self, namespace: NamespaceName) -> list[TopicName]:
        """The non-persistent topics of a namespace that are loaded here, partitions included."""
        ...

    def metrics_text(self, *, cluster: str, version: str, host: str) -> Iterator[str]:
        """The text of ``/metrics``, in pieces. All figures are read at the first one, so that sums
        agree with their terms."""
        ...

    async def check_health(self) -> None:
        """Publish one message and read it back. Raises what went wrong."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """Everything the REST side works on."""

    cluster: str
    # The version of Pulsar that this broker answers as.
    version: str
    broker: BrokerFacade
    clusters: Clusters
    tenants: Tenants
    namespaces: Namespaces
    partitioned_topics: PartitionedTopics
    persistent_topics: PersistentTopics
    non_persistent_topics: NonPersistentTopics
    ownership: Ownership
    brokers: Brokers
    schemas: SchemaRegistry
    policies: PolicyResolver
    topic_policies: TopicPolicyStore
    authorize: Authorize
    # Requests to other brokers for their part of an answer.
    calls: RestCalls
    # Creates partitioned topics in other clusters.
    remote_topics: RemoteTopics
    config: AdminConfig = field(default_factory=AdminConfig)
    auto_creation: AutoCreationConfig = field(default_factory=AutoCreationConfig)
    # The settings under upstream's names, as text.
    configuration: Mapping[str, str] = field(default_factory=dict[str, str])
    # Families that ``metrics_text`` does not have: of the process, and what packages register.
    part_metrics: PartMetrics = field(default_factory=lambda: PartMetrics("broker"))
