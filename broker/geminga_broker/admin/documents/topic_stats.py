"""The JSON of topic stats: every field upstream prints, its type, its order, its default.

Field names, types and order are those of ``TopicStats``, ``PublisherStats``, ``SubscriptionStats``,
``ConsumerStats`` and ``ReplicatorStats`` as Apache Pulsar 4.0.6 prints them (recorded in
``tests/golden/admin``). Each ``new_…`` function returns a whole record with default values; the
caller sets what it knows. As upstream, a field whose value is None is left out of the JSON
(``as_json``).

Rates are per second and averaged over the stats period, throughputs are bytes per second, sizes
are bytes, timestamps are milliseconds since 1970, ``connectedSince`` is ISO 8601.
"""

from __future__ import annotations

from typing import TypedDict

from geminga_broker.admin.documents.subscription_stats import SubscriptionStats

# The deduplicationStatus of a topic where deduplication was never enabled.
DEDUPLICATION_DISABLED = "Disabled"

# What upstream prints as a topic's quota when none is set: 10 GB, no time limit.
BACKLOG_QUOTA_DEFAULT_BYTES = 10 * 1024**3
# A limit or an age of nothing.
NONE_S = -1


class PublisherStats(TypedDict):
    """One connected producer. ``address`` looks like ``/127.0.0.1:41038``."""

    accessMode: str | None
    msgRateIn: float
    msgThroughputIn: float
    averageMsgSize: float
    chunkedMessageRate: float
    producerId: int
    supportsPartialProducer: bool  # producers that connect to some partitions only; False here
    producerName: str | None
    address: str | None
    connectedSince: str | None
    clientVersion: str | None
    metadata: dict[str, str] | None
    msgDropRate: float | None  # non-persistent topics only


class ReplicatorStats(TypedDict):
    """The replication to one remote cluster, and what comes from there (``In``, ``inbound``)."""

    msgRateIn: float
    msgThroughputIn: float
    msgRateOut: float
    msgThroughputOut: float
    msgRateExpired: float
    replicationBacklog: int
    connected: bool
    replicationDelayInSeconds: int
    inboundConnection: str | None
    inboundConnectedSince: str | None
    outboundConnection: str | None
    outboundConnectedSince: str | None
    msgDropRate: float | None  # non-persistent topics only
    # Not in upstream's stats, as is the next one: Pulsar's clients ignore fields they do not know.
    state: str
    reason: str | None  # why it makes no progress


class CompactionStats(TypedDict):
    """The last compaction of the topic."""

    lastCompactionRemovedEventCount: int
    lastCompactionSucceedTimestamp: int
    lastCompactionFailedTimestamp: int
    lastCompactionDurationTimeInMills: int


class TopicStats(TypedDict):
    """One topic. ``topicCreationTimeStamp`` and ``lastPublishTimeStamp`` came after 4.0.6."""

    msgRateIn: float
    msgThroughputIn: float
    msgRateOut: float
    msgThroughputOut: float
    bytesInCounter: int
    msgInCounter: int
    systemTopicBytesInCounter: int
    bytesOutCounter: int
    msgOutCounter: int
    bytesOutInternalCounter: int
    averageMsgSize: float
    msgChunkPublished: bool  # whether any message was published in chunks
    # Bytes of the whole log, and of the largest backlog of a subscription.
    storageSize: int
    backlogSize: int
    # The quotas that apply, in bytes and seconds.
    backlogQuotaLimitSize: int
    backlogQuotaLimitTime: int
    # What the last check of the quota by age found.
    oldestBacklogMessageAgeSeconds: int
    oldestBacklogMessageSubscriptionName: str | None
    # How often a publish rate stopped producers.
    publishRateLimitedTimes: int
    # Only on request, as those of subscriptions.
    earliestMsgPublishTimeInBacklogs: int
    # Nothing is offloaded, and no transactions are served: these seven stay 0.
    offloadedStorageSize: int
    lastOffloadLedgerId: int
    lastOffloadSuccessTimeStamp: int
    lastOffloadFailureTimeStamp: int
    ongoingTxnCount: int
    abortedTxnCount: int
    committedTxnCount: int
    publishers: list[PublisherStats]
    waitingPublishers: int  # that wait for exclusive access
    subscriptions: dict[str, SubscriptionStats]
    replication: dict[str, ReplicatorStats]
    deduplicationStatus: str | None
    topicEpoch: int | None  # counts the exclusive producers; None before the first
    nonContiguousDeletedMessagesRanges: int
    # Not measured here.
    nonContiguousDeletedMessagesRangesSerializedSize: int
    delayedMessageIndexSizeInBytes: int
    compaction: CompactionStats
    ownerBroker: str | None  # broker id, host:web port
    topicCreationTimeStamp: int
    lastPublishTimeStamp: int
    msgDropRate: float | None  # non-persistent topics only


