"""A partitioned topic's stats are its partitions' sums, as a real broker adds them up."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from tests.project_files import GOLDEN

from geminga_broker.admin.documents.aggregation import aggregate
from geminga_broker.admin.documents.subscription_stats import (
    new_consumer_stats,
    new_subscription_stats,
)
from geminga_broker.admin.documents.topic_stats import (
    PartitionedTopicStats,
    TopicStats,
    as_json,
    new_publisher_stats,
    new_topic_stats,
)

RECORDED = GOLDEN / "admin"

# Where we tell more than upstream, which leaves these at 0 or out.
FULLER = {
    "lastConsumedFlowTimestamp",
    "lastConsumedTimestamp",
    "lastConsumedTime",
    "avgMessagesPerEntry",
    "oldestBacklogMessageAgeSeconds",
    "topicCreationTimeStamp",
    "lastPublishTimeStamp",
}


def golden(name: str) -> Any:
    return json.loads((RECORDED / name).read_text())


def summed(*partitions: TopicStats) -> PartitionedTopicStats:
    named = {f"persistent://a/b/c-partition-{n}": each for n, each in enumerate(partitions)}
    metadata = {"partitions": len(partitions), "deleted": False}
    return aggregate(named, cast(Any, metadata), per_partition=True)


def assert_contains(ours: Any, real: Any, path: str = "") -> None:
    """Everything upstream says, we say too, but for what is fuller."""
    if isinstance(real, dict):
        for key, value in real.items():
            if key not in FULLER:
                assert_contains(ours[key], value, f"{path}.{key}")
    elif isinstance(real, list):
        assert len(ours) == len(real), path
        for index, value in enumerate(real):
            assert_contains(ours[index], value, f"{path}[{index}]")
    else:
        assert ours == real, path


@pytest.mark.parametrize(
    ("file", "per_partition"),
    [("stats-partitioned.json", True), ("stats-partitioned-summary.json", False)],
)
def test_the_sum_contains_what_a_real_broker_printed(*, file: str, per_partition: bool) -> None:
    partitions = golden("stats-partitioned.json")["partitions"]
    ours = aggregate(partitions, {"partitions": 2, "deleted": False}, per_partition=per_partition)
    assert_contains(as_json(ours), golden(file))


def test_the_latest_publish_and_the_first_creation_count() -> None:
    early, late = new_topic_stats(), new_topic_stats()
    early["topicCreationTimeStamp"], early["lastPublishTimeStamp"] = 10, 99
    late["topicCreationTimeStamp"], late["lastPublishTimeStamp"] = 20, 0
    whole = summed(late, early)
    assert (whole["topicCreationTimeStamp"], whole["lastPublishTimeStamp"]) == (10, 99)


def test_the_earliest_message_in_a_backlog_is_the_earliest_of_those_there_are() -> None:
    empty, full = new_topic_stats(), new_topic_stats()
    full["earliestMsgPublishTimeInBacklogs"] = 7
    assert summed(empty, full)["earliestMsgPublishTimeInBacklogs"] == 7
    empty["earliestMsgPublishTimeInBacklogs"] = -1
    assert summed(empty, full)["earliestMsgPublishTimeInBacklogs"] == 7
    assert summed(empty, empty)["earliestMsgPublishTimeInBacklogs"] == -1


def test_subscriptions_are_paired_by_name() -> None:
    one, two = new_topic_stats(), new_topic_stats()
    for stats, names in ((one, ("a", "b")), (two, ("b",))):
        for name in names:
            subscription = new_subscription_stats()
            subscription["msgBacklog"] = 5
            stats["subscriptions"][name] = subscription
    whole = summed(one, two)["subscriptions"]
    assert {name: each["msgBacklog"] for name, each in whole.items()} == {"a": 5, "b": 10}


def test_a_consumer_of_all_partitions_keeps_its_name() -> None:
    partitions = []
    for permits in (10, 20):
        consumer = new_consumer_stats()
        consumer["consumerName"], consumer["availablePermits"] = "worker", permits
        subscription = new_subscription_stats()
        subscription["consumers"] = [consumer]
        stats = new_topic_stats()
        stats["subscriptions"] = {"s": subscription}
        partitions.append(stats)
    (merged,) = summed(*partitions)["subscriptions"]["s"]["consumers"]
    assert (merged["consumerName"], merged["availablePermits"]) == ("worker", 30)


def test_what_differs_between_partitions_is_left_out() -> None:
    partitions = []
    for name in ("standalone-0-5", "standalone-0-6"):
        publisher = new_publisher_stats()
        publisher["producerName"], publisher["msgRateIn"] = name, 1.5
        stats = new_topic_stats()
        stats["publishers"] = [publisher]
        partitions.append(stats)
    (merged,) = summed(*partitions)["publishers"]
    assert "producerName" not in cast(dict[str, object], as_json(merged))
    assert merged["msgRateIn"] == 3.0


def test_the_inputs_are_left_as_they_were() -> None:
    stats = new_topic_stats()
    stats["msgInCounter"] = 3
    summed(stats, new_topic_stats())
    assert stats["msgInCounter"] == 3


def test_a_topic_without_partitions_at_hand_has_all_fields() -> None:
    whole = aggregate({}, {"partitions": 2, "deleted": False}, per_partition=True)
    assert whole["msgInCounter"] == 0
    assert whole["subscriptions"] == {}
    assert whole["partitions"] == {}
