"""What a topic tells about its insides: the facts of log and cursors, and who waits for what."""

from __future__ import annotations

from collections.abc import Mapping

from geminga_broker.admin.documents.internal_stats import (
    Document,
    SubscriptionFacts,
    persistent_document,
    volatile_document,
)
from geminga_broker.log.cursor import Cursor
from geminga_broker.log.internal_stats import LedgerStats, cursor_stats, log_stats
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.directory import AnyTopic
from geminga_broker.topics.persistent import PersistentTopic
from geminga_protocol.records.ledger_metadata import LedgerMetadata


def internal_stats(
    topic: AnyTopic,
    metadata: Mapping[int, LedgerMetadata],
    compacted: LedgerStats | None = None,
) -> Document:
    """The internal stats of ``topic``, with those ledgers' ``metadata`` and the ledger into
    which it is ``compacted``."""
    if not isinstance(topic, PersistentTopic):
        return volatile_document()
    subscriptions = {name: _subscription(topic, each) for name, each in topic.subscriptions.items()}
    kept = topic.compacting.cursors()
    if topic.intake.cursor is not None:
        kept.append(topic.intake.cursor)
    for cursor in kept:
        subscriptions[cursor.name] = _unread(topic, cursor)
    return persistent_document(log_stats(topic.managed_ledger), subscriptions, metadata, compacted)


def _subscription(topic: PersistentTopic, subscription: Subscription) -> SubscriptionFacts:
    log, cursor, dispatcher = topic.managed_ledger, subscription.cursor, subscription.dispatcher
    if dispatcher is None or not dispatcher.consumers:
        return _unread(topic, cursor)
    # One that has read everything and may send more waits for what is published next.
    is_at_end = dispatcher.read_position > log.chain.last_confirmed
    takers = dispatcher.consumers if dispatcher.active is None else [dispatcher.active]
    return SubscriptionFacts(
        cursor_stats(log, cursor, dispatcher.read_position),
        is_active=True,
        is_waiting=is_at_end and any(each.can_take for each in takers),
        is_reading=dispatcher.is_reading,
    )


def _unread(topic: PersistentTopic, cursor: Cursor) -> SubscriptionFacts:
    """Of a cursor that nobody reads by."""
    log = topic.managed_ledger
    return SubscriptionFacts(
        cursor_stats(log, cursor, log.chain.next_after(cursor.mark_delete)),
        is_active=False,
        is_waiting=False,
        is_reading=False,
    )
