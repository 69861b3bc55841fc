"""Namespaces are created from any part of their policies, shown whole, deleted when empty."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from tests.unit.geminga_broker.admin.conftest import MemoryCalls

from geminga_broker.admin.services import Services
from geminga_broker.ownership.ownership import Ownership
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import BundlesData, LocalPolicies
from geminga_runtime.coordination import Coordination
from geminga_server.http.rest_calls import RestCall

NS = "/admin/v2/namespaces"


def reason(answer: httpx.Response) -> tuple[int, str]:
    """Status and reason."""
    return answer.status_code, answer.json()["reason"]


async def policies(client: httpx.AsyncClient, name: str) -> Any:
    return (await client.get(f"{NS}/{name}")).json()


async def test_the_body_of_the_official_start_scripts_is_taken(client: httpx.AsyncClient) -> None:
    body = {
        "auth_policies": {"namespace_auth": {"anonymous": ["produce", "consume"]}},
        "replication_clusters": ["standalone"],
    }
    assert (await client.put(f"{NS}/public/default-2", json=body)).status_code == 204
    shown = await policies(client, "public/default-2")
    assert shown["auth_policies"]["namespace_auth"] == {"anonymous": ["produce", "consume"]}
    assert reason(await client.put(f"{NS}/public/default", json=body)) == (
        409,
        "Namespace already exists",
    )


async def test_without_a_body_the_broker_decides(client: httpx.AsyncClient) -> None:
    await client.put(f"{NS}/public/plain")
    shown = await policies(client, "public/plain")
    assert shown["replication_clusters"] == ["standalone"]
    assert shown["bundles"]["numBundles"] == 4
    assert shown["schema_compatibility_strategy"] == "UNDEFINED"
    assert shown["is_allow_auto_update_schema"] is True


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        ({"numBundles": 3}, ["0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff"]),
        (
            {"numBundles": 2, "boundaries": ["0xffffffff", "0x80000000", "0x00000000"]},
            ["0x00000000", "0x80000000", "0xffffffff"],
        ),
    ],
)
async def test_bundles_are_cut_as_asked(
    asked: object, numbers: list[str], client: httpx.AsyncClient
) -> None:
    await client.put(f"{NS}/public/cut", json={"bundles": asked})
    shown = (await client.get(f"{NS}/public/cut/bundles")).json()
    assert shown == {"boundaries": numbers, "numBundles": len(numbers) - 1}


async def test_more_bundles_than_a_record_holds_are_refused(client: httpx.AsyncClient) -> None:
    answer = await client.put(f"{NS}/public/cut", json={"bundles": {"numBundles": 100_000_000}})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "body", [[], "x", {"message_ttl_in_seconds": "x"}, {"replication_clusters": 3}]
)
async def test_a_body_of_the_wrong_shape_is_refused(
    body: object, client: httpx.AsyncClient
) -> None:
    assert (await client.put(f"{NS}/public/odd", json=body)).status_code == 400


async def test_the_bundles_shown_are_those_cut_now(
    client: httpx.AsyncClient, coordination: Coordination, services: Services
) -> None:
    split = LocalPolicies(bundles=BundlesData.equal(8))
    path = "/admin/local-policies/public/default"
    await coordination.create(path, split.encode(), make_parents=True)
    await services.ownership.rings.ring_of(NamespaceName("public", "default"))
    assert (await policies(client, "public/default"))["bundles"]["numBundles"] == 8


async def test_a_broker_that_has_not_read_the_bundles_shows_those_cut_now(
    client: httpx.AsyncClient, coordination: Coordination
) -> None:
    split = LocalPolicies(bundles=BundlesData.equal(8))
    path = "/admin/local-policies/public/default"
    await coordination.create(path, split.encode(), make_parents=True)
    assert (await policies(client, "public/default"))["bundles"]["numBundles"] == 8


async def test_an_empty_namespace_is_deleted_with_what_it_owned(
    client: httpx.AsyncClient, services: Services
) -> None:
    await client.put(f"{NS}/public/brief")
    await services.ownership.owner(TopicName.parse("persistent://public/brief/t"))
    assert len(services.ownership.owned.generations) == 1
    assert (await client.delete(f"{NS}/public/brief")).status_code == 204
    assert list(services.ownership.owned.generations) == []
    assert (await client.get(f"{NS}/public")).json() == ["public/default"]


@pytest.mark.parametrize("path", ["t", "t/partitions"])
async def test_a_namespace_with_topics_is_kept(path: str, client: httpx.AsyncClient) -> None:
    body = 2 if path.endswith("partitions") else None
    await client.put(f"/admin/v2/persistent/public/default/{path}", json=body)
    assert reason(await client.delete(f"{NS}/public/default")) == (
        409,
        "Cannot delete non empty namespace",
    )


async def test_pulsars_own_topics_do_not_keep_a_namespace(client: httpx.AsyncClient) -> None:
    await client.put("/admin/v2/persistent/public/default/__change_events")
    assert (await client.delete(f"{NS}/public/default")).status_code == 204


async def test_deleting_by_force_is_not_allowed_unless_the_broker_is_told_so(
    client: httpx.AsyncClient,
) -> None:
    assert reason(await client.delete(f"{NS}/public/default?force=true")) == (
        405,
        "Broker doesn't allow forced deletion of namespaces",
    )
    assert reason(await client.delete("/admin/v2/tenants/public?force=true")) == (
        405,
        "Broker doesn't allow forced deletion of tenants",
    )


async def test_topics_of_both_kinds_are_listed_on_request(client: httpx.AsyncClient) -> None:
    await client.put("/admin/v2/persistent/public/default/a")
    await client.put("/admin/v2/non-persistent/public/default/b")
    for mode, topics in (
        ("", ["persistent://public/default/a"]),
        ("?mode=NON_PERSISTENT", ["non-persistent://public/default/b"]),
        ("?mode=ALL", ["persistent://public/default/a", "non-persistent://public/default/b"]),
    ):
        assert (await client.get(f"{NS}/public/default/topics{mode}")).json() == topics


async def test_a_namespace_is_unloaded(client: httpx.AsyncClient, services: Services) -> None:
    for number in range(20):
        await services.ownership.owner(TopicName.parse(f"t{number}"))
    assert len(services.ownership.owned.generations) == 4
    assert (await client.put(f"{NS}/public/default/unload")).status_code == 204
    assert list(services.ownership.owned.generations) == []


async def test_the_leader_asks_an_owner_to_unload_and_keeps_the_destination_to_itself(
    client: httpx.AsyncClient, services: Services, rival: Ownership, calls: MemoryCalls
) -> None:
    """Apache's owners send a request that has a destination back to the leader."""
    topic = TopicName.parse("persistent://public/default/moved")
    await rival.owner(topic)
    bundle = (await rival.rings.bundle_of(topic)).name
    url = f"{NS}/public/default/{bundle}/unload"
    # It is there already.
    assert (await client.put(f"{url}?destinationBroker=127.0.0.1:2")).status_code == 204
    assert (calls.asked, len(rival.owned.generations)) == ([], 1)
    answer = await client.put(f"{url}?destinationBroker={services.brokers.address.broker_id}")
    assert answer.status_code == 204
    assert calls.asked == [f"PUT http://127.0.0.1:2{url}?authoritative=true"]
    assert list(rival.owned.generations) == []
    assert (await services.ownership.owner(topic)).is_self


