"""The JSON of topic stats: every field upstream prints, its type, its order, its default.

Field names, types and order are those of ``TopicStats``, ``PublisherStats``, ``SubscriptionStats``,
``ConsumerStats`` and ``ReplicatorStats`` as Apache Pulsar 4.0.6 prints them (recorded in
``tests/golden/admin``). Each ``new_…`` function gives a whole record at its resting values; the
caller sets what it knows. A field whose value is None is left out of the JSON, as upstream leaves
it out: ``as_json`` does that. This module counts nothing itself.

Rates are per second and averaged over the stats period, throughputs are bytes per second, sizes
are bytes, timestamps are milliseconds since 1970, ``connectedSince`` is ISO 8601.
"""

from __future__ import annotations

from typing import TypedDict

from geminga_protocol.pulsar.messages.timestamps import EPOCH_ISO

# deduplicationStatus of a topic where it was never turned on.
DEDUPLICATION_DISABLED = "Disabled"

# What upstream prints as a topic's quota when none is set: 10 GB, no time limit.
BACKLOG_QUOTA_DEFAULT_BYTES = 10 * 1024**3
NONE_S = -1


class PublisherStats(TypedDict):
    """One connected producer. ``address`` looks like ``/127.0.0.1:41038``."""

    accessMode: str | None
    msgRateIn: float
    msgThroughputIn: float
    averageMsgSize: float
    chunkedMessageRate: float
    producerId: int
    supportsPartialProducer: bool
    producerName: str | None
    address: str | None
    connectedSince: str | None
    clientVersion: str | None
    metadata: dict[str, str] | None
    msgDropRate: float | None  # non-persistent topics only


class DrainingHash(TypedDict):
    """A key hash that waits for its former consumer's acknowledgements (PIP-379)."""

    hash: int
    unackMsgs: int
    blockedAttempts: int


class ConsumerStats(TypedDict):
    """One connected consumer."""

    appId: str | None
    msgRateOut: float
    msgThroughputOut: float
    bytesOutCounter: int
    msgOutCounter: int
    msgRateRedeliver: float
    messageAckRate: float
    chunkedMessageRate: float
    consumerName: str
    availablePermits: int
    unackedMessages: int
    avgMessagesPerEntry: int
    blockedConsumerOnUnackedMsgs: bool
    readPositionWhenJoining: str | None
    drainingHashesCount: int
    drainingHashesClearedTotal: int
    drainingHashesUnackedMessages: int
    drainingHashes: list[DrainingHash] | None  # Key_Shared only
    address: str | None
    connectedSince: str | None
    clientVersion: str | None
    lastAckedTimestamp: int
    lastConsumedTimestamp: int
    lastConsumedFlowTimestamp: int
    keyHashRangeArrays: list[tuple[int, int]] | None  # Key_Shared only; both ends included
    metadata: dict[str, str] | None
    lastAckedTime: str  # ISO 8601 of lastAckedTimestamp
    lastConsumedTime: str


class SubscriptionStats(TypedDict):
    """One subscription with its consumers."""

    msgRateOut: float
    msgThroughputOut: float
    bytesOutCounter: int
    msgOutCounter: int
    msgRateRedeliver: float
    messageAckRate: float
    chunkedMessageRate: float
    msgBacklog: int
    backlogSize: int
    earliestMsgPublishTimeInBacklog: int
    msgBacklogNoDelayed: int
    blockedSubscriptionOnUnackedMsgs: bool
    msgDelayed: int
    msgInReplay: int
    unackedMessages: int
    type: str | None
    activeConsumerName: str | None  # Exclusive and Failover, while somebody is connected
    msgRateExpired: float
    totalMsgExpired: int
    lastExpireTimestamp: int
    lastConsumedFlowTimestamp: int
    lastConsumedTimestamp: int
    lastAckedTimestamp: int
    lastMarkDeleteAdvancedTimestamp: int
    consumers: list[ConsumerStats]
    isDurable: bool
    isReplicated: bool
    allowOutOfOrderDelivery: bool
    keySharedMode: str | None  # AUTO_SPLIT or STICKY, Key_Shared only
    consumersAfterMarkDeletePosition: dict[str, str]
    drainingHashesCount: int
    drainingHashesClearedTotal: int
    drainingHashesUnackedMessages: int
    nonContiguousDeletedMessagesRanges: int
    nonContiguousDeletedMessagesRangesSerializedSize: int
    delayedMessageIndexSizeInBytes: int
    subscriptionProperties: dict[str, str]
    filterProcessedMsgCount: int
    filterAcceptedMsgCount: int
    filterRejectedMsgCount: int
    filterRescheduledMsgCount: int
    dispatchThrottledMsgEventsBySubscriptionLimit: int
    dispatchThrottledBytesEventsBySubscriptionLimit: int
    dispatchThrottledMsgEventsByTopicLimit: int
    dispatchThrottledBytesEventsByTopicLimit: int
    dispatchThrottledMsgEventsByBrokerLimit: int
    dispatchThrottledBytesEventsByBrokerLimit: int
    msgDropRate: float | None  # non-persistent topics only
    durable: bool  # the same as isDurable, under the name older clients read
    replicated: bool


