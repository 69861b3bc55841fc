"""A persistent topic exists when its managed ledger's node does."""

from __future__ import annotations

import pytest

from geminga_cluster.persistent_topics import PersistentTopics, topic_path
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.topics.cursor import CursorRecord
from geminga_protocol.records.topics.managed_ledger import LedgerRecord, ManagedLedgerRecord
from geminga_runtime.coordination import Coordination

SHOP = NamespaceName("acme", "shop")


@pytest.fixture
def topics(coordination: Coordination) -> PersistentTopics:
    return PersistentTopics(coordination)


async def create(coordination: Coordination, local: str) -> TopicName:
    topic = TopicName.of("persistent", "acme", "shop", local)
    await coordination.create(topic_path(topic), make_parents=True)
    return topic


async def test_an_unknown_namespace_has_no_topics(topics: PersistentTopics) -> None:
    assert await topics.names(SHOP) == []


async def test_a_topic_stands_where_pulsar_looks_for_it() -> None:
    topic = TopicName.parse("persistent://acme/shop/a/b %?")
    assert topic_path(topic) == "/managed-ledgers/acme/shop/persistent/a%2Fb+%25%3F"


@pytest.mark.parametrize(
    "local", ["orders", "orders-partition-3", "a/b %?", "中", " lead", "a%2Fb"]
)
async def test_any_name_is_found_again(
    local: str, topics: PersistentTopics, coordination: Coordination
) -> None:
    topic = await create(coordination, local)
    assert await topics.names(SHOP) == [topic]
    assert await topics.exists(topic)


async def test_names_are_sorted(topics: PersistentTopics, coordination: Coordination) -> None:
    for local in ("b", "a", "c"):
        await create(coordination, local)
    assert [topic.local for topic in await topics.names(SHOP)] == ["a", "b", "c"]


async def test_a_node_that_names_no_topic_is_passed_over(
    topics: PersistentTopics, coordination: Coordination
) -> None:
    await coordination.create("/managed-ledgers/acme/shop/persistent/%FF", make_parents=True)
    assert await topics.names(SHOP) == []


async def test_a_cursors_node_is_no_topic(
    topics: PersistentTopics, coordination: Coordination
) -> None:
    topic = await create(coordination, "orders")
    await coordination.create(f"{topic_path(topic)}/billing")
    assert await topics.names(SHOP) == [topic]


async def test_what_is_stored_of_a_topic_is_found_with_its_cursors(
    topics: PersistentTopics, coordination: Coordination
) -> None:
    topic = await create(coordination, "a/b")
    log = ManagedLedgerRecord(ledgers=(LedgerRecord(7),))
    cursor = CursorRecord(mark_delete=(7, -1))
    path = topic_path(topic)
    await coordination.set(path, log.encode())
    await coordination.create(f"{path}/my+sub%2F1", cursor.encode())
    stored = await topics.stored(topic)
    assert stored is not None
    assert (stored.record, stored.stat.version) == (log, 1)
    assert {name: each.record for name, each in stored.cursors.items()} == {"my sub/1": cursor}


async def test_of_a_topic_that_is_not_there_nothing_is_stored(topics: PersistentTopics) -> None:
    assert await topics.stored(TopicName.of("persistent", "acme", "shop", "nope")) is None
