"""What stats tell of Key_Shared subscriptions beyond others: who has which keys, which drain."""

from __future__ import annotations

from geminga_broker.admin.documents.topic_stats import ConsumerStats, SubscriptionStats
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.key_shared import KeySharedDistribution


def add_key_shared(stats: SubscriptionStats, distribution: KeySharedDistribution) -> None:
    """Complete ``stats``, whose consumers, if any are in it, are those of ``distribution``."""
    stats["keySharedMode"] = distribution.policy.mode.name
    stats["allowOutOfOrderDelivery"] = distribution.policy.allows_out_of_order
    for consumer in distribution.consumers:
        draining = distribution.draining_of(consumer)
        stats["drainingHashesCount"] += len(draining)
        stats["drainingHashesClearedTotal"] += distribution.drained_total(consumer)
        stats["drainingHashesUnackedMessages"] += sum(each.entries for each in draining.values())
    for consumer, of_consumer in zip(distribution.consumers, stats["consumers"], strict=False):
        _add_consumer(of_consumer, distribution, consumer)


def _add_consumer(
    stats: ConsumerStats, distribution: KeySharedDistribution, consumer: Consumer
) -> None:
    stats["keyHashRangeArrays"] = distribution.ranges_of(consumer)
    draining = distribution.draining_of(consumer)
    stats["drainingHashesCount"] = len(draining)
    stats["drainingHashesClearedTotal"] = distribution.drained_total(consumer)
    stats["drainingHashesUnackedMessages"] = sum(each.entries for each in draining.values())
    stats["drainingHashes"] = [
        {"hash": key_hash, "unackMsgs": held.entries, "blockedAttempts": held.blocked_attempts}
        for key_hash, held in draining.items()
    ]