class ReplicatorStats(TypedDict):
    """The way to one remote cluster."""

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
    state: str  # of ours, as is the next; Pulsar's clients pass over what they do not know
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
    msgChunkPublished: bool
    storageSize: int
    backlogSize: int
    backlogQuotaLimitSize: int
    backlogQuotaLimitTime: int
    oldestBacklogMessageAgeSeconds: int
    oldestBacklogMessageSubscriptionName: str | None
    publishRateLimitedTimes: int
    earliestMsgPublishTimeInBacklogs: int
    offloadedStorageSize: int
    lastOffloadLedgerId: int
    lastOffloadSuccessTimeStamp: int
    lastOffloadFailureTimeStamp: int
    ongoingTxnCount: int
    abortedTxnCount: int
    committedTxnCount: int
    publishers: list[PublisherStats]
    waitingPublishers: int
    subscriptions: dict[str, SubscriptionStats]
    replication: dict[str, ReplicatorStats]
    deduplicationStatus: str | None
    topicEpoch: int | None
    nonContiguousDeletedMessagesRanges: int
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
    """A producer that has sent nothing; the optional fields are absent."""
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


def new_consumer_stats() -> ConsumerStats:
    """A consumer that has received nothing; the optional fields are absent."""
    return {
        "appId": None,
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "bytesOutCounter": 0,
        "msgOutCounter": 0,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "chunkedMessageRate": 0.0,
        "consumerName": "",
        "availablePermits": 0,
        "unackedMessages": 0,
        "avgMessagesPerEntry": 0,
        "blockedConsumerOnUnackedMsgs": False,
        "readPositionWhenJoining": None,
        "drainingHashesCount": 0,
        "drainingHashesClearedTotal": 0,
        "drainingHashesUnackedMessages": 0,
        "drainingHashes": None,
        "address": None,
        "connectedSince": None,
        "clientVersion": None,
        "lastAckedTimestamp": 0,
        "lastConsumedTimestamp": 0,
        "lastConsumedFlowTimestamp": 0,
        "keyHashRangeArrays": None,
        "metadata": None,
        "lastAckedTime": EPOCH_ISO,
        "lastConsumedTime": EPOCH_ISO,
    }


def new_replicator_stats() -> ReplicatorStats:
    """The way to a cluster that has never been reached; what is received is counted there."""
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


def new_subscription_stats() -> SubscriptionStats:
    """A durable subscription without consumers and without backlog."""
    return {
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "bytesOutCounter": 0,
        "msgOutCounter": 0,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "chunkedMessageRate": 0.0,
        "msgBacklog": 0,
        "backlogSize": 0,
        "earliestMsgPublishTimeInBacklog": 0,
        "msgBacklogNoDelayed": 0,
        "blockedSubscriptionOnUnackedMsgs": False,
        "msgDelayed": 0,
        "msgInReplay": 0,
        "unackedMessages": 0,
        "type": None,
        "activeConsumerName": None,
        "msgRateExpired": 0.0,
        "totalMsgExpired": 0,
        "lastExpireTimestamp": 0,
        "lastConsumedFlowTimestamp": 0,
        "lastConsumedTimestamp": 0,
        "lastAckedTimestamp": 0,
        "lastMarkDeleteAdvancedTimestamp": 0,
        "consumers": [],
        "isDurable": True,
        "isReplicated": False,
        "allowOutOfOrderDelivery": False,
        "keySharedMode": None,
        "consumersAfterMarkDeletePosition": {},
        "drainingHashesCount": 0,
        "drainingHashesClearedTotal": 0,
        "drainingHashesUnackedMessages": 0,
        "nonContiguousDeletedMessagesRanges": 0,
        "nonContiguousDeletedMessagesRangesSerializedSize": 0,
        "delayedMessageIndexSizeInBytes": 0,
        "subscriptionProperties": {},
        "filterProcessedMsgCount": 0,
        "filterAcceptedMsgCount": 0,
        "filterRejectedMsgCount": 0,
        "filterRescheduledMsgCount": 0,
        "dispatchThrottledMsgEventsBySubscriptionLimit": 0,
        "dispatchThrottledBytesEventsBySubscriptionLimit": 0,
        "dispatchThrottledMsgEventsByTopicLimit": 0,
        "dispatchThrottledBytesEventsByTopicLimit": 0,
        "dispatchThrottledMsgEventsByBrokerLimit": 0,
        "dispatchThrottledBytesEventsByBrokerLimit": 0,
        "msgDropRate": None,
        "durable": True,
        "replicated": False,
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
    """The record without its absent fields: every None inside dictionaries is left out."""
    if isinstance(value, dict):
        return {key: as_json(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [as_json(inner) for inner in value]
    return value
