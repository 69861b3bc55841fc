"""Which cluster serves a namespace: each that the namespace's policies name.

Clusters that share a configuration store know all namespaces, also those that they have no part in.
Clients that come for a topic of such a namespace are sent to a cluster that serves it and that is
a peer of this one (``clusters update-peer-clusters``). Where no peer serves it they are refused.

Facts: ``PulsarWebResource.checkLocalOrGetPeerReplicationCluster`` of Apache Pulsar 4.0.6.
"""

from __future__ import annotations

from geminga_broker.ownership.addresses.address import LookupReason, Owner
from geminga_broker.ownership.assignment.bundles import broker_of_namespace
from geminga_broker.ownership.errors import ServedInOtherClusters
from geminga_cluster.clusters import Clusters
from geminga_cluster.errors import ClusterNotFound
from geminga_cluster.namespaces import Namespaces, serves
from geminga_protocol.pulsar.topic_names import NamespaceName
from geminga_protocol.records.clusters import ClusterData


def entrance_of(cluster: ClusterData) -> Owner:
    """Where a cluster is asked for what it serves."""
    return Owner(
        cluster.broker_service_url or "",
        cluster.broker_service_url_tls or "",
        cluster.service_url or "",
        cluster.service_url_tls or "",
        is_self=False,
        reason=LookupReason.PEER,
    )


class ServingClusters:
    """Of a broker of ``cluster``; the records are kept in memory by ``namespaces`` and
    ``clusters``."""

    def __init__(self, cluster: str, namespaces: Namespaces, clusters: Clusters) -> None:
        self._cluster = cluster
        self._namespaces = namespaces
        self._clusters = clusters

    async def peer_of(self, namespace: NamespaceName) -> Owner | None:
        """None where this cluster serves ``namespace``, else the peer cluster to ask instead.

        Raises ``ServedInOtherClusters`` where no peer serves it, ``NamespaceNotFound``,
        ``CoordinationError``.
        """
        if broker_of_namespace(namespace) is not None:
            return None
        policies = await self._namespaces.policies(namespace)
        if serves(self._cluster, policies):
            return None
        try:
            peers = (await self._clusters.get(self._cluster)).peer_cluster_names or ()
            for peer in peers:
                if serves(peer, policies):
                    return entrance_of(await self._clusters.get(peer))
        except ClusterNotFound:
            pass  # a cluster that was taken away is nobody's peer
        raise ServedInOtherClusters(self._cluster, str(namespace), policies.replication_clusters)
