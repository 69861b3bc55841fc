"""Proves that discovery answers when the broker is open, from the cluster's records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar_broker.discovery import Discovery
from magnetar_broker.metadata.errors import NamespaceNotFound
from magnetar_broker.metadata.initialize import ClusterUrls, initialize_cluster_metadata
from magnetar_broker.metadata.namespaces import Namespaces
from magnetar_broker.metadata.partitioned_topics import PartitionedTopics
from magnetar_broker.metadata.persistent_topics import PersistentTopics
from magnetar_broker.ownership.address import BrokerAddress
from magnetar_broker.ownership.ownership import Ownership
from magnetar_protocol.pulsar.topic_names import NamespaceName, TopicName
from magnetar_runtime.coordination import Coordination

Settle = Callable[[], Awaitable[None]]
PARTED = TopicName.parse("persistent://public/default/parted")
VOLATILE = TopicName.parse("non-persistent://public/default/volatile")
URLS = ClusterUrls("http://here:8080", "pulsar://here:6650")


@pytest.fixture
async def discovery(coordination: Coordination) -> Discovery:
    """Discovery of an initialized cluster with one topic of three partitions; not open yet."""
    await initialize_cluster_metadata(coordination, "standalone", URLS, instance_id="i")
    namespaces, partitioned = Namespaces(coordination), PartitionedTopics(coordination)
    await partitioned.create(PARTED, 3)
    address = BrokerAddress("here:8080", "pulsar://here:6650", "http://here:8080")
    return Discovery(
        Ownership(coordination, namespaces, address),
        namespaces,
        partitioned,
        PersistentTopics(coordination),
        non_persistent_topics=lambda _: [VOLATILE],
    )


async def test_who_asks_before_the_broker_is_open_waits(
    discovery: Discovery, settle: Settle
) -> None:
    asking = asyncio.ensure_future(discovery.partitions(PARTED, create=False))
    await settle()
    assert not asking.done()
    discovery.open()
    assert await asking == 3


async def test_a_partition_has_no_partitions(discovery: Discovery) -> None:
    discovery.open()
    assert await discovery.partitions(PARTED.partition(1), create=True) == 0
    assert await discovery.partitions(VOLATILE, create=True) == 0


async def test_a_namespace_that_is_not_there_is_said_for_a_topic_and_is_empty_for_a_list(
    discovery: Discovery,
) -> None:
    discovery.open()
    with pytest.raises(NamespaceNotFound):
        await discovery.partitions(TopicName.parse("public/nowhere/topic"), create=True)
    nowhere = await discovery.topics_of(NamespaceName.parse("nobody/nowhere"))
    assert nowhere == [VOLATILE]


async def test_topics_kept_in_memory_are_listed_beside_the_stored(discovery: Discovery) -> None:
    discovery.open()
    topics = await discovery.topics_of(NamespaceName.parse("public/default"))
    assert VOLATILE in topics
