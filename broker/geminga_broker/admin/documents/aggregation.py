"""The stats of a partitioned topic, summed up from those of its partitions. Pure.

As upstream's ``PartitionedTopicStatsImpl`` (recorded in ``tests/golden/admin``), counters and rates
are added up, publishers and consumers are paired by position, subscriptions by name. Unlike there,
times are the latest instead of 0, and a text that all partitions share is kept.
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

Record = Mapping[str, object]
Numbers = Sequence[float]


def aggregate(
    partitions: Mapping[str, TopicStats], metadata: PartitionedMetadata, *, per_partition: bool
) -> PartitionedTopicStats:
    """The sum over ``partitions`` (by full name), with each of them if ``per_partition``."""
    # In the order of the partitions, which decides the order of members and of publishers.
    merged = _merge_records([cast(Record, stats) for stats in partitions.values()])
    # The defaults first: a topic of which no partition was created yet has all fields, too.
    whole: dict[str, object] = {**new_topic_stats(), "compaction": new_compaction_stats(), **merged}
    # As upstream, not shown for the topic as a whole.
    whole["ownerBroker"] = whole["deduplicationStatus"] = None
    whole["metadata"] = metadata
    whole["partitions"] = dict(partitions) if per_partition else {}
    return cast(PartitionedTopicStats, whole)


def _mean(numbers: Numbers) -> float:
    return sum(numbers) / len(numbers)


def _earliest(numbers: Numbers) -> float:
    """The least; 0 and -1 stand for "none" and count only where there is nothing else."""
    # Where all are 0 or below, the least of them: -1, "no backlog", outweighs 0, "not asked for".
    return min((number for number in numbers if number > 0), default=min(numbers))


# The numbers that are not added up: of times the latest counts, of limits and ages the largest.
# Each other number is a sum: counters, rates, sizes.
_NUMBERS: Mapping[str, Callable[[Numbers], float]] = {
    "averageMsgSize": _mean,
    "avgMessagesPerEntry": lambda numbers: round(_mean(numbers)),
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
# Objects whose members are records, which are merged by name.
_BY_NAME = frozenset({"subscriptions", "replication"})
_LATEST_TEXTS = frozenset({"lastAckedTime", "lastConsumedTime"})


def _merge_records(records: Sequence[Record]) -> dict[str, object]:
    """Merge records of one kind, member by member, in the order of the first record."""
    # A field that only some partitions have (as None is left out) is merged of those. A dictionary
    # keeps the order in which the keys were found, as upstream's classes have theirs.
    keys = dict.fromkeys(key for record in records for key in record)
    return {
        # ``get``: a member that is None counts as one that is missing.
        key: _merge(key, [record[key] for record in records if record.get(key) is not None])
        for key in keys
    }


def _merge(key: str, values: Sequence[object]) -> object:
    """Merge the values of one member; the type of the first decides how."""
    if not values:
        return None
    # From what all partitions have of this member: the types are the same.
    match values[0]:
        case bool():  # before int, which it is, too
            return any(values)
        case int() | float():
            return _NUMBERS.get(key, sum)(cast(Numbers, values))
        case str() if key in _LATEST_TEXTS:
            # ISO times, of which the fraction of a second may have lost zeros at its end.
            texts = cast(Sequence[str], values)
            # As texts: all are UTC in one form, so their order is that of the times. Without the
            # "Z", which sorts behind the point before a fraction.
            return max(texts, key=lambda text: text.rstrip("Z"))
        case list():
            return _merge_lists(cast(Sequence[list[object]], values))
        case dict() if key in _BY_NAME:
            objects = cast(Sequence[Mapping[str, Record]], values)
            names = dict.fromkeys(name for each in objects for name in each)
            return {
                name: _merge_records([each[name] for each in objects if name in each])
                for name in names
            }
        case dict() if key == "compaction":
            return _merge_records(cast(Sequence[Record], values))
        # Other values, such as texts: kept where all partitions agree. A consumer's name, say, or
        # the type of a subscription.
        case first:
            return first if all(value == first for value in values) else None


def _merge_lists(lists: Sequence[list[object]]) -> list[object]:
    """Merge lists of records by position. Other lists are kept where all are equal."""
    # By position: the third consumer of each partition need not be the same client, but upstream
    # does it so.
    if not all(isinstance(item, dict) for each in lists for item in each):
        return lists[0] if all(each == lists[0] for each in lists) else []
    # A list that is shorter lacks members, which are not merged.
    columns = zip_longest(*(cast(list[Record], each) for each in lists))
    return [_merge_records([item for item in column if item is not None]) for column in columns]
