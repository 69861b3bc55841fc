"""Proves that stats say who has which keys, and which keys have to drain first."""

from __future__ import annotations

from tests.unit.geminga_broker.clients_and_logs import (
    KeyedLog,
    NotedSession,
    consumer_of,
    cursor_over,
)

from geminga_broker.admin.documents.topic_stats import (
    SubscriptionStats,
    new_consumer_stats,
    new_subscription_stats,
)
from geminga_broker.admin.topics.key_shared_stats import add_key_shared
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT
from geminga_broker.subscriptions.dispatch.key_shared_dispatcher import KeySharedDispatcher
from geminga_broker.subscriptions.distribution.hash_ring import HASHES


def stats_of(dispatcher: KeySharedDispatcher) -> SubscriptionStats:
    stats = new_subscription_stats()
    stats["consumers"] = [new_consumer_stats() for _ in dispatcher.consumers]
    add_key_shared(stats, dispatcher.distribution)
    return stats


def joined(dispatcher: KeySharedDispatcher, name: str) -> Consumer:
    consumer = consumer_of(NotedSession(), name)
    consumer.permits = 100
    dispatcher.add(consumer)
    dispatcher.dispatch()
    return consumer


def test_one_consumer_has_all_keys_and_drains_none() -> None:
    log = KeyedLog("abcd", (1, 4))
    dispatcher = KeySharedDispatcher(log, cursor_over(log.chain), AUTO_SPLIT)  # type: ignore[arg-type]  # a stand-in
    joined(dispatcher, "x")
    stats = stats_of(dispatcher)
    assert stats["keySharedMode"] == "AUTO_SPLIT"
    assert not stats["allowOutOfOrderDelivery"]
    assert stats["consumers"][0]["keyHashRangeArrays"] == [(1, HASHES)]
    assert stats["consumers"][0]["drainingHashes"] == []
    assert stats["drainingHashesCount"] == 0


def test_what_a_newcomer_waits_for_is_told() -> None:
    log = KeyedLog("abcdefgh", (1, 8))
    dispatcher = KeySharedDispatcher(log, cursor_over(log.chain), AUTO_SPLIT)  # type: ignore[arg-type]  # a stand-in
    joined(dispatcher, "x")
    joined(dispatcher, "y")
    stats = stats_of(dispatcher)
    first, second = stats["consumers"]
    draining = first["drainingHashes"]
    assert draining
    assert second["drainingHashes"] == []
    assert {each["unackMsgs"] for each in draining} == {1}
    count = len(draining)
    assert first["drainingHashesCount"] == first["drainingHashesUnackedMessages"] == count
    assert stats["drainingHashesCount"] == stats["drainingHashesUnackedMessages"] == count
    for entry_id in range(8):
        dispatcher.acknowledged_all([(1, entry_id)], ())
    assert stats_of(dispatcher)["drainingHashesClearedTotal"] == count
    assert stats_of(dispatcher)["consumers"][0]["drainingHashesClearedTotal"] == count


def test_without_its_consumers_a_subscription_is_told_of_alone() -> None:
    log = KeyedLog("a", (1, 1))
    dispatcher = KeySharedDispatcher(log, cursor_over(log.chain), AUTO_SPLIT)  # type: ignore[arg-type]  # a stand-in
    joined(dispatcher, "x")
    stats = new_subscription_stats()
    add_key_shared(stats, dispatcher.distribution)
    assert stats["consumers"] == []
