"""What stats tell of Key_Shared subscriptions beyond others: who has which keys, which drain."""

from __future__ import annotations

from geminga_broker.admin.documents.topic_stats import ConsumerStats, SubscriptionStats
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.key_shared.dispatcher import KeySharedDispatcher


def add_key_shared(stats: SubscriptionStats, dispatcher: KeySharedDispatcher) -> None:
    """Complete ``stats``, whose consumers, if any are in it, are those of ``dispatcher``."""
    stats["keySharedMode"] = dispatcher.policy.mode.name
    stats["allowOutOfOrderDelivery"] = dispatcher.policy.allows_out_of_order
    for consumer in dispatcher.consumers:
        draining = dispatcher.draining_of(consumer)
        stats["drainingHashesCount"] += len(draining)
        stats["drainingHashesClearedTotal"] += dispatcher.drained_total(consumer)
        stats["drainingHashesUnackedMessages"] += sum(each.entries for each in draining.values())
    for consumer, of_consumer in zip(dispatcher.consumers, stats["consumers"], strict=False):
        _add_consumer(of_consumer, dispatcher, consumer)


def _add_consumer(
    stats: ConsumerStats, dispatcher: KeySharedDispatcher, consumer: Consumer
) -> None:
    stats["keyHashRangeArrays"] = dispatcher.ranges_of(consumer)
    draining = dispatcher.draining_of(consumer)
    stats["drainingHashesCount"] = len(draining)
    stats["drainingHashesClearedTotal"] = dispatcher.drained_total(consumer)
    stats["drainingHashesUnackedMessages"] = sum(each.entries for each in draining.values())
    stats["drainingHashes"] = [
        {"hash": key_hash, "unackMsgs": held.entries, "blockedAttempts": held.blocked_attempts}
        for key_hash, held in draining.items()
    ]
