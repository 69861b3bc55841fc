"""A topic's internal stats are those of a real broker that did the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.project_files import GOLDEN
from tests.unit.geminga_broker.clients_and_logs import NotedSession, consumer_of, producer_of
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers, logs_over

from geminga_broker.admin.topics.internal_stats import internal_stats
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.coordination import Coordination
from geminga_simulation.event_loop.clock import SimulatedClock

RECORDED = GOLDEN / "admin" / "internal-stats.json"
NAME = TopicName.parse("persistent://t/n/topic")
# What depends on the day, on what else a cluster has, and on the size of a client's metadata; and
# what we do not know (missing copies), or number otherwise (ledgers of cursors).
OTHERS = {
    *("lastLedgerCreatedTimestamp", "lastLedgerSwitchTimestamp", "totalSize", "currentLedgerSize"),
    *("size", "metadata", "underReplicated", "cursorLedger", "cursorLedgerLastEntry", "state"),
    "ledgerId",
}


@pytest.fixture
async def topic(coordination: Coordination) -> AsyncIterator[Topic]:
    """The topic under test, with ten messages that are acknowledged here and there."""
    factory = logs_over(coordination, MemoryLedgers())
    async with TopicDirectory(factory, SimulatedClock(), owns=lambda _: True) as topics:
        topic = await topics.get(NAME, create=True)
        yield topic


async def consume(topic: Topic, name: str, kind: SubscriptionType, *acked: int) -> None:
    subscription = await topic.subscribing.subscribe(
        SubscribeRequest(name, kind, starts_at_earliest=True)
    )
    consumer = consumer_of(NotedSession())
    subscription.connected(consumer)
    subscription.flow(consumer, 1000)
    await asyncio.sleep(1)
    ledger_id = topic.managed_ledger.chain.last_confirmed[0]
    subscription.acknowledger.single(
        consumer, [(ledger_id, entry_id, ()) for entry_id in acked], None
    )


async def publish(topic: Topic, count: int) -> None:
    producer = producer_of(NotedSession())
    await topic.publishing.connect(producer)
    metadata = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    producer.append_all([(encode_payload(metadata, b"m"), 1, producer, 0, 0)] * count)
    await asyncio.sleep(1)


def comparable(document: Any, ledger_id: int) -> Any:
    """``document`` without what differs from day to day; its ledger is L."""
    if isinstance(document, dict):
        return {
            name: comparable(value, ledger_id)
            for name, value in document.items()
            if name not in OTHERS and not name.startswith("reader-")
        }
    if isinstance(document, list):
        return [comparable(each, ledger_id) for each in document]
    return document.replace(f"{ledger_id}:", "L:") if isinstance(document, str) else document


async def test_the_insides_of_a_busy_topic_are_shown(topic: Topic) -> None:
    await topic.subscribing.create("idle")
    await publish(topic, 10)
    await consume(topic, "shared", SubscriptionType.SHARED, 0, 1, 4, 5, 8)
    await consume(topic, "excl", SubscriptionType.EXCLUSIVE, 0, 1, 2)
    real = json.loads(RECORDED.read_text())["live"]
    real["waitingCursorsCount"] -= 1  # the reader's
    ours = internal_stats(topic, {})
    ledger_id = topic.managed_ledger.chain.last_confirmed[0]
    assert comparable(ours, ledger_id) == comparable(real, 14)
    assert list(ours) == list(real)
    shown: Any = ours["cursors"]
    assert list(shown["idle"]) == list(real["cursors"]["idle"])
    assert (ours["state"], shown["idle"]["state"]) == ("LedgerOpened", "NoLedger")


async def test_a_consumer_without_permits_waits_for_nothing(topic: Topic) -> None:
    subscription = await topic.subscribing.subscribe(SubscribeRequest("s", SubscriptionType.SHARED))
    subscription.connected(consumer_of(NotedSession()))
    shown: Any = internal_stats(topic, {})
    assert shown["waitingCursorsCount"] == 0
    assert (shown["cursors"]["s"]["active"], shown["cursors"]["s"]["waitingReadOp"]) == (
        True,
        False,
    )


async def test_positions_are_written_as_upstream_writes_them(topic: Topic) -> None:
    assert str(Position(3, -1)) == "3:-1"
    last: Any = internal_stats(topic, {})["lastConfirmedEntry"]
    assert last == str(topic.managed_ledger.chain.last_confirmed)


async def test_a_topic_that_keeps_nothing_has_nothing_inside(topics: TopicDirectory) -> None:
    topic = await topics.get(TopicName.parse("non-persistent://t/n/topic"), create=True)
    document = internal_stats(topic, {})
    assert (document["numberOfEntries"], document["cursors"]) == (0, {})
    assert "state" not in document