async def test_the_leader_knows_a_destination_before_the_owner_gives_the_bundle_up(
    client: httpx.AsyncClient, services: Services, rival: Ownership, calls: MemoryCalls
) -> None:
    """Else a client that looks the bundle up between its owners gets it placed elsewhere."""
    del client  # it makes the leader answer the other broker
    topic = TopicName.parse("persistent://public/default/moved")
    await rival.owner(topic)
    url = f"{NS}/public/default/{(await rival.rings.bundle_of(topic)).name}/unload"
    here, there = "http://127.0.0.1:28080", "http://127.0.0.1:2"
    destination = f"destinationBroker={services.brokers.address.broker_id}"
    answer = await calls.call(RestCall("PUT", f"{there}{url}?{destination}"))
    assert answer.status == 204
    assert [unquote(asked) for asked in calls.asked] == [
        f"PUT {there}{url}?{destination}",
        f"PUT {here}{url}?{destination}&authoritative=true",
        f"PUT {there}{url}?authoritative=true",
    ]
    assert list(rival.owned.generations) == []


async def test_an_owner_believes_the_leader_s_destination_and_no_other_broker_does(
    client: httpx.AsyncClient, services: Services, rival: Ownership, calls: MemoryCalls
) -> None:
    del client
    topics = [TopicName.parse(f"persistent://public/default/{each}") for each in range(20)]
    await rival.owner(topics[0])
    own, others = (
        await rival.rings.bundle_of(topics[0]),
        {await rival.rings.bundle_of(each) for each in topics},
    )
    await services.ownership.owner_of(other := (others - {own}).pop())
    query = "unload?authoritative=true&destinationBroker=127.0.0.1:28080"
    there = f"http://127.0.0.1:2{NS}/public/default"
    assert (await calls.call(RestCall("PUT", f"{there}/{own.name}/{query}"))).status == 204
    assert list(rival.owned.generations) == []
    query = query.replace("28080", "2")
    assert (await calls.call(RestCall("PUT", f"{there}/{other.name}/{query}"))).status == 503
    assert len(calls.asked) == 2
    assert list(services.ownership.owned.generations) == [other]


