"""A partitioned topic's record holds the number of its partitions."""

from __future__ import annotations

from geminga_protocol.records.cluster.partitioned_topics import (
    PartitionedTopicMetadata,
    partitioned_topic_path,
)


def test_a_partitioned_topic_is_the_recorded_one() -> None:
    topic = PartitionedTopicMetadata(partitions=3)
    assert topic.encode() == b'{"partitions":3,"deleted":false}'


def test_properties_come_back() -> None:
    topic = PartitionedTopicMetadata(partitions=3, deleted=True, properties={"k": "v"})
    assert PartitionedTopicMetadata.decode(topic.encode()) == topic


def test_a_partitioned_topic_stands_under_its_encoded_name() -> None:
    path = partitioned_topic_path("acme/shop", "persistent", "a%2Fb")
    assert path == "/admin/partitioned-topics/acme/shop/persistent/a%2Fb"
