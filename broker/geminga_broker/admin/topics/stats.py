"""The stats of a topic with its publishers, subscriptions, consumers and replicators.

Each function fills a document of ``documents.topic_stats`` from a live object. What takes a read of
entries is added apart (``add_earliest``), for requests that ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.admin.documents.subscription_stats import (
    ConsumerStats,
    SubscriptionStats,
    new_consumer_stats,
    new_subscription_stats,
)
from geminga_broker.admin.documents.topic_stats import (
    NONE_S,
    PublisherStats,
    ReplicatorStats,
    TopicStats,
    new_publisher_stats,
    new_replicator_stats,
    new_topic_stats,
)
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader
from geminga_broker.managed_ledger.reading.payloads import entry_time_ms
from geminga_broker.replication.replicator import Replicator
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.dispatch.key_shared_dispatcher import KeySharedDispatcher
from geminga_broker.subscriptions.dispatch.rate_limiter import LimitOf
from geminga_broker.subscriptions.distribution.key_shared import KeySharedDistribution
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.backlog import Backlog
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.subscriptions.non_persistent_subscriptions import (
    NonPersistentSubscriptions,
)
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.subscriptions.subscription_registry import TopicSubscription
from geminga_broker.topics.topic import Topic
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_broker.topics.topic_replication import TopicReplication
from geminga_protocol.pulsar.messages.replication import is_replicator
from geminga_protocol.pulsar.messages.timestamps import iso_time

# Properties of a cursor that are Pulsar's own (ManagedCursor.CURSOR_INTERNAL_PROPERTY_PREFIX).
INTERNAL_PROPERTY = "#pulsar.internal."

# What upstream shows as the publish time of the oldest message where there is no backlog.
NO_BACKLOG = -1


@dataclass(frozen=True, slots=True)
class StatsQuery:
    """Which costly or long parts of topic stats are wanted (the query flags of ``…/stats``)."""

    # Accepted, and without effect: backlogs are always precise.
    precise_backlog: bool = False
    subscription_backlog_size: bool = True
    # Takes a read of one entry per subscription.
    earliest_time_in_backlog: bool = False
    exclude_publishers: bool = False
    exclude_consumers: bool = False


def topic_stats(topic: Topic, query: StatsQuery, owner_broker: str) -> TopicStats:
    """The stats of ``topic``, with what ``query`` asks for."""
    # Nothing is awaited here, so that all figures are of one moment.
    stats = new_topic_stats()
    rate_in, throughput_in, rate_out, throughput_out = topic.meter.rates
    stats["msgRateIn"] = rate_in
    stats["msgThroughputIn"] = throughput_in
    stats["msgRateOut"] = rate_out
    stats["msgThroughputOut"] = throughput_out
    publishing = topic.publishing
    stats["msgInCounter"] = publishing.messages_in
    stats["bytesInCounter"] = publishing.bytes_in
    stats["averageMsgSize"] = _average(throughput_in, rate_in)
    stats["publishRateLimitedTimes"] = publishing.gate.pauses
    # How often a producer got exclusive access; None before the first time.
    stats["topicEpoch"] = publishing.epoch.current
    stats["topicCreationTimeStamp"] = topic.created_at_ms
    stats["lastPublishTimeStamp"] = publishing.last_publish_ms
    stats["ownerBroker"] = owner_broker
    stats["waitingPublishers"] = len(publishing.producers.waiting)
    # Left out as a whole, for topics with thousands of clients; the counts are shown in any case.
    if not query.exclude_publishers:
        # Replicators of other clusters are shown with the replication.
        stats["publishers"] = [
            publisher_stats(each)
            for each in publishing.producers.by_name.values()
            if not is_replicator(each.name)
        ]
    subscriptions = {
        name: subscription_stats(each, query)
        for name, each in topic.subscribing.subscriptions.items()
    }
    stats["subscriptions"] = subscriptions
    # Summed over the documents, not over the subscriptions: the sums agree with what is shown.
    stats["msgOutCounter"] = sum(each["msgOutCounter"] for each in subscriptions.values())
    stats["bytesOutCounter"] = sum(each["bytesOutCounter"] for each in subscriptions.values())
    if topic.name.is_persistent:
        _add_stored(stats, topic, query)
    else:
        _add_volatile(stats, topic)
    return stats


def _add_stored(stats: TopicStats, topic: Topic, query: StatsQuery) -> None:
    """Add what only a topic with a log has."""
    subscriptions = stats["subscriptions"]
    # The same subscriptions as above: the topic cannot have changed in between, as nothing is
    # awaited.
    for name, subscription in topic.part(PersistentSubscriptions).subscriptions.items():
        _add_cursor(subscriptions[name], subscription, query)
    stats["storageSize"] = topic.managed_ledger.chain.total_bytes
    stats["delayedMessageIndexSizeInBytes"] = sum(
        each["delayedMessageIndexSizeInBytes"] for each in subscriptions.values()
    )
    # The backlog of a topic is that of its slowest subscription.
    stats["backlogSize"] = max((each["backlogSize"] for each in subscriptions.values()), default=0)
    stats["nonContiguousDeletedMessagesRanges"] = sum(
        each["nonContiguousDeletedMessagesRanges"] for each in subscriptions.values()
    )
    # Since the topic was loaded.
    stats["msgChunkPublished"] = topic.publishing.has_chunks
    # The quotas, -1 for none; and what was found when the age of the backlog was last checked.
    backlog = topic.part(Backlog)
    size, age, oldest = topic.policies.quotas.size, topic.policies.quotas.age, backlog.oldest
    stats["backlogQuotaLimitSize"] = NONE_S if size is None else size.limit
    stats["backlogQuotaLimitTime"] = NONE_S if age is None else age.limit
    if oldest is not None:
        stats["oldestBacklogMessageAgeSeconds"] = backlog.age_s(oldest)
        stats["oldestBacklogMessageSubscriptionName"] = oldest.subscription
    deduplication = topic.publishing.deduplication
    if deduplication is not None:
        stats["deduplicationStatus"] = deduplication.status.value
    report = topic.part(TopicCompaction).report
    stats["compaction"] = {
        "lastCompactionRemovedEventCount": report.last_removed,
        "lastCompactionSucceedTimestamp": report.last_succeeded_ms,
        "lastCompactionFailedTimestamp": report.last_failed_ms,
        "lastCompactionDurationTimeInMills": report.last_duration_ms,
    }
    for remote, replicator in topic.part(TopicReplication).replicators.items():
        # The other cluster's replicator publishes here as a producer of that name.
        inbound = topic.publishing.producers.by_name.get(replicator.opposite)
        stats["replication"][remote] = replicator_stats(replicator, inbound)


def _add_volatile(stats: TopicStats, topic: Topic) -> None:
    """Add what only a topic without a log has."""
    # No cursor: positions and backlogs stay at their defaults.
    for name, subscription in topic.part(NonPersistentSubscriptions).subscriptions.items():
        of_subscription, active = stats["subscriptions"][name], subscription.active
        of_subscription["activeConsumerName"] = active.name if active else None
        of_subscription["isDurable"] = of_subscription["durable"] = False
        of_subscription["msgDropRate"] = subscription.drop_meter.rates[0]
    # Upstream counts here what it drops before it dispatches, while too many messages of a
    # publisher are in progress. This broker has none in progress.
    stats["msgDropRate"] = 0.0
    stats["deduplicationStatus"] = None
    for publisher in stats["publishers"]:
        publisher["msgDropRate"] = 0.0


def replicator_stats(replicator: Replicator, inbound: Producer | None) -> ReplicatorStats:
    """The stats of the replication to one cluster, and from there: ``inbound`` is the producer of
    the other cluster's replicator, if it is connected."""
    stats = new_replicator_stats()
    if inbound is not None:
        stats["msgRateIn"], stats["msgThroughputIn"], _ = inbound.meter.rates
        stats["inboundConnection"] = inbound.session.address
        stats["inboundConnectedSince"] = iso_time(inbound.connected_at_ms)
    # Shown beside upstream's fields, so that an operator sees why a replicator stands still.
    stats["state"], stats["reason"] = replicator.state.value, replicator.reason or None
    stats["msgRateOut"], stats["msgThroughputOut"], stats["msgRateExpired"] = replicator.meter.rates
    stats["replicationBacklog"] = replicator.cursor.backlog_entries
    stats["connected"] = replicator.is_connected
    stats["replicationDelayInSeconds"] = replicator.delay_s
    return stats


