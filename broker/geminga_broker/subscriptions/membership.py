"""The consumers of one subscription, their common type, and the dispatcher that serves them.

The type is that of the consumers connected now; a subscription without consumers takes any type.
Counters of consumers and dispatchers that have left are kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import proxy

from geminga_broker.errors import ConsumerBusy, ConsumerNotAssigned
from geminga_broker.policies.dispatch import COUNT_ALL, Counting
from geminga_broker.policies.unacknowledged import NO_LIMITS, UnacknowledgedLimits
from geminga_broker.subscriptions.consumer import Consumer, ConsumerEvent, Sent
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.dispatch.dispatch_throttle import Stalls
from geminga_broker.subscriptions.dispatch.key_shared_dispatcher import KeySharedDispatcher
from geminga_broker.subscriptions.dispatch.rate_limiter import RateLimiter
from geminga_broker.subscriptions.dispatch.single_dispatcher import SingleDispatcher
from geminga_broker.subscriptions.dispatch.tracking_dispatcher import TrackingDispatcher
from geminga_protocol.pulsar.enums import SubscriptionType

AnyDispatcher = SingleDispatcher | TrackingDispatcher


class DispatcherFactory(Protocol):
    """What the members of a subscription ask of it."""

    def new_dispatcher(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> AnyDispatcher:
        """A dispatcher without consumers for the type ``kind``."""
        ...


class Membership:
    """The consumers of ``subscription``.

    There is a dispatcher while consumers are connected. After the last one has left, it is kept as
    long as it knows something that the next consumer needs.
    """

    __slots__ = (
        "_bytes_before",
        "_counting",
        "_entries_before",
        "_fetched_before",
        "_limiters",
        "_limits",
        "_messages_before",
        "_subscription",
        "consumers",
        "dispatcher",
        "key_shared",
        "stalls",
        "tracker",
        "type",
    )

    def __init__(self, subscription: DispatcherFactory) -> None:
        # Connected consumers. The dispatcher adds and removes them: it knows their order. One list
        # for the whole life of the subscription: dispatcher and distribution share it.
        self.consumers: list[Consumer] = []
        # The type of the consumers, connected or last; None before the first one.
        self.type: SubscriptionType | None = None
        # How keys are shared, if the type is Key_Shared.
        self.key_shared = AUTO_SPLIT
        # None before the first consumer, and when nothing of the last one matters any more.
        self.dispatcher: AnyDispatcher | None = None
        # The same one, if it tracks single entries.
        self.tracker: TrackingDispatcher | None = None
        # Weak, so that the subscription is freed without the cycle collector.
        self._subscription: DispatcherFactory = proxy(subscription)
        # What the next dispatcher is given, too.
        self._limits = NO_LIMITS
        # The rate limiters that dispatching must pass, and how entries are counted there.
        self._limiters: Sequence[RateLimiter] = ()
        self._counting = COUNT_ALL
        # How often these limiters held the subscription back; None if there never were any.
        self.stalls: Stalls | None = None
        # The part of ``sent`` that is of consumers and dispatchers that have left.
        self._messages_before = self._bytes_before = 0
        self._entries_before = self._fetched_before = 0

    # Coming and going

    def in_the_way(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> Consumer | None:
        """A consumer that must leave before one more of that kind can be added."""
        # A consumer of another type is refused anyway: the present one need not be pinged.
        if self.type is not kind:
            return None
        if isinstance(self.dispatcher, KeySharedDispatcher):
            return self.dispatcher.distribution.keys.holder(key_shared.ranges)
        is_exclusive = kind is SubscriptionType.EXCLUSIVE
        return self.consumers[0] if is_exclusive and self.consumers else None

    def make_room(self, kind: SubscriptionType, key_shared: KeySharedPolicy = AUTO_SPLIT) -> None:
        """Take the type ``kind``, and check that one more consumer of it may be added.

        Raises ``ConsumerBusy`` if the connected consumers or their number forbid it, and
        ``ConsumerNotAssigned`` if a Key_Shared consumer asks for keys that are taken.
        """
        if not self.consumers:
            # A dispatcher that was kept is of another type, or shares keys in another way.
            if self.type is not kind or not self.key_shared.is_alike(key_shared):
                # Only here the type changes: as long as a consumer is connected, all have the same
                # one.
                self.drop_dispatcher()
                self.type, self.key_shared = kind, key_shared
        else:
            assert self.type is not None
            if self.type is not kind:
                raise ConsumerBusy(
                    "Subscription is of different type. Active subscription type of "
                    f"'{self.type.label}' is different than the connecting consumer's type "
                    f"'{kind.label}'."
                )
            if kind is SubscriptionType.KEY_SHARED:
                key_shared.check_alike(self.key_shared)
        self._ensure_dispatcher()
        holder = self.in_the_way(kind, key_shared)
        if holder is not None and kind is SubscriptionType.EXCLUSIVE:
            raise ConsumerBusy("Exclusive consumer is already connected")
        if holder is not None:
            raise ConsumerNotAssigned(f"Range conflict with consumer {holder.name}")

    def _ensure_dispatcher(self) -> AnyDispatcher:
        """The dispatcher, made if there is none."""
        if self.dispatcher is None:
            assert self.type is not None
            self.dispatcher = self._subscription.new_dispatcher(self.type, self.key_shared)
            if isinstance(self.dispatcher, TrackingDispatcher):
                self.tracker = self.dispatcher
                self.tracker.limit(self._limits)
            if self._limiters:
                # Before the first consumer: its first message is limited, too.
                self.dispatcher.pass_through(self._limiters, self._counting, self.stalls)
        return self.dispatcher

    def drop_dispatcher(self) -> None:
        """Keep the counters of the dispatcher, and forget the rest of it."""
        if self.dispatcher is not None:
            self._entries_before += self.dispatcher.entries_sent
            self._fetched_before += self.dispatcher.reader.entries_fetched
            # The budget of all dispatchers counts what it kept; a read that is running ends in
            # vain.
            self.dispatcher.reader.drop_read_ahead()
            if self._limiters:
                # Otherwise a rate limiter would still call it.
                self.dispatcher.pass_through((), self._counting)
            self.dispatcher = self.tracker = None

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part; ``make_room`` came before."""
        # The last consumer may have left since ``make_room``, and the dispatcher with it.
        self._ensure_dispatcher().add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove ``consumer``, if it is still here; what it held goes to the others."""
        if self.dispatcher is not None and consumer in self.consumers:
            # Otherwise the subscription's sums would fall when a consumer leaves.
            self._messages_before += consumer.messages_out
            self._bytes_before += consumer.bytes_out
            self.dispatcher.remove(consumer)
            # One that tracks no entries knows nothing more, unless its reader is at work: the next
            # consumer begins after the mark-delete position.
            if self.tracker is None and not self.consumers and self.dispatcher.reader.is_idle:
                self.drop_dispatcher()

    def stop(self) -> None:
        """Send no consumer any more. Before all are removed one by one: what the first one held
        would be sent to the others a moment before they leave as well."""
        for consumer in self.consumers:
            consumer.permits = 0

    def close(self) -> None:
        """Remove every consumer, and tell its client to subscribe again."""
        self.stop()
        # First removed, then told: a client that reconnects at once must find room.
        for consumer in list(self.consumers):
            self.remove(consumer)
            consumer.tell(consumer, ConsumerEvent.CLOSED)

    def tell_end(self) -> None:
        """Tell consumers of a terminated topic, once each, that they have everything, if the
        backlog is empty."""
        if self.dispatcher is not None:
            self.dispatcher.tell_end()

    # Limits

    def limit(self, limits: UnacknowledgedLimits) -> None:
        """Apply ``limits`` to the messages that consumers hold unacknowledged."""
        self._limits = limits
        if self.tracker is not None:
            self.tracker.limit(limits)

    def pass_through(self, limiters: Sequence[RateLimiter], counting: Counting) -> None:
        """Dispatch through ``limiters`` from now on; freely if there are none."""
        self._limiters, self._counting = limiters, counting
        if limiters and self.stalls is None:
            self.stalls = Stalls()
        if self.dispatcher is not None:
            self.dispatcher.pass_through(limiters, counting, self.stalls)

    # Counters

    def sent(self) -> Sent:
        """What was sent since the topic was loaded, also to consumers that have left."""
        dispatcher = self.dispatcher
        return Sent(
            self._messages_before + sum(each.messages_out for each in self.consumers),
            self._bytes_before + sum(each.bytes_out for each in self.consumers),
            self._entries_before + (dispatcher.entries_sent if dispatcher else 0),
            self._fetched_before + (dispatcher.reader.entries_fetched if dispatcher else 0),
        )
