"""Subscriptions are made, moved and deleted by REST, on topics that store in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of, publish

from geminga_broker.errors import TopicNotFound
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import TopicName

if TYPE_CHECKING:
    from typing import Protocol

    class RememberingBroker(Protocol):
        """The broker behind the application, whose methods are replaced here."""


P = "/admin/v2/persistent/public/default"
T = f"{P}/t"
MISSING = {"reason": "Subscription none not found for topic persistent://public/default/t"}


@pytest.fixture(autouse=True)
def storing(
    broker: RememberingBroker, topics: TopicDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have the application work on ``topics``."""

    async def persistent_topic(name: TopicName, *, create: bool = False) -> Topic:
        return await topics.get(name, create=create)

    async def subscription_names(name: TopicName) -> list[str]:
        if not await topics.exists(name):
            raise TopicNotFound(str(name))
        return list((await topics.get(name, create=False)).subscribing.subscriptions)

    monkeypatch.setattr(broker, "persistent_topic", persistent_topic)
    monkeypatch.setattr(broker, "subscription_names", subscription_names)
    monkeypatch.setattr(broker, "create", topics.create)


@pytest.fixture
async def topic(topics: TopicDirectory) -> Topic:
    """Topic ``t`` with ten entries of the last minute, the last of them a batch of five, and
    subscription ``s``."""
    topic = await topics.get(TopicName.parse("t"), create=True)
    await topic.subscribing.create("s", from_earliest=True)
    await publish(topic, *[1] * 9, 5, age_s=60)
    return topic


def backlog(topic: Topic, name: str = "s") -> int:
    return topic.part(PersistentSubscriptions).named(name).cursor.backlog_entries


async def connected(topic: Topic, name: str = "s") -> tuple[Subscription, NotedSession]:
    session = NotedSession()
    request = SubscribeRequest(name, SubscriptionType.SHARED)
    subscription = await topic.part(PersistentSubscriptions).subscribe(request)
    consumer = consumer_of(session)
    subscription.connected(consumer)
    subscription.flow(consumer, 100)
    return subscription, session


async def test_subscriptions_begin_with_the_message_that_the_body_names(
    client: httpx.AsyncClient, topic: Topic
) -> None:
    ledger_id = topic.managed_ledger.chain.last_confirmed[0]
    bodies: dict[str, tuple[object, int]] = {
        "latest": (None, 0),
        "explicit-latest": ({"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}, 0),
        "earliest": ({"ledgerId": -1, "entryId": -1}, 10),
        "fourth": ({"ledgerId": ledger_id, "entryId": 3, "properties": {"a": "b"}}, 7),
    }
    for name, (body, left) in bodies.items():
        answer = await client.put(f"{T}/subscription/{name}?replicated=true", json=body)
        assert answer.status_code == 204
        assert backlog(topic, name) == left
        assert topic.part(PersistentSubscriptions).named(name).cursor.is_replicated
    assert (await client.get(f"{T}/subscriptions")).json() == ["s", *bodies]
    assert (await client.get(f"{T}/subscription/fourth/properties")).json() == {"a": "b"}
    again = await client.put(f"{T}/subscription/latest")
    assert (again.status_code, again.json()) == (
        409,
        {"reason": "Subscription already exists for topic"},
    )


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("%2E%2E", 409, "ZooKeeper has no nodes called . or .."),
        ("%20", 412, "Empty subscription name"),
        ("pulsar.repl.y", 412, "Subscription with reserved subscription name attempted"),
    ],
)
async def test_a_name_that_no_subscription_can_have_is_refused(
    client: httpx.AsyncClient, topic: Topic, name: str, status: int, reason: str
) -> None:
    answer = await client.put(f"{T}/subscription/{name}")
    assert (answer.status_code, reason in answer.json()["reason"]) == (status, True)
    assert list(topic.subscribing.subscriptions) == ["s"]


