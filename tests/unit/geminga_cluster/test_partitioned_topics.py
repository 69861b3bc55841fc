"""Partitioned topics come with their partitions or not at all, and cost no needless question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga_cluster import partitioned_topics
from geminga_cluster.errors import (
    PartitionedTopicExists,
    PartitionedTopicNotFound,
    TooFewPartitions,
)
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_cluster.persistent_topics import PersistentTopics, topic_path
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_runtime.coordination import Coordination
from geminga_simulation.zookeeper.interception import InstantSession, InterceptedSession

SHOP = NamespaceName("acme", "shop")
ORDERS = TopicName.parse("persistent://acme/shop/orders")
PATH = "/admin/partitioned-topics/acme/shop/persistent/orders"

Tree = Callable[[], dict[str, bytes]]


@pytest.fixture
def topics(coordination: Coordination) -> PartitionedTopics:
    return PartitionedTopics(coordination)


async def test_a_topic_that_was_not_created_has_no_partitions(topics: PartitionedTopics) -> None:
    assert await topics.partitions(ORDERS) == 0
    assert await topics.metadata(ORDERS) is None
    assert await topics.names(SHOP, "persistent") == []


async def test_partitions_are_topics_from_the_start(
    topics: PartitionedTopics, coordination: Coordination, tree: Tree
) -> None:
    await topics.create(ORDERS, 3)
    assert await topics.partitions(ORDERS) == 3
    assert tree()[PATH] == b'{"partitions":3,"deleted":false}'
    partitions = await PersistentTopics(coordination).names(SHOP)
    assert partitions == [ORDERS.partition(index) for index in range(3)]


async def test_properties_are_kept(topics: PartitionedTopics) -> None:
    await topics.create(ORDERS, 2, {"a": "b"})
    record = await topics.metadata(ORDERS)
    assert record is not None
    assert record.properties == {"a": "b"}


async def test_creation_is_one_transaction(topics: PartitionedTopics, requests: list[str]) -> None:
    await topics.create(TopicName.parse("persistent://acme/shop/x"), 1)
    await topics.partitions(ORDERS)
    requests.clear()
    await topics.create(ORDERS, 50)
    assert requests == ["transaction 51"]


async def test_creation_of_thousands_is_cut_and_ends_with_the_record(
    topics: PartitionedTopics, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await topics.create(TopicName.parse("persistent://acme/shop/x"), 1)
    requests.clear()
    monkeypatch.setattr(partitioned_topics, "CREATES_PER_TRANSACTION", 4)
    await topics.create(ORDERS, 9)
    sizes = [request for request in requests if request.startswith("transaction")]
    assert sizes == ["transaction 4", "transaction 4", "transaction 2"]
    assert await topics.partitions(ORDERS) == 9


async def test_a_topic_is_partitioned_once(topics: PartitionedTopics) -> None:
    await topics.create(ORDERS, 3)
    with pytest.raises(PartitionedTopicExists):
        await topics.create(ORDERS, 5)
    assert await topics.partitions(ORDERS) == 3


async def test_partitions_left_by_a_deletion_that_was_cut_short_are_taken(
    topics: PartitionedTopics, coordination: Coordination
) -> None:
    await coordination.create(topic_path(ORDERS.partition(1)), b"old", make_parents=True)
    await topics.create(ORDERS, 3)
    assert await topics.partitions(ORDERS) == 3
    value, _ = await coordination.get(topic_path(ORDERS.partition(1)))
    assert value == b"old"


async def test_non_persistent_partitions_have_no_ledgers(
    topics: PartitionedTopics, tree: Tree
) -> None:
    await topics.create(TopicName.parse("non-persistent://acme/shop/quick"), 2)
    assert [path for path in tree() if path.startswith("/managed-ledgers")] == []
    assert [str(name) for name in await topics.names(SHOP, "non-persistent")] == [
        "non-persistent://acme/shop/quick"
    ]


async def test_asking_about_topics_without_partitions_costs_nothing(
    topics: PartitionedTopics, requests: list[str]
) -> None:
    await topics.create(ORDERS, 3)
    await topics.partitions(ORDERS)
    requests.clear()
    for number in range(100):
        topic = TopicName.parse(f"persistent://acme/shop/plain-{number}")
        assert await topics.partitions(topic) == 0
    assert await topics.partitions(ORDERS) == 3
    assert requests == []


async def test_a_topic_partitioned_by_another_broker_is_seen(
    topics: PartitionedTopics,
    session: Callable[[str], Coordination],
    settle: Callable[[], Awaitable[None]],
) -> None:
    assert await topics.partitions(ORDERS) == 0
    other = PartitionedTopics(session("other"))
    await other.create(ORDERS, 3)
    await settle()
    assert await topics.partitions(ORDERS) == 3
    await other.grow(ORDERS, 4)
    await settle()
    assert await topics.partitions(ORDERS) == 4
    await other.delete(ORDERS)
    await settle()
    assert await topics.partitions(ORDERS) == 0


async def test_growth_shows_only_prepared_partitions(topics: PartitionedTopics) -> None:
    await topics.create(ORDERS, 2, {"a": "b"})
    prepared: list[tuple[int, int]] = []

    async def prepare(partition: TopicName) -> None:
        prepared.append((partition.partition_index, await topics.partitions(ORDERS)))

    await topics.grow(ORDERS, 4, prepare)
    assert prepared == [(2, 2), (3, 2)]
    assert await topics.partitions(ORDERS) == 4
    record = await topics.metadata(ORDERS)
    assert record is not None
    assert record.properties == {"a": "b"}


async def test_growth_to_the_same_number_changes_nothing(
    topics: PartitionedTopics, tree: Tree
) -> None:
    await topics.create(ORDERS, 2)
    before = tree()
    await topics.grow(ORDERS, 2)
    assert tree() == before


async def test_a_topic_does_not_shrink(topics: PartitionedTopics) -> None:
    await topics.create(ORDERS, 5)
    with pytest.raises(TooFewPartitions, match="Desired partitions 2 can't be less than the"):
        await topics.grow(ORDERS, 2)


async def test_what_is_not_partitioned_neither_grows_nor_goes(topics: PartitionedTopics) -> None:
    with pytest.raises(PartitionedTopicNotFound):
        await topics.grow(ORDERS, 2)
    with pytest.raises(PartitionedTopicNotFound):
        await topics.delete(ORDERS)
    with pytest.raises(PartitionedTopicNotFound):
        await topics.set_deleted(ORDERS, deleted=True)


async def test_a_deletion_is_announced_and_may_be_taken_back(
    topics: PartitionedTopics, tree: Tree
) -> None:
    await topics.create(ORDERS, 3)
    assert await topics.set_deleted(ORDERS, deleted=True) == 3
    assert await topics.set_deleted(ORDERS, deleted=True) == 3
    assert tree()[PATH] == b'{"partitions":3,"deleted":true}'
    assert await topics.set_deleted(ORDERS, deleted=False) == 3
    assert tree()[PATH] == b'{"partitions":3,"deleted":false}'


async def test_a_deleted_topic_is_gone_at_once(topics: PartitionedTopics) -> None:
    await topics.create(ORDERS, 3)
    await topics.partitions(ORDERS)
    await topics.delete(ORDERS)
    assert await topics.partitions(ORDERS) == 0


async def test_clusters_that_share_a_store_share_the_number_of_partitions(
    coordination: Coordination, store: InterceptedSession, tree: Tree
) -> None:
    far = InstantSession()
    here, there = PartitionedTopics(coordination, store), PartitionedTopics(far, store)
    await here.create(ORDERS, 2)
    assert await there.partitions(ORDERS) == 2
    assert await there.names(SHOP, "persistent") == [ORDERS]
    await there.grow(ORDERS, 3)
    assert await here.partitions(ORDERS) == 3
    with pytest.raises(PartitionedTopicExists):
        await there.create(ORDERS, 1)
    # Each cluster stores partitions of its own, where it was the one that made them.
    assert await PersistentTopics(coordination).names(SHOP) == [
        ORDERS.partition(index) for index in range(2)
    ]
    assert await PersistentTopics(far).names(SHOP) == [ORDERS.partition(2)]
    assert PATH not in tree()
    await here.delete(ORDERS)
    assert await there.partitions(ORDERS) == 0
