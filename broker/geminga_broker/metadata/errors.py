"""What can be missing, there already, or wrong among clusters, tenants, namespaces and topics.

The texts are Pulsar's: admin tools show them to people, and tests of client libraries compare them.

BrokerError
├── ClusterNotFound, ClusterExists
├── TenantNotFound, TenantExists, TenantNotEmpty
├── NamespaceNotFound, NamespaceExists
├── PartitionedTopicNotFound, TooFewPartitions
└── NotInitialized
"""

from __future__ import annotations

from typing import ClassVar

from geminga_broker.errors import BrokerError


class ClusterNotFound(BrokerError):
    """No cluster of this name is registered."""

    code: ClassVar[str] = "MetadataError"

    def __init__(self, cluster: str) -> None:
        super().__init__("Cluster does not exist")
        self.cluster = cluster


class ClusterExists(BrokerError):
    """A cluster of this name is registered."""

    code: ClassVar[str] = "MetadataError"

    def __init__(self, cluster: str) -> None:
        super().__init__("Cluster already exists")
        self.cluster = cluster


class TenantNotFound(BrokerError):
    """No such tenant. Clients are told what they are told for a missing topic."""

    code: ClassVar[str] = "TopicNotFound"

    def __init__(self, tenant: str) -> None:
        super().__init__("Tenant does not exist")
        self.tenant = tenant


class TenantExists(BrokerError):
    """A tenant of this name exists."""

    code: ClassVar[str] = "MetadataError"

    def __init__(self, tenant: str) -> None:
        super().__init__("Tenant already exist")
        self.tenant = tenant


class TenantNotEmpty(BrokerError):
    """The tenant to delete still has namespaces."""

    code: ClassVar[str] = "MetadataError"

    def __init__(self, tenant: str) -> None:
        super().__init__("The tenant still has active namespaces")
        self.tenant = tenant


class NamespaceNotFound(BrokerError):
    """No such namespace. Clients are told what they are told for a missing topic."""

    code: ClassVar[str] = "TopicNotFound"

    def __init__(self, namespace: str) -> None:
        super().__init__("Namespace not found")
        self.namespace = namespace


class NamespaceExists(BrokerError):
    """A namespace of this name exists."""

    code: ClassVar[str] = "MetadataError"

    def __init__(self, namespace: str) -> None:
        super().__init__("Namespace already exists")
        self.namespace = namespace


class PartitionedTopicNotFound(BrokerError):
    """The topic is not partitioned, or does not exist."""

    code: ClassVar[str] = "TopicNotFound"

    def __init__(self, topic: str) -> None:
        super().__init__(f"Partitioned Topic {topic} not found")
        self.topic = topic


class TooFewPartitions(BrokerError):
    """A partitioned topic can only grow."""

    code: ClassVar[str] = "MetadataError"

    def __init__(self, wanted: int, present: int) -> None:
        super().__init__(
            f"Desired partitions {wanted} can't be less than the current partitions {present}."
        )
        self.wanted = wanted
        self.present = present


class NotInitialized(BrokerError):
    """The ZooKeeper tree holds no cluster yet."""

    code: ClassVar[str] = "MetadataError"

    def __init__(self, cluster: str) -> None:
        super().__init__(
            f"ZooKeeper knows no cluster {cluster}: run "
            f"`geminga initialize-cluster-metadata --cluster {cluster}` once, then start again"
        )
        self.cluster = cluster
