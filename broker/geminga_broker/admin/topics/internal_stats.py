"""The internal stats of a topic: its ledgers and cursors, and what its subscriptions wait for."""

from __future__ import annotations

from collections.abc import Mapping

from geminga_broker.admin.documents.internal_stats import (
    Document,
    SubscriptionFacts,
    persistent_document,
    volatile_document,
)
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.internal_stats import LedgerStats, cursor_stats, log_stats
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata


def internal_stats(
    topic: Topic,
    metadata: Mapping[int, LedgerMetadata],
    compacted: LedgerStats | None = None,
) -> Document:
    """The internal stats of ``topic``, with the ``metadata`` of those ledgers, and the ledger with
    its ``compacted`` entries."""
    # None for a non-persistent topic. Everything is read in one turn, so that positions and counts
    # belong together.
    stored = topic.find(PersistentSubscriptions)
    if stored is None:
        return volatile_document()
    subscriptions = {
        name: _subscription(topic, each) for name, each in stored.subscriptions.items()
    }
    # The cursors of other parts of the topic, such as deduplication and replication.
    for cursor in topic.cursors():
        # A cursor that a subscription has is shown with what the subscription does.
        if cursor.name not in subscriptions:
            subscriptions[cursor.name] = _idle(topic, cursor)
    return persistent_document(log_stats(topic.managed_ledger), subscriptions, metadata, compacted)


def _subscription(topic: Topic, subscription: Subscription) -> SubscriptionFacts:
    log, cursor = topic.managed_ledger, subscription.cursor
    dispatcher = subscription.membership.dispatcher
    if dispatcher is None or not dispatcher.consumers:
        return _idle(topic, cursor)
    # A subscription that has read everything, and whose consumers take more, waits for the next
    # entry to be published. Where one consumer is active, only its permits count.
    is_at_end = dispatcher.reader.position > log.reader.readable_upto
    # Exclusive and Failover have one active consumer; all consumers of Shared and Key_Shared count.
    takers = dispatcher.consumers if dispatcher.active is None else [dispatcher.active]
    return SubscriptionFacts(
        cursor_stats(log, cursor, dispatcher.reader.position),
        is_active=True,
        is_waiting=is_at_end and any(each.can_take for each in takers),
        is_reading=dispatcher.reader.is_reading,
    )


def _idle(topic: Topic, cursor: Cursor) -> SubscriptionFacts:
    """The facts of a cursor that no dispatcher reads with: it would go on after its mark."""
    log = topic.managed_ledger
    return SubscriptionFacts(
        cursor_stats(log, cursor, log.chain.next_after(cursor.mark_delete)),
        is_active=False,
        is_waiting=False,
        is_reading=False,
    )
