"""Proves that a part needs nothing but its place in the list: topic, log, quotas and maintenance
know it by what it says of itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest
from tests.unit.geminga_broker.clients_and_logs import maintain, publish
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers

from geminga_broker.admin.topics.internal_stats import internal_stats
from geminga_broker.errors import NameReserved
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.policies.expiry import Expiry
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics import maintenance
from geminga_broker.topics import topic as topic_module
from geminga_broker.topics.backlog import Backlog, MessageExpiry
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.maintenance import TopicMaintenance
from geminga_broker.topics.part import OwningTopic, TopicPart, TopicServices
from geminga_broker.topics.parts import PERSISTENT
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_simulation.event_loop.clock import SimulatedClock

NAME = TopicName.parse("persistent://t/n/topic")
CURSOR = "broker.own"


class NotedPart(TopicPart):
    """Has a cursor, made with the topic, and notes what it hears."""

    has_backlog: ClassVar[bool] = True

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        self._factory = services.factory
        self.cursor: Cursor | None = None
        self.heard: list[str] = []

    def apply(self, policies: EffectivePolicies) -> None:
        self.heard.append(f"apply ttl {policies.expiry.ttl_s}")

    def claims(self, cursor_name: str) -> bool:
        return cursor_name == CURSOR

    async def adopt(self, cursor: Cursor) -> None:
        self.heard.append("adopt")
        await self._topic.enter_cursor(cursor)
        self.cursor = cursor

    async def opened(self) -> None:
        self.heard.append("opened")
        if self.cursor is None:
            log = self._topic.managed_ledger
            cursor = await self._factory.create_cursor(
                log.name, CURSOR, log.chain, log.chain.before_first, {}
            )
            await self._topic.enter_cursor(cursor)
            self.cursor = cursor

    def cursors(self) -> list[Cursor]:
        return [] if self.cursor is None else [self.cursor]

    async def check_producer(self, producer: Producer) -> None:
        self.heard.append(f"check {producer.name}")

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        self.heard.append(f"run of {len(batch)} upto {Position(ledger_id, entries[-1][0])}")

    async def expire(self, expiry: Expiry) -> None:
        self.heard.append(f"expire {expiry.ttl_s}")

    def tick(self, now_s: float, period_s: float) -> None:
        self.heard.append(f"tick at {now_s:g}" if period_s > 0 else "tick in no period")

    @property
    def needs_maintenance(self) -> bool:
        return True

    async def maintain(self) -> None:
        self.heard.append("maintain")

    async def close(self) -> None:
        self.heard.append(f"close while the log is {self._topic.managed_ledger.state.name}")
        if self.cursor is not None:
            await self.cursor.__aexit__(None, None, None)

    async def delete(self) -> None:
        self.heard.append("delete")
        if self.cursor is not None:
            await self.cursor.delete()


@pytest.fixture
async def topic(topics: TopicDirectory, monkeypatch: pytest.MonkeyPatch) -> Topic:
    """A topic that has one part more than others."""
    monkeypatch.setattr(topic_module, "PERSISTENT", (*PERSISTENT, NotedPart))
    return await topics.get(NAME, create=True)


async def test_a_part_hears_of_all_that_happens_to_its_topic(
    topics: TopicDirectory, topic: Topic
) -> None:
    heard = topic.part(NotedPart).heard
    assert heard[:2] == ["apply ttl 0", "opened"]
    heard.clear()
    await publish(topic, 1, 1)
    topic.tick(1e9)
    topic.apply(replace(topic.policies, expiry=Expiry(5, delayed_from_delivery=True)))
    await maintain(topics, MessageExpiry)
    await maintain(topics, NotedPart)
    await topics.unload(NAME)
    assert heard == [
        *("check p", "run of 2 upto 0:1"),
        *("tick at 1e+09", "apply ttl 5", "expire 5", "maintain"),
        "close while the log is LEDGER_OPENED",
    ]


async def test_a_cursor_that_a_part_claims_is_no_subscription(
    topics: TopicDirectory, topic: Topic
) -> None:
    with pytest.raises(NameReserved):
        await topic.subscribing.subscribe(SubscribeRequest(CURSOR, SubscriptionType.SHARED))
    with pytest.raises(NameReserved):
        await topic.subscribing.create(CURSOR)
    await topics.unload(NAME)
    again = await topics.get(NAME, create=False)
    assert again.part(NotedPart).heard[:3] == ["apply ttl 0", "adopt", "opened"]
    assert not again.subscribing.subscriptions
    assert CURSOR in dict(internal_stats(again, {}))["cursors"]  # type: ignore[operator]


async def test_what_a_part_has_not_passed_is_backlog_and_keeps_its_ledger(
    topic: Topic, ledgers: MemoryLedgers
) -> None:
    await publish(topic, 1, 1)
    await topic.managed_ledger.roll_over()
    await topic.managed_ledger.trimmer.trim()
    assert len(ledgers.entries[0]) == 2
    assert topic.part(Backlog).size_bytes == topic.managed_ledger.chain.total_bytes
    (cursor,) = topic.part(NotedPart).cursors()
    cursor.acknowledged.acknowledge_upto(Position(0, 1))
    cursor.changed()
    await asyncio.sleep(1)
    await topic.managed_ledger.trimmer.trim()
    assert 0 not in ledgers.entries
    assert topic.part(Backlog).size_bytes == 0


async def test_a_part_deletes_what_it_stored(
    topics: TopicDirectory, topic: Topic, requests: list[str]
) -> None:
    heard = topic.part(NotedPart).heard
    requests.clear()
    await topics.delete(NAME, force=False)
    assert "delete" in heard
    assert f"delete /managed-ledgers/t/n/persistent/topic/{CURSOR}" in requests


async def test_the_broker_maintains_parts_as_often_as_their_list_says(
    topics: TopicDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "maintenance_periods_s", lambda _: {NotedPart: 5.0})
    works = TopicMaintenance(topics, SimulatedClock()).work_of_parts()
    assert [(each.name, each.period_s) for each in works] == [("maintain NotedPart", 5.0)]