async def test_a_topic_is_made_for_its_first_subscription(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{P}/new/subscriptions")).status_code == 404
    assert (await client.put(f"{P}/new/subscription/s")).status_code == 204
    assert (await client.get(f"{P}/new/subscriptions")).json() == ["s"]


async def test_of_a_partitioned_topic_every_partition_gets_it(client: httpx.AsyncClient) -> None:
    await client.put(f"{P}/parts/partitions", json=2)
    assert (await client.put(f"{P}/parts/subscription/s")).status_code == 204
    for name in ("parts", "parts-partition-0", "parts-partition-1"):
        assert (await client.get(f"{P}/{name}/subscriptions")).json() == ["s"]
    for everywhere in ("skip_all", "resetcursor/0"):
        assert (await client.post(f"{P}/parts/subscription/s/{everywhere}")).status_code == 204
    body = {"ledgerId": 1, "entryId": 1}
    for nowhere in ("skip/1", "resetcursor", "expireMessages", "analyzeBacklog"):
        answer = await client.post(f"{P}/parts/subscription/s/{nowhere}", json=body)
        assert answer.status_code == 405
    assert (await client.delete(f"{P}/parts/subscription/s")).status_code == 204
    assert (await client.get(f"{P}/parts/subscriptions")).json() == []
    gone = await client.delete(f"{P}/parts/subscription/s")
    assert (gone.status_code, gone.json()) == (404, {"reason": "Subscription not found"})


async def test_a_subscription_in_use_is_deleted_by_force_alone(
    client: httpx.AsyncClient, topic: Topic
) -> None:
    await connected(topic)
    kept = await client.delete(f"{T}/subscription/s")
    assert (kept.status_code, kept.json()["reason"]) == (
        412,
        "Subscription has active connected consumers",
    )
    assert (await client.delete(f"{T}/subscription/s?force=true")).status_code == 204
    assert not topic.subscribing.subscriptions


@pytest.mark.parametrize(
    ("call", "left"),
    [("skip/3", 7), ("skip/1000", 0), ("skip/0", 10), ("skip/-1", 10), ("skip_all", 0)],
)
async def test_messages_are_skipped(
    client: httpx.AsyncClient, topic: Topic, call: str, left: int
) -> None:
    assert (await client.post(f"{T}/subscription/s/{call}")).status_code == 204
    assert backlog(topic) == left


async def test_what_is_skipped_while_it_is_held_is_held_no_more(
    client: httpx.AsyncClient, topic: Topic
) -> None:
    subscription, session = await connected(topic)
    assert len(session.positions()) == 10
    (consumer,) = subscription.consumers
    await client.post(f"{T}/subscription/s/skip/9")
    assert (len(consumer.pending), consumer.unacknowledged) == (1, 5)
    assert subscription.consumers == [consumer]


async def test_messages_expire_by_age_and_by_position(
    client: httpx.AsyncClient, topic: Topic
) -> None:
    ledger_id = topic.managed_ledger.chain.last_confirmed[0]
    kept = await client.post(f"{T}/subscription/s/expireMessages/1000")
    assert (kept.status_code, backlog(topic)) == (204, 10)
    body = {"ledgerId": ledger_id, "entryId": 3}
    assert (await client.post(f"{T}/subscription/s/expireMessages", json=body)).status_code == 204
    assert backlog(topic) == 6
    body["excluded"] = True
    await client.post(f"{T}/subscription/s/expireMessages", json={**body, "entryId": 6})
    assert backlog(topic) == 4
    assert (await client.post(f"{T}/all_subscription/expireMessages/30")).status_code == 204
    skipping = topic.part(PersistentSubscriptions).named("s").skipping
    assert (backlog(topic), skipping.expired) == (0, 10)
    assert skipping.last_expired_ms > 0
    nothing = await client.post(f"{T}/subscription/s/expireMessages/1")
    assert nothing.status_code == 409
    assert nothing.json()["reason"].startswith(
        "Expire message by timestamp not issued on topic persistent://public/default/t for "
        "subscription s due to ongoing message expiration not finished"
    )


@pytest.mark.parametrize(
    ("entry_id", "more", "first", "messages_left"),
    [
        (3, {}, 3, 11),
        (3, {"excluded": True}, 4, 10),
        (9, {"batchIndex": 2}, 9, 3),
        (9, {"batchIndex": 2, "excluded": True}, 9, 2),
        (9, {"batchIndex": 4, "excluded": True}, 10, 0),
    ],
)
async def test_a_cursor_is_reset_into_a_batch(
    client: httpx.AsyncClient,
    topic: Topic,
    entry_id: int,
    more: dict[str, object],
    first: int,
    messages_left: int,
) -> None:
    ledger_id = topic.managed_ledger.chain.last_confirmed[0]
    body = {"ledgerId": ledger_id, "entryId": entry_id, **more}
    assert (await client.post(f"{T}/subscription/s/resetcursor", json=body)).status_code == 204
    assert topic.part(PersistentSubscriptions).named("s").cursor.mark_delete == Position(
        ledger_id, first - 1
    )
    subscription, _ = await connected(topic)
    assert subscription.consumers[0].unacknowledged == messages_left


async def test_properties_are_replaced_and_outlive_the_topic(
    client: httpx.AsyncClient, topic: Topic, topics: TopicDirectory
) -> None:
    for properties in ({"a": "b"}, {"x": "y"}):
        await client.put(f"{T}/subscription/s/properties", json=properties)
    await topics.unload(topic.name)
    assert (await client.get(f"{T}/subscription/s/properties")).json() == {"x": "y"}


async def test_the_brokers_own_properties_are_neither_shown_nor_touched(
    client: httpx.AsyncClient, topic: Topic
) -> None:
    own = {"#pulsar.internal.a": "kept"}
    cursor = topic.part(PersistentSubscriptions).named("s").cursor
    await cursor.change_properties(own)
    answer = await client.put(
        f"{T}/subscription/s/properties", json={"x": "y", "#pulsar.internal.a": "lost"}
    )
    assert answer.status_code == 204
    assert cursor.properties == {**own, "x": "y"}
    assert (await client.get(f"{T}/subscription/s/properties")).json() == {"x": "y"}


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("POST", "skip/1"),
        ("POST", "skip_all"),
        ("POST", "expireMessages/1"),
        ("POST", "resetcursor/0"),
        ("POST", "analyzeBacklog"),
        ("GET", "properties"),
    ],
)
async def test_a_subscription_that_is_not_there_is_said_so(
    client: httpx.AsyncClient, method: str, call: str
) -> None:
    answer = await client.request(method, f"{T}/subscription/none/{call}")
    assert (answer.status_code, answer.json()) == (404, MISSING)