def publisher_stats(producer: Producer) -> PublisherStats:
    """The stats of one connected producer."""
    stats = new_publisher_stats()
    stats["accessMode"] = producer.access_mode.label
    stats["producerId"] = producer.producer_id
    stats["producerName"] = producer.name
    stats["address"] = producer.session.address
    stats["connectedSince"] = iso_time(producer.connected_at_ms)
    stats["clientVersion"] = producer.session.client_version
    stats["metadata"] = dict(producer.metadata)
    rate_in, throughput_in, chunk_rate = producer.meter.rates
    stats["msgRateIn"], stats["msgThroughputIn"] = rate_in, throughput_in
    stats["averageMsgSize"] = _average(throughput_in, rate_in)
    stats["chunkedMessageRate"] = chunk_rate
    return stats


def _average(throughput: float, rate: float) -> float:
    """Bytes per message in the last period, as upstream; 0 where there was none."""
    return throughput / rate if rate else 0.0


def subscription_stats(subscription: TopicSubscription, query: StatsQuery) -> SubscriptionStats:
    """What the subscriptions of all topics have in common."""
    # What was sent to consumers that are gone counts in ``sent``; the rates below are of those that
    # are connected.
    stats = new_subscription_stats()
    consumers, sent = subscription.consumers, subscription.sent()
    # None until the first consumer subscribes after the topic was loaded.
    stats["type"] = subscription.type.label if subscription.type is not None else None
    stats["msgOutCounter"] = sent.messages
    stats["bytesOutCounter"] = sent.size_bytes
    stats["unackedMessages"] = sum(each.unacknowledged for each in consumers)
    stats["lastConsumedTimestamp"] = max((each.last_sent_ms for each in consumers), default=0)
    if not query.exclude_consumers:
        stats["consumers"] = [consumer_stats(each) for each in consumers]
    rates = [each.meter.rates for each in consumers]
    stats["msgRateOut"] = sum(each[0] for each in rates)
    stats["msgThroughputOut"] = sum(each[1] for each in rates)
    stats["msgRateRedeliver"] = sum(each[2] for each in rates)
    stats["messageAckRate"] = sum(each[3] for each in rates)
    return stats


