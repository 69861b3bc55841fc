"""A partitioned topic's stats out of its partitions', as if it were one topic.

As upstream's ``PartitionedTopicStatsImpl`` (recorded in ``tests/golden/admin``): counters and rates
are added up, publishers are paired by position, consumers too, subscriptions by name. Beyond it,
times are the latest instead of 0, and a text that all partitions share is kept. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import cast

from geminga_broker.admin.documents.topic_stats import (
    PartitionedMetadata,
    PartitionedTopicStats,
    TopicStats,
    new_compaction_stats,
    new_topic_stats,
)
from geminga_protocol.pulsar.messages.timestamps import EPOCH_ISO

Record = Mapping[str, object]
Numbers = Sequence[float]


def aggregate(
    partitions: Mapping[str, TopicStats], metadata: PartitionedMetadata, *, per_partition: bool
) -> PartitionedTopicStats:
    """The sum over ``partitions`` (by full name), with each of them if ``per_partition``."""
    merged = _merge_records([cast(Record, stats) for stats in partitions.values()])
    whole: dict[str, object] = {**new_topic_stats(), "compaction": new_compaction_stats(), **merged}
    whole["ownerBroker"] = whole["deduplicationStatus"] = None
    whole["metadata"] = metadata
    whole["partitions"] = dict(partitions) if per_partition else {}
    return cast(PartitionedTopicStats, whole)


def _mean(numbers: Numbers) -> float:
    return sum(numbers) / len(numbers)


def _whole_mean(numbers: Numbers) -> float:
    return round(_mean(numbers))


def _earliest(numbers: Numbers) -> float:
    """The least; 0 and -1 stand for "none" and count only where there is nothing else."""
    return min((number for number in numbers if number > 0), default=min(numbers))


# What is not added up. A time is the latest, a limit or an age the largest.
_NUMBERS: Mapping[str, Callable[[Numbers], float]] = {
    "averageMsgSize": _mean,
    "avgMessagesPerEntry": _whole_mean,
    "backlogQuotaLimitSize": max,
    "backlogQuotaLimitTime": max,
    "oldestBacklogMessageAgeSeconds": max,
    "earliestMsgPublishTimeInBacklog": _earliest,
    "earliestMsgPublishTimeInBacklogs": _earliest,
    "lastOffloadLedgerId": max,
    "lastOffloadSuccessTimeStamp": max,
    "lastOffloadFailureTimeStamp": max,
    "lastExpireTimestamp": max,
    "lastConsumedFlowTimestamp": max,
    "lastConsumedTimestamp": max,
    "lastAckedTimestamp": max,
    "lastMarkDeleteAdvancedTimestamp": max,
    "lastCompactionSucceedTimestamp": max,
    "lastCompactionFailedTimestamp": max,
    "lastCompactionDurationTimeInMills": max,
    "lastPublishTimeStamp": max,
    "topicCreationTimeStamp": _earliest,
    "producerId": lambda _: 0,
    "replicationDelayInSeconds": max,
}
# Objects whose members are records of their own, paired by name.
_BY_NAME = frozenset({"subscriptions", "replication"})
_LATEST_TEXTS = frozenset({"lastAckedTime", "lastConsumedTime"})


def _merge_records(records: Sequence[Record]) -> dict[str, object]:
    """Records of one kind as one; members in the order of the first."""
    keys = dict.fromkeys(key for record in records for key in record)
    return {
        key: _merge(key, [record[key] for record in records if record.get(key) is not None])
        for key in keys
    }


def _merge(key: str, values: Sequence[object]) -> object:
    if not values:
        return None
    match values[0]:
        case bool():
            return any(values)
        case int() | float():
            return _NUMBERS.get(key, sum)(cast(Numbers, values))
        case str() if key in _LATEST_TEXTS:
            return _latest_text(cast(Sequence[str], values))
        case list():
            return _merge_lists(cast(Sequence[list[object]], values))
        case dict() if key in _BY_NAME:
            return _merge_named(cast(Sequence[Mapping[str, Record]], values))
        case dict() if key == "compaction":
            return _merge_records(cast(Sequence[Record], values))
        case first:
            return first if all(value == first for value in values) else None


def _latest_text(texts: Sequence[str]) -> str:
    """Of ISO times; the fraction of each may have lost zeros at its end."""
    return max(texts, key=lambda text: text.rstrip("Z"), default=EPOCH_ISO)


def _merge_lists(lists: Sequence[list[object]]) -> list[object]:
    """Lists of records, paired by position; other lists only where all are the same."""
    if not all(isinstance(item, dict) for each in lists for item in each):
        return lists[0] if all(each == lists[0] for each in lists) else []
    columns = zip_longest(*(cast(list[Record], each) for each in lists))
    return [_merge_records([item for item in column if item is not None]) for column in columns]


def _merge_named(objects: Sequence[Mapping[str, Record]]) -> dict[str, object]:
    names = dict.fromkeys(name for each in objects for name in each)
    return {
        name: _merge_records([each[name] for each in objects if name in each]) for name in names
    }
