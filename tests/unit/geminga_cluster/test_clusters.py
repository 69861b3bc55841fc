"""Clusters are registered, changed and forgotten; ``global`` is none."""

from __future__ import annotations

import pytest

from geminga_cluster.clusters import Clusters
from geminga_cluster.errors import ClusterExists, ClusterNotFound
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_runtime.coordination import Coordination

HERE = ClusterData(service_url="http://here:8080")
THERE = ClusterData(service_url="http://there:8080")


@pytest.fixture
def clusters(coordination: Coordination) -> Clusters:
    return Clusters(coordination)


async def test_before_the_first_there_are_none(clusters: Clusters) -> None:
    assert await clusters.names() == []


async def test_a_registered_cluster_is_found(clusters: Clusters) -> None:
    await clusters.create("b", HERE)
    await clusters.create("a", THERE)
    assert await clusters.names() == ["a", "b"]
    assert await clusters.get("b") == HERE


async def test_a_cluster_is_registered_once(clusters: Clusters) -> None:
    await clusters.create("a", HERE)
    with pytest.raises(ClusterExists, match="Cluster already exists"):
        await clusters.create("a", THERE)
    assert await clusters.get("a") == HERE


async def test_a_change_is_seen_at_once(clusters: Clusters) -> None:
    await clusters.create("a", HERE)
    await clusters.get("a")
    await clusters.update("a", THERE)
    assert await clusters.get("a") == THERE


async def test_a_forgotten_cluster_is_gone_at_once(clusters: Clusters) -> None:
    await clusters.create("a", HERE)
    await clusters.get("a")
    await clusters.delete("a")
    with pytest.raises(ClusterNotFound):
        await clusters.get("a")


@pytest.mark.parametrize("name", ["missing", "global"])
async def test_what_is_no_cluster_is_not_found(
    name: str, clusters: Clusters, coordination: Coordination
) -> None:
    await coordination.create("/admin/clusters/global", b"{}", make_parents=True)
    assert await clusters.names() == []
    with pytest.raises(ClusterNotFound, match="Cluster does not exist"):
        await clusters.get(name)
    with pytest.raises(ClusterNotFound):
        await clusters.update(name, HERE)
    with pytest.raises(ClusterNotFound):
        await clusters.delete(name)
