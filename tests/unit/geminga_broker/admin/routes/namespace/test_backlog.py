"""The subscriptions of all topics of a namespace are cleared and forgotten at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of, publish

from geminga_broker.admin.services import Services
from geminga_broker.ownership.ownership import Ownership
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import TopicName

if TYPE_CHECKING:
    from typing import Protocol

    class RememberingBroker(Protocol):
        """The broker behind the application, whose methods are replaced here."""

        async def persistent_topic(self, topic: TopicName, *, create: bool = False) -> Topic: ...

    class MemoryCalls(Protocol):
        """What the brokers asked each other."""

        asked: list[str]


NS = "/admin/v2/namespaces/public/default"
NAMES = ("a", "b", "c")


@pytest.fixture
async def filled(
    broker: RememberingBroker, topics: TopicDirectory, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Topic]:
    """Three topics of one entry each with subscriptions ``s`` and ``t``, the last without ``t``."""

    async def persistent_topic(name: TopicName, *, create: bool = False) -> Topic:
        return await topics.get(name, create=create)

    monkeypatch.setattr(broker, "persistent_topic", persistent_topic)
    made: dict[str, Topic] = {}
    for name in NAMES:
        topic = made[name] = await persistent_topic(TopicName.parse(name), create=True)
        for subscription in ("s", "t") if name != "c" else ("s",):
            await topic.subscribing.create(subscription, from_earliest=True)
        await publish(topic, 1)
    return made


def backlogs(topics: dict[str, Topic], subscription: str) -> list[int]:
    stored = [topic.part(PersistentSubscriptions).subscriptions for topic in topics.values()]
    return [each[subscription].cursor.backlog_entries for each in stored if subscription in each]


async def test_every_subscription_passes_all_there_is(
    client: httpx.AsyncClient, filled: dict[str, Topic]
) -> None:
    assert backlogs(filled, "s") == [1, 1, 1]
    assert (await client.post(f"{NS}/clearBacklog")).status_code == 204
    assert (backlogs(filled, "s"), backlogs(filled, "t")) == ([0, 0, 0], [0, 0])


async def test_only_those_of_one_name(client: httpx.AsyncClient, filled: dict[str, Topic]) -> None:
    assert (await client.post(f"{NS}/clearBacklog/t")).status_code == 204
    assert (backlogs(filled, "s"), backlogs(filled, "t")) == ([1, 1, 1], [0, 0])
    assert (await client.post(f"{NS}/clearBacklog/none")).status_code == 204


async def test_only_those_of_one_bundle(
    client: httpx.AsyncClient, filled: dict[str, Topic], services: Services
) -> None:
    bundles = [await services.ownership.rings.bundle_of(topic.name) for topic in filled.values()]
    inside = [int(each != bundles[0]) for each in bundles]
    assert sum(inside) > 0
    url = f"{NS}/{bundles[0].name}/clearBacklog"
    assert (await client.post(f"{url}/s")).status_code == 204
    assert (backlogs(filled, "s"), backlogs(filled, "t")) == (inside, [1, 1])
    assert (await client.post(url)).status_code == 204
    assert backlogs(filled, "t") == inside[:2]
    answer = await client.post(f"{NS}/nonsense/clearBacklog")
    assert (answer.status_code, answer.json()) == (
        412,
        {"reason": "Cannot find bundle public/default/nonsense in the bundles list"},
    )


async def test_unsubscribing_deletes_subscriptions_without_consumers(
    client: httpx.AsyncClient, filled: dict[str, Topic]
) -> None:
    assert (await client.post(f"{NS}/unsubscribe/t")).status_code == 204
    assert [list(topic.subscribing.subscriptions) for topic in filled.values()] == [["s"]] * 3
    subscription = await filled["b"].subscribing.subscribe(
        SubscribeRequest("s", SubscriptionType.SHARED)
    )
    subscription.connected(consumer_of(NotedSession()))
    answer = await client.post(f"{NS}/unsubscribe/s")
    assert (answer.status_code, answer.json()) == (
        412,
        {"reason": "Subscription has active connected consumers"},
    )
    assert list(filled["b"].subscribing.subscriptions) == ["s"]


@pytest.mark.usefixtures("filled")
async def test_what_another_broker_serves_is_done_there(
    client: httpx.AsyncClient,
    filled: dict[str, Topic],
    services: Services,
    rival: Ownership,
    rival_broker: RememberingBroker,
    broker: RememberingBroker,
    calls: MemoryCalls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rival_broker, "persistent_topic", broker.persistent_topic)
    name = filled["c"].name
    await services.ownership.unload_namespace(name.namespace)
    await rival.owner(name)
    bundle = (await rival.rings.bundle_of(name)).name
    assert (await client.post(f"{NS}/clearBacklog/s")).status_code == 204
    assert (backlogs(filled, "s"), backlogs(filled, "t")) == ([0, 0, 0], [1, 1])
    assert calls.asked == [
        f"POST http://127.0.0.1:2{NS}/{bundle}/clearBacklog/s?authoritative=true"
    ]


async def test_a_namespace_that_is_not_there_is_said_so(client: httpx.AsyncClient) -> None:
    for path in ("clearBacklog", "clearBacklog/s", "unsubscribe/s", "0x0_0x1/clearBacklog"):
        answer = await client.post(f"/admin/v2/namespaces/public/none/{path}")
        assert (answer.status_code, answer.json()) == (404, {"reason": "Namespace does not exist"})
