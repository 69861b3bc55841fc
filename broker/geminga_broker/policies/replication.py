"""To which clusters a topic is replicated. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.policies.levels import Levels, nearest


@dataclass(frozen=True, slots=True)
class ReplicationPolicies:
    """What holds for a topic."""

    remotes: frozenset[str] | None = None
    """The other clusters. None where that is not said, or not known: then what is stays as it is,
    and above all no cursor is deleted."""


NOT_SAID = ReplicationPolicies()
NOT_REPLICATED = ReplicationPolicies(frozenset())


def replication(said: Levels) -> ReplicationPolicies:
    """What holds for a topic of which the levels say this."""
    clusters = nearest(said.topic.replication_clusters, said.namespace.replication_clusters, ())
    if not clusters:  # every namespace is in one cluster at least
        return NOT_SAID
    return ReplicationPolicies(frozenset(clusters) - {said.cluster})