class PartitionedMetadata(TypedDict):
    """How many partitions a partitioned topic has."""

    partitions: int
    deleted: bool


class PartitionedTopicStats(TopicStats):
    """The sum over the partitions, and with ``perPartition=true`` each of them."""

    metadata: PartitionedMetadata
    partitions: dict[str, TopicStats]


def new_publisher_stats() -> PublisherStats:
    """A producer that has sent nothing; its optional fields are None."""
    # The order of the members is that in which they are printed.
    return {
        "accessMode": None,
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "averageMsgSize": 0.0,
        "chunkedMessageRate": 0.0,
        "producerId": 0,
        "supportsPartialProducer": False,
        "producerName": None,
        "address": None,
        "connectedSince": None,
        "clientVersion": None,
        "metadata": None,
        "msgDropRate": None,
    }


def new_replicator_stats() -> ReplicatorStats:
    """The replication to a cluster that was never reached."""
    return {
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "msgRateExpired": 0.0,
        "replicationBacklog": 0,
        "connected": False,
        "replicationDelayInSeconds": 0,
        "inboundConnection": None,
        "inboundConnectedSince": None,
        "outboundConnection": None,
        "outboundConnectedSince": None,
        "msgDropRate": None,
        "state": "stopped",
        "reason": None,
    }


def new_compaction_stats() -> CompactionStats:
    """A topic that was never compacted."""
    return {
        "lastCompactionRemovedEventCount": 0,
        "lastCompactionSucceedTimestamp": 0,
        "lastCompactionFailedTimestamp": 0,
        "lastCompactionDurationTimeInMills": 0,
    }


def new_topic_stats() -> TopicStats:
    """An empty topic without producers and subscriptions."""
    return {
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "bytesInCounter": 0,
        "msgInCounter": 0,
        "systemTopicBytesInCounter": 0,
        "bytesOutCounter": 0,
        "msgOutCounter": 0,
        "bytesOutInternalCounter": 0,
        "averageMsgSize": 0.0,
        "msgChunkPublished": False,
        "storageSize": 0,
        "backlogSize": 0,
        "backlogQuotaLimitSize": BACKLOG_QUOTA_DEFAULT_BYTES,
        "backlogQuotaLimitTime": NONE_S,
        "oldestBacklogMessageAgeSeconds": NONE_S,
        "oldestBacklogMessageSubscriptionName": None,
        "publishRateLimitedTimes": 0,
        "earliestMsgPublishTimeInBacklogs": 0,
        "offloadedStorageSize": 0,
        "lastOffloadLedgerId": 0,
        "lastOffloadSuccessTimeStamp": 0,
        "lastOffloadFailureTimeStamp": 0,
        "ongoingTxnCount": 0,
        "abortedTxnCount": 0,
        "committedTxnCount": 0,
        "publishers": [],
        "waitingPublishers": 0,
        "subscriptions": {},
        "replication": {},
        "deduplicationStatus": DEDUPLICATION_DISABLED,
        "topicEpoch": None,
        "nonContiguousDeletedMessagesRanges": 0,
        "nonContiguousDeletedMessagesRangesSerializedSize": 0,
        "delayedMessageIndexSizeInBytes": 0,
        "compaction": new_compaction_stats(),
        "ownerBroker": None,
        "topicCreationTimeStamp": 0,
        "lastPublishTimeStamp": 0,
        "msgDropRate": None,
    }


def as_json(value: object) -> object:
    """The record without its absent fields: every None in a dictionary is left out."""
    if isinstance(value, dict):
        return {key: as_json(inner) for key, inner in value.items() if inner is not None}
    # None in a list stays: there it is a value.
    if isinstance(value, (list, tuple)):
        return [as_json(inner) for inner in value]
    return value
