"""Errors about clusters, tenants, namespaces and topics: missing, existing already, or invalid.

``code`` is the name of Pulsar's ``ServerError`` that a client gets. The texts are Pulsar's: admin
tools show them to people, and tests of client libraries compare them.

GemingaError
└── MetadataError
    ├── RecordError
    │   ├── ClusterNotFound, ClusterExists, NotInitialized
    │   ├── TenantNotFound, TenantExists, TenantNotEmpty
    │   ├── NamespaceNotFound, NamespaceExists
    │   └── PartitionedTopicNotFound, PartitionedTopicExists
    ├── TooFewPartitions
    └── RecordContended
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from geminga_runtime.errors import GemingaError


class MetadataError(GemingaError):
    """The metadata of the cluster lacks it, has it already, or does not allow it."""

    code: ClassVar[str] = "MetadataError"


class RecordError(MetadataError):
    """The record of one cluster, tenant, namespace or topic, whose name is ``name``."""

    # Pulsar's text; ``{}`` stands for the name.
    words: ClassVar[str]

    def __init__(self, name: str) -> None:
        super().__init__(self.words.format(name))
        self.name = name


class ClusterNotFound(RecordError):
    """No cluster of this name is registered."""

    words = "Cluster does not exist"


class ClusterExists(RecordError):
    """A cluster of this name is registered."""

    words = "Cluster already exists"


class TenantNotFound(RecordError):
    """No such tenant. Clients get the same code as for a missing topic."""

    code: ClassVar[str] = "TopicNotFound"

    words = "Tenant does not exist"


class TenantExists(RecordError):
    """A tenant of this name exists."""

    words = "Tenant already exist"


class TenantNotEmpty(RecordError):
    """The tenant to delete still has namespaces."""

    words = "The tenant still has active namespaces"


class NamespaceNotFound(RecordError):
    """No such namespace. Clients get the same code as for a missing topic."""

    code: ClassVar[str] = "TopicNotFound"

    words = "Namespace not found"


class NamespaceExists(RecordError):
    """A namespace of this name exists."""

    words = "Namespace already exists"


class PartitionedTopicNotFound(RecordError):
    """The topic is not partitioned, or does not exist."""

    code: ClassVar[str] = "TopicNotFound"

    words = "Partitioned Topic {} not found"


class PartitionedTopicExists(RecordError):
    """A partitioned topic of this name is there already."""

    code: ClassVar[str] = "NotAllowedError"

    words = "Topic {} already exists"


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


class NotInitialized(RecordError):
    """The ZooKeeper tree holds no cluster yet."""

    words = (
        "ZooKeeper knows no cluster {0}: run "
        "`geminga initialize-cluster-metadata --cluster {0}` once, then start again"
    )


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
