"""Proves that topics with something to replicate are loaded though no client asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from geminga_broker.broker import Broker
from geminga_broker.errors import StorageUnavailable
from geminga_broker.replicated_topics import PERIOD_S
from geminga_cluster.persistent_topics import topic_path
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.coordination import Coordination

Settle = Callable[[], Awaitable[None]]
NAMESPACE = NamespaceName("public", "default")
TOPICS = [TopicName.parse(f"replicated-{number}") for number in range(12)]


async def replicate(broker: Broker, *clusters: str) -> None:
    def changed(policies: Policies) -> Policies:
        return replace(policies, replication_clusters=clusters)

    await broker.namespaces.update(NAMESPACE, changed)


async def has_cursor(coordination: Coordination, topic: TopicName, name: str) -> None:
    await coordination.create(f"{topic_path(topic)}/{name}", make_parents=True)


@pytest.fixture
def loads(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[TopicName]:
    """The topics that were loaded, in their order; there are no bookies to load them from."""
    loaded: list[TopicName] = []

    async def get(name: TopicName, *, create: bool) -> None:
        assert not create
        assert broker.ownership.owns(name)
        loaded.append(name)

    monkeypatch.setattr(broker.topics, "get", get)
    return loaded


async def test_the_leader_has_bundles_served_that_no_broker_owns(
    broker: Broker, loads: list[TopicName], coordination: Coordination
) -> None:
    async with broker:
        await replicate(broker, "standalone", "west")
        for topic in TOPICS:
            await has_cursor(coordination, topic, "pulsar.repl.west")
        await has_cursor(coordination, TopicName.parse("not-yet"), "subscription")
        assert list(broker.ownership.owned.generations) == []
        await asyncio.sleep(PERIOD_S + 1)
        bundles = {await broker.ownership.rings.bundle_of(topic) for topic in TOPICS}
        assert set(broker.ownership.owned.generations) == bundles
        assert sorted(loads, key=str) == sorted(TOPICS, key=str)
        # It has looked, and looks again when a broker has gone.
        for bundle in bundles:
            await broker.ownership.unload(bundle)
        await asyncio.sleep(3 * PERIOD_S)
        assert list(broker.ownership.owned.generations) == []


async def test_a_broker_that_acquires_a_bundle_loads_what_is_replicated_of_it(
    broker: Broker, loads: list[TopicName], coordination: Coordination, settle: Settle
) -> None:
    async with broker:
        await asyncio.sleep(PERIOD_S + 1)
        for topic in TOPICS:
            await has_cursor(coordination, topic, "pulsar.repl.west")
        bundle = await broker.ownership.rings.bundle_of(TOPICS[0])
        await broker.ownership.owner_of(bundle)
        await settle()
        assert loads == []  # the namespace is not replicated
        await broker.ownership.unload(bundle)
        await replicate(broker, "standalone", "west")
        await broker.ownership.owner_of(bundle)
        await settle()
        assert loads == [topic for topic in sorted(TOPICS, key=str) if bundle.covers(topic.hash)]


async def test_what_could_not_be_loaded_is_tried_again(
    broker: Broker,
    loads: list[TopicName],
    coordination: Coordination,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    get, tried = broker.topics.get, list[TopicName]()

    async def fail_once(name: TopicName, *, create: bool) -> object:
        tried.append(name)
        if len(tried) == 1:
            raise StorageUnavailable("no bookie answers")
        return await get(name, create=create)

    monkeypatch.setattr(broker.topics, "get", fail_once)
    async with broker:
        await replicate(broker, "standalone", "west")
        await has_cursor(coordination, TOPICS[0], "pulsar.repl.west")
        await asyncio.sleep(3 * PERIOD_S)
    assert tried == [TOPICS[0]] * 2
    assert loads == [TOPICS[0]]
