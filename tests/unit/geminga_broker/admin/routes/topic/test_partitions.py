"""Partitioned topics are created whole, grow with their subscriptions, and are deleted whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from geminga_broker.admin.services import Services
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.policies.auto_creation import PARTITIONS_MAX
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import AutoTopicCreation, BundlesData, Policies

if TYPE_CHECKING:
    from typing import Protocol

    class RememberingBroker(Protocol):
        """What these tests set and read on the broker behind the application."""

        busy: set[str]
        copied: list[tuple[str, str]]

        async def create(self, topic: TopicName, properties: dict[str, str]) -> None: ...


P = "/admin/v2/persistent/public/default"
N = "/admin/v2/non-persistent/public/default"
T = "persistent://public/default/t"


def reason(answer: httpx.Response) -> tuple[int, str]:
    """Status and reason."""
    return answer.status_code, answer.json()["reason"]


@pytest.mark.parametrize("body", [2, {"partitions": 2}])
async def test_a_number_or_a_record_creates_it(body: object, client: httpx.AsyncClient) -> None:
    assert (await client.put(f"{P}/t/partitions", json=body)).status_code == 204
    assert (await client.get(f"{P}/t/partitions")).json() == {"partitions": 2, "deleted": False}
    assert (await client.get(P)).json() == [f"{T}-partition-0", f"{T}-partition-1"]
    assert (await client.get(f"{P}/partitioned")).json() == [T]


async def test_the_properties_of_a_partitioned_topic_are_shown(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t/partitions", json={"partitions": 2, "properties": {"a": "b"}})
    assert (await client.get(f"{P}/t/partitions")).json()["properties"] == {"a": "b"}


@pytest.mark.parametrize(
    "body",
    [True, 2.5, "2", [2], {}, {"partitions": "2"}, {"partitions": True}, {"partitions": None}],
)
async def test_what_is_no_number_is_refused(body: object, client: httpx.AsyncClient) -> None:
    assert (await client.put(f"{P}/t/partitions", json=body)).status_code == 400


@pytest.mark.parametrize("properties", [3, ["a"], {"a": 1}])
async def test_properties_are_texts(properties: object, client: httpx.AsyncClient) -> None:
    body = {"partitions": 2, "properties": properties}
    assert (await client.put(f"{P}/t/partitions", json=body)).status_code == 400


async def test_there_is_a_largest_number(client: httpx.AsyncClient) -> None:
    too_many = PARTITIONS_MAX + 1
    refused = (406, "Number of partitions should be less than or equal to 10000")
    assert reason(await client.put(f"{P}/t/partitions", json=too_many)) == refused
    await client.put(f"{P}/t/partitions", json=1)
    assert reason(await client.post(f"{P}/t/partitions", json=too_many)) == refused


async def test_new_partitions_get_the_subscriptions_of_the_first(
    client: httpx.AsyncClient, broker: RememberingBroker
) -> None:
    await client.put(f"{P}/t/partitions", json=2)
    assert (await client.post(f"{P}/t/partitions", json=4)).status_code == 204
    first = f"{T}-partition-0"
    assert broker.copied == [(first, f"{T}-partition-2"), (first, f"{T}-partition-3")]


async def test_partitions_that_were_deleted_alone_do_not_keep_a_topic_from_growing(
    client: httpx.AsyncClient, broker: RememberingBroker
) -> None:
    await client.put(f"{P}/t/partitions", json=2)
    assert (await client.delete(f"{P}/t-partition-0")).status_code == 204
    assert (await client.post(f"{P}/t/partitions", json=3)).status_code == 204
    assert broker.copied == [(f"{T}-partition-1", f"{T}-partition-2")]
    assert (await client.delete(f"{P}/t-partition-1")).status_code == 204
    assert (await client.delete(f"{P}/t-partition-2")).status_code == 204
    assert (await client.post(f"{P}/t/partitions", json=4)).status_code == 204
    assert len(broker.copied) == 1


async def test_non_persistent_partitions_exist_at_once(client: httpx.AsyncClient) -> None:
    await client.put(f"{N}/t/partitions", json=2)
    assert (await client.post(f"{N}/t/partitions", json=3)).status_code == 204
    assert len((await client.get(N)).json()) == 2
    assert (await client.delete(f"{N}/t/partitions")).status_code == 204
    assert (await client.get(N)).json() == []


async def test_a_deletion_takes_the_partitions_with_it(
    client: httpx.AsyncClient, tree: Callable[[], dict[str, bytes]]
) -> None:
    await client.put(f"{P}/t/partitions", json=5)
    assert (await client.delete(f"{P}/t/partitions")).status_code == 204
    assert [path for path in tree() if "/t" in path.rpartition("persistent")[2]] == []


async def test_create_use_delete_can_be_repeated(client: httpx.AsyncClient) -> None:
    for count in range(1, 6):
        assert (await client.put(f"{P}/t/partitions", json=count)).status_code == 204
        assert (await client.get(f"{P}/t/partitions")).json()["partitions"] == count
        assert (await client.delete(f"{P}/t/partitions")).status_code == 204


async def test_a_busy_partition_keeps_the_topic_and_unmarks_it(
    client: httpx.AsyncClient, broker: RememberingBroker
) -> None:
    await client.put(f"{P}/t/partitions", json=3)
    broker.busy.add(f"{T}-partition-1")
    assert (await client.delete(f"{P}/t/partitions")).status_code == 412
    assert (await client.get(f"{P}/t/partitions")).json() == {"partitions": 3, "deleted": False}
    # What is left of it goes once no client is in the way: partitions that are gone are no fault.
    assert (await client.delete(f"{P}/t/partitions?force=true")).status_code == 204


async def test_a_topic_that_would_be_created_by_use_counts_as_there(
    client: httpx.AsyncClient,
) -> None:
    assert (await client.get(f"{P}/t/partitions")).status_code == 404
    asked = await client.get(f"{P}/t/partitions?checkAllowAutoCreation=true")
    assert asked.json() == {"partitions": 0, "deleted": False}


async def namespace_with(services: Services, rule: AutoTopicCreation) -> str:
    """Make ``public/auto`` with that rule, return the path of a topic in it."""
    policies = Policies(bundles=BundlesData.equal(1), auto_topic_creation_override=rule)
    await services.namespaces.create(NamespaceName("public", "auto"), policies)
    return "/admin/v2/persistent/public/auto/t"


async def test_use_may_create_partitions(client: httpx.AsyncClient, services: Services) -> None:
    rule = AutoTopicCreation(allowed=True, topic_type="partitioned", default_num_partitions=3)
    path = await namespace_with(services, rule)
    for _ in range(2):
        asked = await client.get(f"{path}/partitions?checkAllowAutoCreation=true")
        assert asked.json() == {"partitions": 3, "deleted": False}


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_two_uses_at_once_both_get_the_partitions(
    domain: str, client: httpx.AsyncClient, services: Services
) -> None:
    rule = AutoTopicCreation(allowed=True, topic_type="partitioned", default_num_partitions=3)
    await namespace_with(services, rule)
    path = f"/admin/v2/{domain}/public/auto/t/partitions?checkAllowAutoCreation=true"
    for asked in await asyncio.gather(client.get(path), client.get(path)):
        assert (asked.status_code, asked.json()) == (200, {"partitions": 3, "deleted": False})


async def test_use_partitions_no_topic_that_is_there(
    client: httpx.AsyncClient, services: Services
) -> None:
    rule = AutoTopicCreation(allowed=True, topic_type="partitioned", default_num_partitions=3)
    path = await namespace_with(services, rule)
    await client.put(path)
    asked = await client.get(f"{path}/partitions?checkAllowAutoCreation=true")
    assert asked.json() == {"partitions": 0, "deleted": False}


async def test_use_may_create_nothing(client: httpx.AsyncClient, services: Services) -> None:
    path = await namespace_with(services, AutoTopicCreation(allowed=False))
    asked = await client.get(f"{path}/partitions?checkAllowAutoCreation=true")
    assert asked.status_code == 404
    await client.put(path)
    asked = await client.get(f"{path}/partitions?checkAllowAutoCreation=true")
    assert asked.json() == {"partitions": 0, "deleted": False}


async def test_a_topic_that_only_another_broker_has_is_a_topic(
    client: httpx.AsyncClient, rival: Ownership, rival_broker: RememberingBroker
) -> None:
    volatile = TopicName.parse("non-persistent://public/default/volatile")
    assert (await client.get(f"{N}/volatile/partitions")).status_code == 404
    assert (await rival.owner(volatile)).is_self
    assert (await client.get(f"{N}/volatile/partitions")).status_code == 404
    await rival_broker.create(volatile, {})
    assert (await client.get(f"{N}/volatile/partitions")).json()["partitions"] == 0
    assert (await client.put(f"{N}/volatile/partitions", json=2)).status_code == 409
    assert (await client.delete(f"{N}/volatile/partitions")).status_code == 409
