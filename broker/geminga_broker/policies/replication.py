"""To which clusters a topic is replicated. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.policies.dispatching import (
    UNLIMITED,
    DispatchConfig,
    DispatchLimit,
    replicator_limit,
)
from geminga_broker.policies.levels import Levels, nearest


@dataclass(frozen=True, slots=True)
class ReplicationPolicies:
    """What holds for a topic."""

    remotes: frozenset[str] | None = None
    """The other clusters. None where that is not said, or not known: then what is stays as it is,
    and above all no cursor is deleted."""
    limit: DispatchLimit = UNLIMITED
    """How fast each of them may be sent to."""


NOT_SAID = ReplicationPolicies()
NOT_REPLICATED = ReplicationPolicies(frozenset())


def replication(config: DispatchConfig, said: Levels) -> ReplicationPolicies:
    """What holds for a topic of which the levels say this."""
    clusters = nearest(said.topic.replication_clusters, said.namespace.replication_clusters, ())
    return ReplicationPolicies(
        # Every namespace is in one cluster at least.
        frozenset(clusters) - {said.cluster} if clusters else None,
        replicator_limit(config, said),
    )
