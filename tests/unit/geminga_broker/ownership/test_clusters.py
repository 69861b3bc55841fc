"""A namespace is served by the clusters that its policies name, as a real Pulsar 4.0.6 was seen to
do: clients of others are sent to a peer cluster or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga_broker.ownership.addresses.address import LookupReason
from geminga_broker.ownership.clusters import ServingClusters
from geminga_broker.ownership.errors import ServedInOtherClusters
from geminga_cluster.clusters import Clusters
from geminga_cluster.errors import NamespaceNotFound
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.tenants import Tenants
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_runtime.coordination import Coordination

SHOP = NamespaceName("acme", "shop")
HERE, THERE = "here", "there"


@pytest.fixture
async def namespaces(coordination: Coordination) -> Namespaces:
    """With a namespace that is in the other cluster alone."""
    await Tenants(coordination).create("acme", TenantInfo())
    made = Namespaces(coordination)
    await made.create(SHOP, Policies(replication_clusters=(THERE,)))
    return made


@pytest.fixture
async def clusters(coordination: Coordination) -> Clusters:
    """Both clusters, neither of which has a peer."""
    made = Clusters(coordination)
    await made.create(HERE, ClusterData())
    await made.create(
        THERE,
        ClusterData(service_url="http://there:8080", broker_service_url="pulsar://there:6650"),
    )
    return made


async def test_a_namespace_of_other_clusters_is_refused_in_upstreams_words(
    namespaces: Namespaces, clusters: Clusters
) -> None:
    serving = ServingClusters(HERE, namespaces, clusters)
    with pytest.raises(ServedInOtherClusters) as refused:
        await serving.peer_of(SHOP)
    assert str(refused.value) == (
        "Namespace missing local cluster name in clusters list: "
        "local_cluster=here ns=acme/shop clusters=[there]"
    )
    assert refused.value.code == "MetadataError"


async def test_a_namespace_that_names_the_cluster_is_served_from_then_on(
    namespaces: Namespaces, clusters: Clusters
) -> None:
    serving = ServingClusters(HERE, namespaces, clusters)
    assert await ServingClusters(THERE, namespaces, clusters).peer_of(SHOP) is None
    await namespaces.update(SHOP, lambda said: replace(said, replication_clusters=(HERE, THERE)))
    assert await serving.peer_of(SHOP) is None


async def test_a_peer_that_serves_the_namespace_is_to_be_asked(
    namespaces: Namespaces, clusters: Clusters
) -> None:
    peers = ClusterData(peer_cluster_names=("gone", THERE))
    await clusters.update(HERE, peers)
    owner = await ServingClusters(HERE, namespaces, clusters).peer_of(SHOP)
    assert owner is not None
    assert (owner.broker_url, owner.http_url) == ("pulsar://there:6650", "http://there:8080")
    assert owner.reason is LookupReason.PEER
    assert owner.is_redirect
    assert not owner.is_authoritative  # its brokers choose among them


async def test_a_missing_namespace_is_not_found_and_a_brokers_own_is_its_own(
    namespaces: Namespaces, clusters: Clusters
) -> None:
    serving = ServingClusters(HERE, namespaces, clusters)
    with pytest.raises(NamespaceNotFound):
        await serving.peer_of(NamespaceName("acme", "none"))
    assert await serving.peer_of(NamespaceName("pulsar", "127.0.0.1:8080")) is None
