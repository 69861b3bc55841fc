"""Errors about clusters, tenants, namespaces and topics: missing, existing already, or invalid.

``code`` is the name of Pulsar's ``ServerError`` that a client gets. The texts are Pulsar's: admin
tools show them to people, and tests of client libraries compare them.

GemingaError
└── MetadataError
    ├── ClusterNotFound, ClusterExists
    ├── TenantNotFound, TenantExists, TenantNotEmpty
    ├── NamespaceNotFound, NamespaceExists
    ├── PartitionedTopicNotFound, PartitionedTopicExists, TooFewPartitions
    ├── RecordContended
    └── NotInitialized
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from geminga_runtime.errors import GemingaError


class MetadataError(GemingaError):
    """The metadata of the cluster lacks it, has it already, or does not allow it."""

    code: ClassVar[str] = "MetadataError"


class ClusterNotFound(MetadataError):
    """No cluster of this name is registered."""

    def __init__(self, cluster: str) -> None:
        super().__init__("Cluster does not exist")
        self.cluster = cluster


class ClusterExists(MetadataError):
    """A cluster of this name is registered."""

    def __init__(self, cluster: str) -> None:
        super().__init__("Cluster already exists")
        self.cluster = cluster


class TenantNotFound(MetadataError):
    """No such tenant. Clients get the same code as for a missing topic."""

    code: ClassVar[str] = "TopicNotFound"

    def __init__(self, tenant: str) -> None:
        super().__init__("Tenant does not exist")
        self.tenant = tenant


class TenantExists(MetadataError):
    """A tenant of this name exists."""

    def __init__(self, tenant: str) -> None:
        super().__init__("Tenant already exist")
        self.tenant = tenant


class TenantNotEmpty(MetadataError):
    """The tenant to delete still has namespaces."""

    def __init__(self, tenant: str) -> None:
        super().__init__("The tenant still has active namespaces")
        self.tenant = tenant


class NamespaceNotFound(MetadataError):
    """No such namespace. Clients get the same code as for a missing topic."""

    code: ClassVar[str] = "TopicNotFound"

    def __init__(self, namespace: str) -> None:
        super().__init__("Namespace not found")
        self.namespace = namespace


class NamespaceExists(MetadataError):
    """A namespace of this name exists."""

    def __init__(self, namespace: str) -> None:
        super().__init__("Namespace already exists")
        self.namespace = namespace


class PartitionedTopicNotFound(MetadataError):
    """The topic is not partitioned, or does not exist."""

    code: ClassVar[str] = "TopicNotFound"

    def __init__(self, topic: str) -> None:
        super().__init__(f"Partitioned Topic {topic} not found")
        self.topic = topic


class PartitionedTopicExists(MetadataError):
    """A partitioned topic of this name is there already."""

    code: ClassVar[str] = "NotAllowedError"

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic} already exists")
        self.topic = topic


class TooFewPartitions(MetadataError):
    """A partitioned topic can only grow."""

    def __init__(self, wanted: int, present: int) -> None:
        super().__init__(
            f"Desired partitions {wanted} can't be less than the current partitions {present}."
        )
        self.wanted = wanted
        self.present = present


class RecordContended(MetadataError):
    """A record was changed, at each attempt, between our read and our write; try again."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True


class NotInitialized(MetadataError):
    """The ZooKeeper tree holds no cluster yet."""

    def __init__(self, cluster: str) -> None:
        super().__init__(
            f"ZooKeeper knows no cluster {cluster}: run "
            f"`geminga initialize-cluster-metadata --cluster {cluster}` once, then start again"
        )
        self.cluster = cluster


# The status of each over REST, at every server.
REST_STATUSES: Mapping[type[GemingaError], int] = {
    ClusterNotFound: 404,
    TenantNotFound: 404,
    NamespaceNotFound: 404,
    PartitionedTopicNotFound: 404,
    ClusterExists: 409,
    TenantExists: 409,
    TenantNotEmpty: 409,
    NamespaceExists: 409,
    PartitionedTopicExists: 409,
    TooFewPartitions: 422,
    RecordContended: 503,
}
