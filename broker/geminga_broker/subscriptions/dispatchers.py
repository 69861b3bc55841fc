"""Which dispatcher serves a subscription type."""

from __future__ import annotations

from collections.abc import Callable

from geminga_broker.delayed.messages import DelayedMessages
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.subscriptions.dispatcher import Dispatcher
from geminga_broker.subscriptions.distribution.key_shared_policy import KeySharedPolicy
from geminga_broker.subscriptions.key_shared_dispatcher import KeySharedDispatcher
from geminga_broker.subscriptions.redelivery_counts import RedeliveryCounts
from geminga_broker.subscriptions.shared_dispatcher import SharedDispatcher
from geminga_broker.subscriptions.single_dispatcher import SingleDispatcher
from geminga_broker.subscriptions.tracking_dispatcher import TrackingDispatcher
from geminga_protocol.pulsar.enums import SubscriptionType


def new_dispatcher(
    kind: SubscriptionType,
    key_shared: KeySharedPolicy,
    managed_ledger: ManagedLedger,
    cursor: Cursor,
    topic: str,
    partition: int,
    delayed: Callable[[], DelayedMessages],
    redeliveries: Callable[[], RedeliveryCounts],
    failover_delay_s: float,
) -> Dispatcher:
    """A dispatcher without consumers; ``partition`` is -1 for a ``topic`` that is none."""
    if kind.tracks_entries:
        tracking = _new_tracking(kind, key_shared, managed_ledger, cursor)
        tracking.reader.delayed = delayed()
        tracking.redeliveries = redeliveries()
        return tracking
    return SingleDispatcher(
        managed_ledger,
        cursor,
        topic=topic,
        partition=partition,
        is_exclusive=kind is SubscriptionType.EXCLUSIVE,
        handover_delay_s=failover_delay_s,
    )


def _new_tracking(
    kind: SubscriptionType,
    key_shared: KeySharedPolicy,
    managed_ledger: ManagedLedger,
    cursor: Cursor,
) -> TrackingDispatcher:
    if kind is SubscriptionType.SHARED:
        return SharedDispatcher(managed_ledger, cursor)
    return KeySharedDispatcher(managed_ledger, cursor, key_shared)
