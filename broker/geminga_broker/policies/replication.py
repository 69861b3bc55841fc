"""To which clusters a topic is replicated. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.policies.dispatch import (
    UNLIMITED,
    DispatchConfig,
    DispatchLimit,
    replicator_limit,
)
from geminga_broker.policies.levels import Levels, nearest


@dataclass(frozen=True, slots=True)
class ReplicationPolicies:
    """What holds for a topic."""

    # The other clusters. None where no level sets it, or it is not known: then replicators stay as
    # they are, and above all no cursor of theirs is deleted.
    remotes: frozenset[str] | None = None
    # How fast each of them may be sent to.
    limit: DispatchLimit = UNLIMITED


# The default of a topic that was given no policies yet.
UNKNOWN = ReplicationPolicies()
# Of system topics: each cluster has its own.
NOT_REPLICATED = ReplicationPolicies(frozenset())


def replication(config: DispatchConfig, levels: Levels) -> ReplicationPolicies:
    """The replication policies of a topic."""
    clusters = nearest(levels.topic.replication_clusters, levels.namespace.replication_clusters, ())
    return ReplicationPolicies(
        # Every namespace is in at least one cluster: an empty list was not set.
        frozenset(clusters) - {levels.cluster} if clusters else None,
        replicator_limit(config, levels),
    )
