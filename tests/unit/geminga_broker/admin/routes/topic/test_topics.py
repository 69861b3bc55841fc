"""Topics are listed, created and deleted in Pulsar's words; a topic elsewhere is redirected to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from geminga_broker.admin.services import Services
from geminga_broker.ownership.ownership import Ownership
from geminga_protocol.pulsar.topics.topic_names import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class RememberingBroker(Protocol):
        """What these tests set and read on the broker behind the application."""

        busy: set[str]
        properties: dict[str, Mapping[str, str]]


P = "/admin/v2/persistent/public/default"
N = "/admin/v2/non-persistent/public/default"


def reason(answer: httpx.Response) -> tuple[int, str]:
    """Status and reason."""
    return answer.status_code, answer.json()["reason"]


async def test_a_topic_is_created_with_its_properties(
    client: httpx.AsyncClient, broker: RememberingBroker
) -> None:
    assert (await client.put(f"{P}/t", json={"k": "v"})).status_code == 204
    assert broker.properties == {"persistent://public/default/t": {"k": "v"}}
    assert (await client.get(P)).json() == ["persistent://public/default/t"]


async def test_a_topic_is_created_once(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t")
    assert reason(await client.put(f"{P}/t")) == (409, "This topic already exists")


async def test_a_non_persistent_topic_is_another_topic(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t")
    assert (await client.put(f"{N}/t")).status_code == 204
    assert (await client.get(N)).json() == ["non-persistent://public/default/t"]


async def test_a_missing_partition_can_be_created(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/t/partitions", json=2)
    await client.delete(f"{P}/t-partition-1")
    assert (await client.put(f"{P}/t-partition-1")).status_code == 204


async def test_a_busy_topic_is_deleted_only_by_force(
    client: httpx.AsyncClient, broker: RememberingBroker
) -> None:
    await client.put(f"{P}/t")
    broker.busy.add("persistent://public/default/t")
    answer = await client.delete(f"{P}/t")
    assert reason(answer) == (412, "Topic has active producers/subscriptions")
    assert (await client.delete(f"{P}/t?force=true")).status_code == 204
    assert (await client.get(P)).json() == []


async def test_pulsars_own_topics_are_listed_only_on_request(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/__change_events")
    await client.put(f"{P}/t")
    assert (await client.get(P)).json() == ["persistent://public/default/t"]
    everything = (await client.get(f"{P}?includeSystemTopic=true")).json()
    assert len(everything) == 2


async def test_topics_are_listed_by_bundle(client: httpx.AsyncClient, services: Services) -> None:
    for number in range(20):
        await client.put(f"{P}/t{number}")
    topic = TopicName.parse("t7")
    bundle = (await services.ownership.rings.bundle_of(topic)).name
    listed = (await client.get(f"{P}?bundle={bundle}")).json()
    assert str(topic) in listed
    assert 0 < len(listed) < 20


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_topic_of_another_broker_is_redirected_to(
    method: str, client: httpx.AsyncClient, rival: Ownership
) -> None:
    await rival.owner(TopicName.parse("persistent://public/default/a/b %?"))
    answer = await client.request(method, f"{P}/a%2Fb%20%25%3F?force=true&authoritative=false")
    assert answer.status_code == 307
    assert answer.headers["Location"] == (
        f"http://127.0.0.1:2{P}/a%2Fb%20%25%3F?force=true&authoritative=true"
    )


async def test_a_name_that_zookeeper_takes_for_a_way_is_refused(client: httpx.AsyncClient) -> None:
    for method, path in (
        ("PUT", "%2E%2E"),
        ("PUT", "%2E%2E/partitions"),
        ("GET", "%2E/stats"),
        ("DELETE", "%2E%2E"),
    ):
        answer = await client.request(method, f"{P}/{path}")
        assert answer.status_code == 412
        assert "ZooKeeper has no nodes called . or .." in answer.json()["reason"]