async def test_a_bundle_is_unloaded(client: httpx.AsyncClient, services: Services) -> None:
    await services.ownership.owner(TopicName.parse("t"))
    bundle = await services.ownership.rings.bundle_of(TopicName.parse("t"))
    url = f"{NS}/public/default/{bundle.name}/unload"
    for _ in range(2):  # what is not served needs no unloading
        assert (await client.put(url)).status_code == 204
        assert list(services.ownership.owned.generations) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "0x00000000_0xffffffff",
            (
                "Invalid upper boundary for bundle public/default/0x00000000_0xffffffff. "
                "Expected upper boundary of public/default/0x00000000_0x40000000"
            ),
        ),
        (
            "0x10000000_0x40000000",
            "Cannot find bundle public/default/0x10000000_0x40000000 in the bundles list",
        ),
        ("nonsense", "Cannot find bundle public/default/nonsense in the bundles list"),
    ],
)
async def test_a_range_that_is_no_bundle_is_refused_with_the_reason(
    name: str, reason: str, client: httpx.AsyncClient
) -> None:
    answer = await client.put(f"{NS}/public/default/{name}/unload")
    assert (answer.status_code, answer.json()) == (412, {"reason": reason})


async def test_a_bundle_is_split_by_its_owner(
    client: httpx.AsyncClient, services: Services, rival: Ownership
) -> None:
    topic = TopicName.parse("persistent://public/default/t")
    await rival.owner(topic)
    bundle = await rival.rings.bundle_of(topic)
    path = f"/admin/v2/namespaces/public/default/{bundle.name}/split"
    assert (await client.put(path, params={"splitAlgorithmName": "by_hand"})).status_code == 406
    answer = await client.put(path, params={"splitAlgorithmName": "topic_count_equally_divide"})
    assert answer.status_code == 412
    assert "finds no boundary" in answer.json()["reason"]
    assert (await client.put(path, json=["here"])).status_code == 400
    specified = {"splitAlgorithmName": "specified_positions_divide"}
    cuts = [bundle.lower + 16, bundle.lower + 32]
    assert (await client.put(path, params=specified, json=cuts)).status_code == 204
    assert (await client.put(path, params=specified, json=cuts)).status_code == 412
    found = (await client.get("/admin/v2/namespaces/public/default/bundles")).json()
    assert found["numBundles"] == 6
    assert len(rival.owned.generations) == 3
    assert list(services.ownership.owned.generations) == []