def _add_cursor(stats: SubscriptionStats, subscription: Subscription, query: StatsQuery) -> None:
    """Add what only a subscription with a cursor has."""
    cursor, figures = subscription.cursor, subscription.figures()
    dispatcher = subscription.membership.dispatcher
    if dispatcher is not None and dispatcher.active is not None:
        stats["activeConsumerName"] = dispatcher.active.name
    if dispatcher is not None:
        stats["msgInReplay"] = dispatcher.redelivery_backlog
        stats["blockedSubscriptionOnUnackedMsgs"] = dispatcher.is_blocked_on_unacknowledged
    if isinstance(dispatcher, KeySharedDispatcher):
        add_key_shared(stats, dispatcher.distribution)
    stats["msgBacklog"] = cursor.backlog_entries
    stats["msgDelayed"] = figures.delayed
    # The two are counted by different parts, at different moments: never below 0.
    stats["msgBacklogNoDelayed"] = max(0, stats["msgBacklog"] - stats["msgDelayed"])
    stats["delayedMessageIndexSizeInBytes"] = figures.delayed_bytes
    if query.subscription_backlog_size:
        stats["backlogSize"] = cursor.backlog_bytes
    stats["isDurable"] = stats["durable"] = cursor.is_durable
    # What clients have set; the broker's own properties (the index of delayed messages, compaction)
    # are of no use to them.
    stats["subscriptionProperties"] = {
        name: value
        for name, value in cursor.properties.items()
        if not name.startswith(INTERNAL_PROPERTY)
    }
    stats["isReplicated"] = stats["replicated"] = cursor.is_replicated
    stalls = subscription.membership.stalls
    if stalls is not None:  # a dispatch rate has applied since the topic was loaded
        of_broker, of_topic, own = LimitOf.BROKER, LimitOf.TOPIC, LimitOf.SUBSCRIPTION
        stats["dispatchThrottledMsgEventsByBrokerLimit"] = stalls.by_messages[of_broker]
        stats["dispatchThrottledBytesEventsByBrokerLimit"] = stalls.by_bytes[of_broker]
        stats["dispatchThrottledMsgEventsByTopicLimit"] = stalls.by_messages[of_topic]
        stats["dispatchThrottledBytesEventsByTopicLimit"] = stalls.by_bytes[of_topic]
        stats["dispatchThrottledMsgEventsBySubscriptionLimit"] = stalls.by_messages[own]
        stats["dispatchThrottledBytesEventsBySubscriptionLimit"] = stalls.by_bytes[own]
    stats["totalMsgExpired"] = figures.expired
    stats["lastExpireTimestamp"] = figures.last_expired_ms
    stats["msgRateExpired"] = figures.expiry_rate
    stats["lastAckedTimestamp"] = figures.last_acknowledged_ms
    stats["lastConsumedFlowTimestamp"] = figures.last_flow_ms
    stats["lastMarkDeleteAdvancedTimestamp"] = cursor.last_mark_delete_ms
    # Ranges are counted as they are gone through: there may be very many.
    stats["nonContiguousDeletedMessagesRanges"] = sum(1 for _ in cursor.acknowledged.ranges())


