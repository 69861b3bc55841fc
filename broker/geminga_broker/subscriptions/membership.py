"""The consumers of one subscription, their common type, and the dispatcher that serves them.

The type is that of the consumers connected now; a subscription without consumers takes any type.
Counters of consumers and dispatchers that have left are kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import proxy

from geminga_broker.errors import ConsumerBusy
from geminga_broker.policies.dispatch import COUNT_ALL, Counting
from geminga_broker.policies.unacknowledged import NO_LIMITS, UnacknowledgedLimits
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.dispatch.dispatch_throttle import Stalls
from geminga_broker.subscriptions.dispatch.dispatcher import Dispatcher
from geminga_broker.subscriptions.dispatch.rate_limiter import RateLimiter
from geminga_protocol.pulsar.enums import SubscriptionType


class DispatcherFactory(Protocol):
    """What the members of a subscription ask of it."""

    def new_dispatcher(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> Dispatcher:
        """A dispatcher without consumers for the type ``kind``."""
        ...


class Membership:
    """The consumers of ``subscription``.

    There is a dispatcher while consumers are connected. After the last one has left, it is kept as
    long as it knows something that the next consumer needs.
    """

    __slots__ = (
        "_bytes_out_before",
        "_counting",
        "_entries_fetched_before",
        "_entries_sent_before",
        "_limiters",
        "_limits",
        "_messages_out_before",
        "_subscription",
        "dispatcher",
        "key_shared",
        "stalls",
        "type",
    )

    def __init__(self, subscription: DispatcherFactory) -> None:
        # The type of the consumers, connected or last; None before the first one.
        self.type: SubscriptionType | None = None
        # How keys are shared, if the type is Key_Shared.
        self.key_shared = AUTO_SPLIT
        # None before the first consumer, and when nothing of the last one matters any more.
        self.dispatcher: Dispatcher | None = None
        # Weak, so that the subscription is freed without the cycle collector.
        self._subscription: DispatcherFactory = proxy(subscription)
        # What the next dispatcher is given, too.
        self._limits = NO_LIMITS
        # The rate limiters that dispatching must pass, and how entries are counted there.
        self._limiters: Sequence[RateLimiter] = ()
        self._counting = COUNT_ALL
        # How often these limiters held the subscription back; None if there never were any.
        self.stalls: Stalls | None = None
        # Sums over consumers and dispatchers that have left, since the topic was loaded.
        self._messages_out_before = 0
        self._bytes_out_before = 0
        self._entries_sent_before = 0
        self._entries_fetched_before = 0

    @property
    def consumers(self) -> list[Consumer]:
        """Connected consumers."""
        return self.dispatcher.consumers if self.dispatcher else []

    # Coming and going

    def in_the_way(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> Consumer | None:
        """A consumer that must leave before one more of that kind can be added."""
        # A consumer of another type is refused anyway: the present one need not be pinged.
        if self.type is not kind or self.dispatcher is None:
            return None
        return self.dispatcher.in_the_way(key_shared)

    def make_room(self, kind: SubscriptionType, key_shared: KeySharedPolicy = AUTO_SPLIT) -> None:
        """Take the type ``kind``, and check that one more consumer of it may be added.

        Raises ``ConsumerBusy`` if the connected consumers or their number forbid it, and
        ``ConsumerNotAssigned`` if a Key_Shared consumer asks for keys that are taken.
        """
        if not self.consumers:
            # A dispatcher that was kept is of another type, or shares keys in another way.
            if self.type is not kind or not self.key_shared.is_alike(key_shared):
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
        self._ensure_dispatcher().check_room(key_shared)

    def _ensure_dispatcher(self) -> Dispatcher:
        """The dispatcher, made if there is none."""
        if self.dispatcher is None:
            assert self.type is not None
            self.dispatcher = self._subscription.new_dispatcher(self.type, self.key_shared)
            self.dispatcher.limit(self._limits)
            if self._limiters:
                self.dispatcher.pass_through(self._limiters, self._counting, self.stalls)
        return self.dispatcher

    def drop_dispatcher(self) -> None:
        """Keep the counters of the dispatcher, and forget the rest of it."""
        if self.dispatcher is not None:
            self._entries_sent_before += self.dispatcher.entries_sent
            self._entries_fetched_before += self.dispatcher.reader.entries_fetched
            self.dispatcher.reader.drop_read_ahead()
            if self._limiters:
                # Otherwise a rate limiter would still call it.
                self.dispatcher.pass_through((), self._counting)
            self.dispatcher = None

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part; ``make_room`` came before."""
        # The last consumer may have left since ``make_room``, and the dispatcher with it.
        self._ensure_dispatcher().add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove ``consumer``, if it is still here; what it held goes to the others."""
        if self.dispatcher is not None and consumer in self.dispatcher.consumers:
            # Otherwise the subscription's sums would fall when a consumer leaves.
            self._messages_out_before += consumer.messages_out
            self._bytes_out_before += consumer.bytes_out
            self.dispatcher.remove(consumer)
            if self.dispatcher.is_forgettable:
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
            consumer.listener.closed(consumer)

    # Limits

    def limit(self, limits: UnacknowledgedLimits) -> None:
        """Apply ``limits`` to the messages that consumers hold unacknowledged."""
        self._limits = limits
        if self.dispatcher is not None:
            self.dispatcher.limit(limits)

    def pass_through(self, limiters: Sequence[RateLimiter], counting: Counting) -> None:
        """Dispatch through ``limiters`` from now on; freely if there are none."""
        self._limiters, self._counting = limiters, counting
        if limiters and self.stalls is None:
            self.stalls = Stalls()
        if self.dispatcher is not None:
            self.dispatcher.pass_through(limiters, counting, self.stalls)

    # Counters, since the topic was loaded

    @property
    def messages_out(self) -> int:
        """Messages sent."""
        return self._messages_out_before + sum(each.messages_out for each in self.consumers)

    @property
    def bytes_out(self) -> int:
        """Bytes sent."""
        return self._bytes_out_before + sum(each.bytes_out for each in self.consumers)

    @property
    def entries_sent(self) -> int:
        """Entries sent, or skipped because they were acknowledged."""
        return self._entries_sent_before + (self.dispatcher.entries_sent if self.dispatcher else 0)

    @property
    def entries_fetched(self) -> int:
        """Entries read from bookies."""
        present = self.dispatcher.reader.entries_fetched if self.dispatcher else 0
        return self._entries_fetched_before + present
