"""Which cluster serves a namespace: each that the namespace's policies name.

Clusters that share a configuration store know all namespaces, also those that they do not serve.
Clients that look up a topic of such a namespace are redirected to a cluster that serves it and that
is a peer of this one (``clusters update-peer-clusters``). Where no peer serves it, they get an
error.

Facts: ``PulsarWebResource.checkLocalOrGetPeerReplicationCluster`` of Apache Pulsar 4.0.6.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.ownership.addresses.address import LookupReason, Owner
from geminga_broker.ownership.assignment.bundles import broker_of_namespace
from geminga_broker.ownership.errors import ServedInOtherClusters
from geminga_cluster.clusters import Clusters
from geminga_cluster.errors import ClusterNotFound
from geminga_cluster.namespaces import Namespaces, serves
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.clusters import ClusterData


def entrance_of(cluster: ClusterData) -> Owner:
    """The service URLs of a cluster as the answer to a lookup."""
    return Owner(
        cluster.broker_service_url or "",
        cluster.broker_service_url_tls or "",
        cluster.service_url or "",
        cluster.service_url_tls or "",
        is_self=False,
        reason=LookupReason.PEER,
    )


@dataclass(slots=True, eq=False)
class ServingClusters:
    """Finds the cluster that serves a namespace."""

    # The cluster of this broker.
    cluster: str
    # Both keep the records that they have read in memory.
    namespaces: Namespaces
    clusters: Clusters

    async def peer_of(self, namespace: NamespaceName) -> Owner | None:
        """None where this cluster serves ``namespace``, else a peer cluster that does.

        Raises ``ServedInOtherClusters`` where no peer serves it, ``NamespaceNotFound``,
        ``CoordinationError``.
        """
        # A broker's own namespace has no policies, and is served where the broker is.
        if broker_of_namespace(namespace) is not None:
            return None
        policies = await self.namespaces.policies(namespace)
        if serves(self.cluster, policies):
            return None
        # In the order in which the operator listed the peers: the first one that serves the
        # namespace gets all of its clients.
        try:
            peers = (await self.clusters.get(self.cluster)).peer_cluster_names or ()
            for peer in peers:
                if serves(peer, policies):
                    return entrance_of(await self.clusters.get(peer))
        except ClusterNotFound:
            pass  # a cluster that was deleted is no peer
        # The text is upstream's: admin tools show it.
        raise ServedInOtherClusters(
            "Namespace missing local cluster name in clusters list: "
            f"local_cluster={self.cluster} ns={namespace} "
            f"clusters=[{', '.join(policies.replication_clusters)}]"
        )