def add_key_shared(stats: SubscriptionStats, distribution: KeySharedDistribution) -> None:
    """Add what only a Key_Shared subscription has: which consumer has which keys, which drain.

    A key drains when it has moved to another consumer, which is sent it only once the former one
    has acknowledged the messages it holds (PIP-379). The consumers in ``stats``, if it has any, are
    those of ``distribution`` in the same order.
    """
    stats["keySharedMode"] = distribution.policy.mode.name
    stats["allowOutOfOrderDelivery"] = distribution.policy.allows_out_of_order
    drained = distribution.draining.drained_total
    # Of all consumers, also where they are not shown.
    for consumer in distribution.consumers:
        draining = distribution.draining.of(consumer)
        stats["drainingHashesCount"] += len(draining)
        stats["drainingHashesClearedTotal"] += drained.get(consumer, 0)
        stats["drainingHashesUnackedMessages"] += sum(each.entries for each in draining.values())
    # No rows at all where consumers are excluded.
    for consumer, of_consumer in zip(distribution.consumers, stats["consumers"], strict=False):
        draining = distribution.draining.of(consumer)
        of_consumer["keyHashRangeArrays"] = distribution.keys.ranges_of(consumer)
        of_consumer["drainingHashesCount"] = len(draining)
        of_consumer["drainingHashesClearedTotal"] = distribution.draining.drained_total.get(
            consumer, 0
        )
        of_consumer["drainingHashesUnackedMessages"] = sum(
            each.entries for each in draining.values()
        )
        of_consumer["drainingHashes"] = [
            {"hash": key_hash, "unackMsgs": each.entries, "blockedAttempts": each.blocked_attempts}
            for key_hash, each in draining.items()
        ]


def consumer_stats(consumer: Consumer) -> ConsumerStats:
    """The stats of one connected consumer."""
    stats = new_consumer_stats()
    stats["consumerName"] = consumer.name
    stats["availablePermits"] = consumer.permits
    stats["unackedMessages"] = consumer.unacknowledged
    stats["blockedConsumerOnUnackedMsgs"] = consumer.is_blocked_on_unacknowledged
    stats["msgOutCounter"] = consumer.messages_out
    stats["bytesOutCounter"] = consumer.bytes_out
    # As upstream, a whole number; 0 where nothing was sent.
    if consumer.entries_out:
        stats["avgMessagesPerEntry"] = round(consumer.messages_out / consumer.entries_out)
    stats["address"] = consumer.session.address
    stats["clientVersion"] = consumer.session.client_version
    stats["connectedSince"] = iso_time(consumer.connected_at_ms)
    stats["metadata"] = dict(consumer.metadata)
    stats["lastConsumedFlowTimestamp"] = consumer.last_flow_ms
    stats["lastAckedTimestamp"] = consumer.last_acknowledged_ms
    stats["lastAckedTime"] = iso_time(consumer.last_acknowledged_ms)
    stats["lastConsumedTimestamp"] = consumer.last_sent_ms
    stats["lastConsumedTime"] = iso_time(consumer.last_sent_ms)
    (
        stats["msgRateOut"],
        stats["msgThroughputOut"],
        stats["msgRateRedeliver"],
        stats["messageAckRate"],
    ) = consumer.meter.rates
    return stats


async def add_earliest(stats: TopicStats, topic: Topic) -> None:
    """Add when the oldest message in the backlog was published: of each subscription, and of the
    slowest durable one.

    Takes a read of one entry for each. Raises ``StorageUnavailable``.
    """
    marks: list[Position] = []
    stored = topic.part(PersistentSubscriptions).subscriptions
    # Each round awaits a read, so the topic goes on meanwhile.
    for name, of_subscription in stats["subscriptions"].items():
        # It may have been deleted, or have caught up, while another one was read.
        subscription = stored.get(name)
        if subscription is None or not subscription.cursor.backlog_entries:
            of_subscription["earliestMsgPublishTimeInBacklog"] = NO_BACKLOG
            continue
        if subscription.cursor.is_durable:
            marks.append(subscription.cursor.mark_delete)
        of_subscription["earliestMsgPublishTimeInBacklog"] = await _published_after(
            topic.managed_ledger.reader, subscription.cursor.mark_delete
        )
    # The least mark is that of the slowest subscription, whose oldest message is the topic's.
    if marks:
        stats["earliestMsgPublishTimeInBacklogs"] = await _published_after(
            topic.managed_ledger.reader, min(marks)
        )


async def _published_after(reader: LogReader, mark: Position) -> int:
    """When the entry after ``mark`` was published, in Unix ms; -1 where it is deleted by now."""
    # Past the ledgers that were trimmed: the mark may lie in one of them.
    position = reader.chain.readable_from(reader.chain.next_after(mark))
    # Everything was acknowledged, or the next entry is not confirmed yet.
    if position > reader.readable_upto:
        return NO_BACKLOG
    return entry_time_ms(await reader.read_one(position))
