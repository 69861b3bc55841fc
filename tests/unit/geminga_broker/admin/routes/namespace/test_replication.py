"""Proves between which clusters namespaces and topics may be replicated, and how others are
refused: with the statuses and reasons of Apache Pulsar 4.0.6."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import pytest
from tests.unit.geminga_broker.replication.far_rest import FarRest

from geminga_broker.admin.services import Services
from geminga_broker.errors import TopicReplicated
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.cluster.tenants import TenantInfo

NS = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/orders"
HERE = "standalone"
NOT_OF_TENANT = "Cluster [{}] is not in the list of allowed clusters list for tenant [public]"
NOT_OF_NAMESPACE = (
    "Cluster [{}] is not in the list of allowed clusters list for namespace [public/default]"
)
STILL_REPLICATED = (
    "Allowed clusters do not contain the replication cluster {}. Please remove the replication "
    "cluster if the cluster is not allowed for this namespace"
)


@pytest.fixture(autouse=True)
async def clusters(services: Services) -> None:
    """``east`` and ``west``, which the tenant may be in, and ``north``, which it may not."""
    for name in ("east", "west", "north"):
        await services.clusters.create(name, ClusterData(service_url=f"http://{name}"))

    allowed = (HERE, "east", "west", "gone")
    await services.tenants.update("public", TenantInfo(allowed_clusters=allowed))


async def refused(client: httpx.AsyncClient, path: str, clusters: list[str]) -> tuple[int, str]:
    """What is said to that, after which nothing has changed."""
    before = (await client.get(path)).content
    answer = await client.post(path, json=clusters)
    assert (await client.get(path)).content == before
    return answer.status_code, answer.json()["reason"]


async def test_a_namespace_is_in_clusters_that_its_tenant_may_be_in(
    client: httpx.AsyncClient,
) -> None:
    path = f"{NS}/replication"
    assert (await client.post(path, json=[HERE, "east"])).status_code == 200
    assert (await client.get(path)).json() == ["east", HERE]
    assert await refused(client, path, []) == (412, "ClusterIds should not be null or empty")
    assert await refused(client, path, [HERE, "north"]) == (403, NOT_OF_TENANT.format("north"))
    assert await refused(client, path, [HERE, "gone"]) == (403, "Invalid cluster id: gone")


async def test_a_namespace_that_allows_clusters_is_in_these_alone(
    client: httpx.AsyncClient,
) -> None:
    path = f"{NS}/allowedClusters"
    assert (await client.get(path)).json() == []
    assert (await client.post(path, json=[HERE, "east"])).status_code == 200
    assert (await client.get(path)).json() == ["east", HERE]
    replicated = f"{NS}/replication"
    assert (await client.post(replicated, json=[HERE, "east"])).status_code == 200
    outside = (403, NOT_OF_NAMESPACE.format("west"))
    assert await refused(client, replicated, [HERE, "west"]) == outside
    # What it is replicated to stays allowed.
    for clusters in ([HERE], []):
        assert await refused(client, path, clusters) == (400, STILL_REPLICATED.format("east"))
    assert await refused(client, path, [HERE, "east", "north"]) == (
        403,
        NOT_OF_TENANT.format("north"),
    )
    assert await refused(client, path, [HERE, "east", "gone"]) == (403, "Invalid cluster id: gone")


async def test_a_topic_goes_only_where_its_namespace_may(
    client: httpx.AsyncClient,
) -> None:
    assert (await client.put(TOPIC)).status_code == 204
    path = f"{TOPIC}/replication"
    assert (await client.post(path, json=[HERE, "west"])).status_code == 204
    assert (await client.get(path)).json() == [HERE, "west"]
    assert (await client.post(f"{NS}/allowedClusters", json=[HERE, "east"])).status_code == 200
    outside = (403, NOT_OF_NAMESPACE.format("west"))
    assert await refused(client, path, [HERE, "west"]) == outside
    local = "Can not remove local cluster from the topic-level replication clusters policy"
    assert await refused(client, path, ["east"]) == (412, local)
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).content == b""
    assert (await client.get(f"{path}?applied=true")).json() == [HERE]


NAME = "persistent/public/default/orders"
REPLICATED = ["east", HERE, "west"]


async def replicate_namespace(client: httpx.AsyncClient) -> None:
    assert (await client.post(f"{NS}/replication", json=REPLICATED)).is_success


async def test_a_partitioned_topic_is_made_in_the_other_clusters_of_its_namespace(
    client: httpx.AsyncClient, far_rest: FarRest
) -> None:
    await replicate_namespace(client)
    far_rest.topics["west"][NAME] = 3  # another one, which stays
    assert (await client.put(f"{TOPIC}/partitions", json=2)).status_code == 204
    await asyncio.sleep(1)
    assert far_rest.topics == {"east": {NAME: 2}, "west": {NAME: 3}}
    local = f"{TOPIC}-2/partitions?createLocalTopicOnly=true"
    assert (await client.put(local, json=2)).status_code == 204
    await asyncio.sleep(1)
    assert far_rest.topics == {"east": {NAME: 2}, "west": {NAME: 3}}


async def test_a_partitioned_topic_grows_in_the_clusters_that_it_is_replicated_to(
    client: httpx.AsyncClient, far_rest: FarRest
) -> None:
    await replicate_namespace(client)
    assert (await client.put(f"{TOPIC}/partitions", json=2)).status_code == 204
    await asyncio.sleep(1)
    assert (await client.post(f"{TOPIC}/partitions", json=3)).status_code == 204
    assert far_rest.topics == {"east": {NAME: 3}, "west": {NAME: 3}}
    local = f"{TOPIC}/partitions?updateLocalTopicOnly=true"
    assert (await client.post(local, json=4)).status_code == 204
    assert far_rest.topics == {"east": {NAME: 3}, "west": {NAME: 3}}
    # What the topic says goes before what its namespace does.
    assert (await client.post(f"{TOPIC}-1/partitions", json=2)).status_code == 409
    far_rest.topics["east"][NAME] = 4
    assert (await client.post(f"{TOPIC}/replication", json=[HERE, "east"])).status_code == 204
    assert (await client.post(f"{TOPIC}/partitions", json=5)).status_code == 204
    assert far_rest.topics == {"east": {NAME: 5}, "west": {NAME: 3}}


async def test_a_topic_grows_in_the_clusters_that_it_is_told_to_be_in(
    client: httpx.AsyncClient, services: Services, far_rest: FarRest
) -> None:
    """No cluster at all is something else than nothing said."""
    await replicate_namespace(client)
    assert (await client.put(f"{TOPIC}/partitions?createLocalTopicOnly=true", json=2)).is_success
    topic = TopicName.parse("persistent://public/default/orders")
    await services.topic_policies.change(topic, lambda said: replace(said, replication_clusters=()))
    assert (await client.get(f"{TOPIC}/replication?applied=true")).json() == []
    assert (await client.post(f"{TOPIC}/partitions", json=3)).status_code == 204
    assert far_rest.topics == {"east": {}, "west": {}}


async def test_a_cluster_that_does_not_let_a_topic_grow_is_named(
    client: httpx.AsyncClient, far_rest: FarRest
) -> None:
    await replicate_namespace(client)
    assert (await client.put(f"{TOPIC}/partitions?createLocalTopicOnly=true", json=2)).is_success
    far_rest.topics["east"][NAME] = 4
    answer = await client.post(f"{TOPIC}/partitions", json=3)
    assert (answer.status_code, answer.json()["reason"]) == (
        422,
        "east refuses it: Desired partitions 3 can't be less than the current partitions 4.",
    )
    assert (await client.get(f"{TOPIC}/partitions")).json()["partitions"] == 3


async def test_a_topic_does_not_grow_where_it_is_not_to_be(
    client: httpx.AsyncClient, services: Services
) -> None:
    assert (await client.put(f"{TOPIC}/partitions", json=2)).status_code == 204
    elsewhere = Policies(replication_clusters=("east",))
    await services.namespaces.update(NamespaceName("public", "default"), lambda _: elsewhere)
    answer = await client.post(f"{TOPIC}/partitions", json=3)
    assert (answer.status_code, answer.json()["reason"]) == (
        422,
        "Local cluster is not part of replicate cluster list",
    )
    topic = TopicName.parse("persistent://public/default/orders")
    assert await services.partitioned_topics.partitions(topic) == 2


async def test_a_partitioned_topic_is_created_in_a_cluster_before_it_is_replicated_there(
    client: httpx.AsyncClient, far_rest: FarRest
) -> None:
    assert (await client.put(f"{TOPIC}/partitions", json=2)).status_code == 204
    path = f"{TOPIC}/replication"
    assert (await client.post(path, json=[HERE, "east"])).status_code == 204
    assert far_rest.topics == {"east": {NAME: 2}, "west": {}}
    far_rest.topics["west"][NAME] = 3
    differs = (
        "There is an exists topic persistent://public/default/orders with different partitions 3 "
        "on the remote cluster west, you want to create it with partitions 2"
    )
    assert await refused(client, path, [HERE, "west"]) == (412, differs)
    del far_rest.topics["west"]
    assert await refused(client, path, [HERE, "west"]) == (
        500,
        "west refuses it: west cannot be reached",
    )


async def test_a_replicated_topic_and_its_partitions_are_deleted_by_force_only(
    client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: TopicName, *, force: bool) -> None:
        if not force:
            raise TopicReplicated(["west", "east"])

    monkeypatch.setattr(services.broker.topics, "delete", refuse)
    assert (await client.put(TOPIC)).status_code == 204
    assert (await client.put(f"{TOPIC}-2/partitions", json=2)).status_code == 204
    why = "Delete forbidden topic is replicated on clusters [east, west]"
    for path in (TOPIC, f"{TOPIC}-2/partitions"):
        answer = await client.delete(path)
        assert (answer.status_code, answer.json()["reason"]) == (422, why)
    assert (await client.get(f"{TOPIC}-2/partitions")).json() == {"partitions": 2, "deleted": False}
    for path in (TOPIC, f"{TOPIC}-2/partitions"):
        assert (await client.delete(f"{path}?force=true")).status_code == 204


async def test_a_replicated_namespace_is_not_deleted(client: httpx.AsyncClient) -> None:
    await replicate_namespace(client)
    answer = await client.delete(NS)
    why = (
        "Cannot delete the global namespace public/default. There are still more than one "
        "replication clusters configured."
    )
    assert (answer.status_code, answer.json()["reason"]) == (412, why)
    assert (await client.post(f"{NS}/replication", json=[HERE])).is_success
    assert (await client.delete(NS)).status_code == 204


@pytest.mark.parametrize("path", ["replication", "allowedClusters"])
async def test_a_namespace_that_is_not_there_is_not_found(
    client: httpx.AsyncClient, path: str
) -> None:
    url = f"/admin/v2/namespaces/public/none/{path}"
    assert (await client.get(url)).status_code == 404
    assert (await client.post(url, json=[HERE])).status_code == 404


async def taken_out(client: httpx.AsyncClient) -> None:
    """The namespace is in ``east`` alone from now on."""
    assert (await client.post(f"{NS}/replication", json=["east"])).status_code == 200


ELSEWHERE = (
    "Namespace missing local cluster name in clusters list: local_cluster=standalone "
    "ns=public/default clusters=[east]"
)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", TOPIC),
        ("DELETE", TOPIC),
        ("GET", f"{TOPIC}/stats"),
        ("GET", f"{TOPIC}/partitions"),
        ("PUT", f"{TOPIC}/partitions"),
        ("GET", f"{TOPIC}/partitioned-stats"),
        ("GET", f"{TOPIC}/subscriptions"),
        ("PUT", f"{TOPIC}/unload"),
        ("GET", f"{TOPIC}/replication"),
        ("GET", "/lookup/v2/topic/persistent/public/default/orders"),
    ],
)
async def test_topics_of_a_namespace_that_is_elsewhere_are_refused(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    await taken_out(client)
    answer = await client.request(method, path, json=3 if path.endswith("/partitions") else None)
    assert (answer.status_code, answer.json()["reason"]) == (412, ELSEWHERE)


async def test_a_namespace_that_is_elsewhere_can_be_looked_at_and_brought_back(
    client: httpx.AsyncClient,
) -> None:
    await taken_out(client)
    assert (await client.get("/admin/v2/persistent/public/default")).json() == []
    assert (await client.get(f"{NS}/topics")).json() == []
    assert (await client.get(NS)).json()["replication_clusters"] == ["east"]
    assert (await client.post(f"{NS}/replication", json=[HERE])).status_code == 200
    assert (await client.put(TOPIC)).status_code == 204


async def test_a_request_about_a_topic_goes_to_the_peer_that_serves_it(
    client: httpx.AsyncClient, services: Services
) -> None:
    await services.clusters.update(HERE, ClusterData(peer_cluster_names=("west", "east")))
    await taken_out(client)
    for path in (f"{TOPIC}/stats", "/lookup/v2/topic/persistent/public/default/orders"):
        answer = await client.get(path)
        assert answer.status_code == 307
        assert answer.headers["location"] == f"http://east{path}?authoritative=false"


async def test_a_namespace_is_deleted_in_the_last_of_its_clusters(
    client: httpx.AsyncClient,
) -> None:
    await client.post(f"{NS}/replication", json=[HERE, "east"])
    answer = await client.delete(NS)
    assert answer.status_code == 412
    assert answer.json()["reason"] == (
        "Cannot delete the global namespace public/default. There are still more than one "
        "replication clusters configured."
    )
    await taken_out(client)
    answer = await client.delete(NS)
    assert answer.status_code == 307
    assert answer.headers["location"] == f"http://east{NS}?authoritative=false"
    await client.post(f"{NS}/replication", json=[HERE])
    assert (await client.delete(NS)).status_code == 204
