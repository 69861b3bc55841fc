"""Proves for which namespaces the policies of topics are read, and which followers hear of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from random import Random

import pytest
from tests.unit.geminga_broker.topic_policies.event_topic import NAMESPACE, EventTopic, of

from geminga import Client, Opening
from geminga_broker.errors import ServiceNotReady
from geminga_broker.schemas.errors import SchemaNotFound
from geminga_broker.schemas.storage import StoredSchema
from geminga_broker.topic_policies.events import events_topic
from geminga_broker.topic_policies.store import UNUSED_S, TopicPolicyStore
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.persistent_topics import topic_path
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.topic_policies import NO_TOPIC_POLICIES
from geminga_runtime.coordination import Coordination

A, B = (TopicName.parse(f"persistent://t/n/{name}") for name in "ab")
PATH = topic_path(events_topic(NAMESPACE))


class Store(TopicPolicyStore):
    """Over one topic of events; it notes what it tells."""

    def __init__(self, coordination: Coordination, topic: EventTopic) -> None:
        self.used: list[NamespaceName] = []
        self.told: list[Collection[TopicName] | None] = []
        super().__init__(
            coordination,
            Namespaces(coordination),
            cluster="here",
            random=Random(1),
            connect=lambda: Opening(self._client_of(topic)),
            schema_version=self._no_schema,
            in_use=lambda: self.used,
        )
        self.followers.append(lambda _, topics: self.told.append(topics))

    async def _client_of(self, topic: EventTopic) -> Client:
        return topic.client

    async def _no_schema(self, *_: object) -> StoredSchema:
        raise SchemaNotFound


@pytest.fixture
def topic() -> EventTopic:
    return EventTopic()


@pytest.fixture
async def store(coordination: Coordination, topic: EventTopic) -> AsyncIterator[Store]:
    async with Store(coordination, topic) as store:
        yield store


async def test_a_namespace_whose_topics_say_nothing_is_not_read(
    store: Store, topic: EventTopic
) -> None:
    await store.ready(NAMESPACE)
    assert store.known(A) == await store.local(A) == NO_TOPIC_POLICIES
    assert topic.readers == 0


async def test_a_key_that_names_no_topic_keeps_nothing_from_being_told(
    store: Store, topic: EventTopic, coordination: Coordination
) -> None:
    await coordination.create(PATH, make_parents=True)
    topic.add(*of("a", message_ttl_s=1))
    topic.add("persistent://t", of("b", message_ttl_s=2)[1])
    topic.add(*of("b", message_ttl_s=3))
    await store.ready(NAMESPACE)
    assert store.told[-1] == {A, B}
    assert store.known(A).message_ttl_s == 1
    assert store.known(A.partition(2)).message_ttl_s == 1


async def test_an_unused_log_is_left_and_read_again_when_it_is_asked_for(
    store: Store, topic: EventTopic, coordination: Coordination
) -> None:
    await coordination.create(PATH, make_parents=True)
    topic.add(*of("a", message_ttl_s=1))
    store.used = [NAMESPACE]
    await store.ready(NAMESPACE)
    await asyncio.sleep(10 * UNUSED_S)
    topic.add(*of("a", message_ttl_s=2))
    await asyncio.sleep(1)
    assert store.known(A).message_ttl_s == 2
    store.used = []
    await asyncio.sleep(3 * UNUSED_S)
    assert store.known(A) == NO_TOPIC_POLICIES
    assert (await store.local(A)).message_ttl_s == 2
    assert topic.readers == 2


async def test_a_change_is_read_back_and_one_that_changes_nothing_is_not_stored(
    store: Store, topic: EventTopic, coordination: Coordination
) -> None:
    await coordination.create(PATH, make_parents=True)
    for _ in range(2):
        await store.change(A, lambda said: replace(said, message_ttl_s=7))
    assert store.known(A).message_ttl_s == 7
    assert len(topic.events) == 1


async def test_a_change_that_is_not_stored_is_refused(
    store: Store, topic: EventTopic, coordination: Coordination
) -> None:
    await coordination.create(PATH, make_parents=True)
    await store.ready(NAMESPACE)
    topic.may_open = False
    with pytest.raises(ServiceNotReady):
        await store.change(A, lambda said: replace(said, message_ttl_s=7))
    assert topic.events == []


async def test_a_topic_that_was_deleted_is_left(
    store: Store, topic: EventTopic, coordination: Coordination
) -> None:
    await coordination.create(PATH, make_parents=True)
    topic.add(*of("a", message_ttl_s=1))
    await store.ready(NAMESPACE)
    await coordination.delete(PATH)
    await asyncio.sleep(1)
    assert store.told[-1] is None  # so that all are looked at again
    await store.refresh(NAMESPACE)
    assert store.known(A) == NO_TOPIC_POLICIES
