"""The JSON of the stats of a subscription and its consumers, within those of its topic.

``topic_stats`` says what all these documents have in common.
"""

from __future__ import annotations

from typing import TypedDict

from geminga_protocol.pulsar.messages.timestamps import EPOCH_ISO


class DrainingHash(TypedDict):
    """A key hash that waits for its former consumer's acknowledgements (PIP-379)."""

    hash: int
    unackMsgs: int
    blockedAttempts: int


class ConsumerStats(TypedDict):
    """One connected consumer."""

    appId: str | None  # the role of an authenticated client; None here
    msgRateOut: float
    msgThroughputOut: float
    bytesOutCounter: int
    msgOutCounter: int
    msgRateRedeliver: float
    messageAckRate: float
    chunkedMessageRate: float
    consumerName: str
    # How many messages more the client has asked for; below 0 after a batch larger than that.
    availablePermits: int
    # Sent and not acknowledged yet.
    unackedMessages: int
    avgMessagesPerEntry: int
    # The consumer has reached the limit of unacknowledged messages, and is sent nothing.
    blockedConsumerOnUnackedMsgs: bool
    readPositionWhenJoining: str | None  # of the Key_Shared before PIP-379; None here
    # Key hashes that wait until this consumer has acknowledged their messages: how many now, how
    # many since it connected, and for how many messages.
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
    # Entries that are not acknowledged, and about how many bytes they are.
    msgBacklog: int
    backlogSize: int
    # Only on request; -1 where there is no backlog, 0 where it was not requested.
    earliestMsgPublishTimeInBacklog: int
    msgBacklogNoDelayed: int
    blockedSubscriptionOnUnackedMsgs: bool
    # Messages that wait for their delivery time, and that are to be sent again.
    msgDelayed: int
    msgInReplay: int
    unackedMessages: int
    type: str | None  # None before the first consumer
    activeConsumerName: str | None  # Exclusive and Failover, while a consumer is connected
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
    allowOutOfOrderDelivery: bool  # Key_Shared only
    keySharedMode: str | None  # AUTO_SPLIT or STICKY, Key_Shared only
    consumersAfterMarkDeletePosition: dict[str, str]  # before PIP-379; empty here
    # The sums over the consumers.
    drainingHashesCount: int
    drainingHashesClearedTotal: int
    drainingHashesUnackedMessages: int
    # Ranges of acknowledged entries after the mark-delete position.
    nonContiguousDeletedMessagesRanges: int
    nonContiguousDeletedMessagesRangesSerializedSize: int
    delayedMessageIndexSizeInBytes: int
    subscriptionProperties: dict[str, str]
    # No filters are served: these four stay 0.
    filterProcessedMsgCount: int
    filterAcceptedMsgCount: int
    filterRejectedMsgCount: int
    filterRescheduledMsgCount: int
    # How often a dispatch rate stopped the subscription, by what it counts and whose rate it is.
    dispatchThrottledMsgEventsBySubscriptionLimit: int
    dispatchThrottledBytesEventsBySubscriptionLimit: int
    dispatchThrottledMsgEventsByTopicLimit: int
    dispatchThrottledBytesEventsByTopicLimit: int
    dispatchThrottledMsgEventsByBrokerLimit: int
    dispatchThrottledBytesEventsByBrokerLimit: int
    msgDropRate: float | None  # non-persistent topics only
    durable: bool  # the same as isDurable, under the name older clients read
    replicated: bool


def new_consumer_stats() -> ConsumerStats:
    """A consumer that has received nothing; its optional fields are None."""
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