@pytest.mark.usefixtures("topic")
async def test_what_is_no_number_finds_nothing(client: httpx.AsyncClient) -> None:
    for call in ("skip/x", "expireMessages/1.5", "resetcursor/now"):
        assert (await client.post(f"{T}/subscription/s/{call}")).status_code == 404
    for body in (None, {"ledgerId": "one"}):
        answer = await client.post(f"{T}/subscription/s/resetcursor", json=body)
        assert answer.status_code == 400


async def test_a_topic_that_keeps_nothing_has_nothing_to_move(client: httpx.AsyncClient) -> None:
    volatile = "/admin/v2/non-persistent/public/default/t"
    assert (await client.put(f"{volatile}/subscription/s")).status_code == 400
    assert (await client.post(f"{volatile}/subscription/s/skip/1")).status_code == 404


# Single messages


async def test_messages_are_shown_by_place_by_id_and_from_either_end(
    client: httpx.AsyncClient, topic: Topic
) -> None:
    ledger_id = topic.managed_ledger.chain.last_confirmed[0]
    shown = {
        "subscription/s/position/1": 0,
        "subscription/s/position/10": 9,
        "subscription/fresh/position/2": 1,
        f"ledger/{ledger_id}/entry/4": 4,
        "examinemessage?initialPosition=earliest&messagePosition=2": 1,
        "examinemessage?initialPosition=latest&messagePosition=2": 8,
        "examinemessage": 9,
    }
    for call, entry_id in shown.items():
        answer = await client.get(f"{T}/{call}")
        assert answer.headers["X-Pulsar-Message-ID"] == f"{ledger_id}:{entry_id}"
    for call in ("subscription/s/position/11", "subscription/s/position/0"):
        answer = await client.get(f"{T}/{call}")
        assert (answer.status_code, answer.json()) == (404, {"reason": "Message not found"})
    for call in (f"ledger/{ledger_id}/entry/10", "ledger/-1/entry/0"):
        answer = await client.get(f"{T}/{call}")
        assert (answer.status_code, answer.json()) == (404, {"reason": "Message id not found"})
    assert "fresh" in topic.subscribing.subscriptions


@pytest.mark.parametrize("number", ["--1", "-", "x", "1.5", "9" * 5000])
async def test_a_place_from_the_end_that_is_no_number_is_refused(
    number: str, client: httpx.AsyncClient, topic: Topic
) -> None:
    assert topic.managed_ledger.chain.spans
    answer = await client.get(f"{T}/examinemessage?messagePosition={number}")
    assert answer.status_code == 404
    assert answer.json() == {"reason": "messagePosition should be a whole number"}


async def test_the_headers_of_a_message_are_spelled_as_upstream_spells_them(
    client: httpx.AsyncClient,
    topic: Topic,
) -> None:
    assert topic.subscribing.subscriptions
    answer = await client.get(f"{T}/subscription/s/position/1")
    names = [name for name, _ in answer.headers.raw]
    assert b"X-Pulsar-PROPERTY" in names  # Java's admin client finds it in no other spelling
    assert len(names) == len({name.lower() for name in names})


async def test_ids_sizes_and_counts(client: httpx.AsyncClient, topic: Topic) -> None:
    ledger_id = topic.managed_ledger.chain.last_confirmed[0]
    first = (await client.get(f"{T}/messageid/0")).json()
    assert (first["ledgerId"], first["entryId"]) == (ledger_id, 0)
    after_all = (await client.get(f"{T}/messageid/{2**62}")).json()
    assert after_all["entryId"] == 10
    last = (await client.get(f"{T}/lastMessageId")).json()
    assert (last["entryId"], last["batchIndex"]) == (9, 4)
    total = topic.managed_ledger.chain.total_bytes
    everything = await client.put(f"{T}/backlogSize", json={"ledgerId": -1, "entryId": -1})
    assert everything.json() == total
    half = await client.put(f"{T}/backlogSize", json={"ledgerId": ledger_id, "entryId": 4})
    assert half.json() == total // 2
    scan = (await client.post(f"{T}/subscription/s/analyzeBacklog")).json()
    assert (scan["entries"], scan["messages"], scan["aborted"]) == (10, 14, False)
    assert (scan["firstMessageId"], scan["lastMessageId"]) == (f"{ledger_id}:0", f"{ledger_id}:9")
