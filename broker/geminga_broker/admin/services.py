"""Everything that the REST side works on: the broker's topics, its ownership, and the metadata.

A broker makes one ``Services``, which is all that ``app.create_app`` takes. Nothing here imports a
web framework.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from geminga_broker.admin.administration import Administration
from geminga_broker.admin.config import AdminConfig
from geminga_broker.non_persistent_topics import NonPersistentTopics
from geminga_broker.ownership.brokers import Brokers
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.policies.auto_creation import AutoCreationConfig
from geminga_broker.policies.resolver import PolicyResolver
from geminga_broker.replication.remote_topics import RemoteTopics
from geminga_broker.schemas.registry import SchemaRegistry
from geminga_broker.topic_policies.store import TopicPolicyStore
from geminga_cluster.clusters import Clusters
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_cluster.persistent_topics import PersistentTopics
from geminga_cluster.tenants import Tenants
from geminga_server.authorization import Authorize
from geminga_server.http.rest_calls import RestCalls
from geminga_server.metrics import PartMetrics


@dataclass(frozen=True, slots=True)
class Services:
    """Everything the REST side works on."""

    cluster: str
    # The version of Pulsar that this broker answers as.
    version: str
    # The topics of this broker.
    broker: Administration
    # The text of ``/metrics`` in pieces. All figures are of the moment of the call, so that sums
    # agree with their terms. Renders in pieces, so that the application can let other tasks run in
    # between.
    metrics_text: Callable[[], Iterator[str]]
    # Raises what went wrong.
    check_health: Callable[[], Awaitable[None]]
    # Their records are kept in memory under watches: most handlers send no request for them.
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
