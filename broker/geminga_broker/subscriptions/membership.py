"""Who takes part in a subscription: its type, its consumers, the dispatcher that serves them.

The type is that of the consumers connected now; a subscription without consumers takes any. What
was counted of consumers and dispatchers that are gone is kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import proxy

from geminga_broker.errors import ConsumerBusy
from geminga_broker.policies.dispatching import COUNT_ALL, Counting
from geminga_broker.policies.unacknowledged import NO_LIMITS, UnacknowledgedLimits
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.dispatch_throttle import Stalls
from geminga_broker.subscriptions.dispatcher import Dispatcher
from geminga_broker.subscriptions.distribution.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.rate_limiter import RateLimiter
from geminga_protocol.pulsar.enums import SubscriptionType


class Dispatching(Protocol):
    """The subscription, as far as its members must know it."""

    def new_dispatcher(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> Dispatcher:
        """What serves consumers of type ``kind``."""
        ...


class Membership:
    """The consumers of ``subscription``. It has a dispatcher while there are any, and as long
    after that as the dispatcher knows what the next one must know."""

    __slots__ = (
        "_bytes_out_before",
        "_counting",
        "_entries_fetched_before",
        "_entries_sent_before",
        "_gates",
        "_limits",
        "_messages_out_before",
        "_subscription",
        "dispatcher",
        "key_shared",
        "stalls",
        "type",
    )

    def __init__(self, subscription: Dispatching) -> None:
        self.type: SubscriptionType | None = None
        # How keys are shared, where the type is Key_Shared.
        self.key_shared = AUTO_SPLIT
        self.dispatcher: Dispatcher | None = None
        self._subscription: Dispatching = proxy(subscription)
        self._limits = NO_LIMITS
        # What is sent passes these gates, and how it is counted there.
        self._gates: Sequence[RateLimiter] = ()
        self._counting = COUNT_ALL
        # How often these held it back; None where there never were any.
        self.stalls: Stalls | None = None
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
        """A consumer that has what one more of that kind asks for, where only one can."""
        if self.type is not kind or self.dispatcher is None:
            return None
        return self.dispatcher.in_the_way(key_shared)

    def make_room(self, kind: SubscriptionType, key_shared: KeySharedPolicy = AUTO_SPLIT) -> None:
        """Be of type ``kind`` from now on. Raises ``ConsumerBusy`` where the consumers connected
        now forbid it, or one more of their type, and ``ConsumerNotAssigned`` for a Key_Shared one
        that asks for keys it cannot have."""
        if self.consumers:
            self._check_alike(kind, key_shared)
        elif self.type is not kind or not self.key_shared.is_alike(key_shared):
            self._let_dispatcher_go()
            self.type, self.key_shared = kind, key_shared
        self._served().check_room(key_shared)

    def _check_alike(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> None:
        assert self.type is not None
        if self.type is not kind:
            raise ConsumerBusy(
                "Subscription is of different type. Active subscription type of "
                f"'{self.type.label}' is different than the connecting consumer's type "
                f"'{kind.label}'."
            )
        if kind is SubscriptionType.KEY_SHARED:
            key_shared.check_alike(self.key_shared)

    def _served(self) -> Dispatcher:
        """The dispatcher, made where there is none."""
        if self.dispatcher is None:
            assert self.type is not None
            self.dispatcher = self._subscription.new_dispatcher(self.type, self.key_shared)
            self.dispatcher.limit(self._limits)
            if self._gates:
                self.dispatcher.pass_through(self._gates, self._counting, self.stalls)
        return self.dispatcher

    def _let_dispatcher_go(self) -> None:
        if self.dispatcher is not None:
            self._entries_sent_before += self.dispatcher.entries_sent
            self._entries_fetched_before += self.dispatcher.reader.entries_fetched
            self.dispatcher.reader.let_go()
            if self._gates:
                self.dispatcher.pass_through((), self._counting)
            self.dispatcher = None

    def limit(self, limits: UnacknowledgedLimits) -> None:
        """From now on these hold."""
        self._limits = limits
        if self.dispatcher is not None:
            self.dispatcher.limit(limits)

    def pass_through(self, gates: Sequence[RateLimiter], counting: Counting) -> None:
        """From now on what is sent passes these, where there are any."""
        self._gates, self._counting = gates, counting
        if gates and self.stalls is None:
            self.stalls = Stalls()
        if self.dispatcher is not None:
            self.dispatcher.pass_through(gates, counting, self.stalls)

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part: there is room for it."""
        self._served().add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """``consumer`` is gone, if it was here; what it held goes to the others."""
        if self.dispatcher is not None and consumer in self.dispatcher.consumers:
            self._messages_out_before += consumer.messages_out
            self._bytes_out_before += consumer.bytes_out
            self.dispatcher.remove(consumer)
            if self.dispatcher.is_forgettable:
                self._let_dispatcher_go()

    def stop(self) -> None:
        """Send nobody anything any more: all are about to go, and what one leaves would only come
        to the others a moment before they do."""
        for consumer in self.consumers:
            consumer.permits = 0

    def close(self) -> None:
        """Tell every consumer to subscribe again."""
        self.stop()
        for consumer in list(self.consumers):
            self.remove(consumer)
            consumer.listener.closed(consumer)

    def end(self) -> None:
        """Nobody will come any more."""
        self._let_dispatcher_go()

    # Counting, since the topic was loaded

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
        """Entries sent, or passed over as acknowledged."""
        return self._entries_sent_before + (self.dispatcher.entries_sent if self.dispatcher else 0)

    @property
    def entries_fetched(self) -> int:
        """Entries read from bookies."""
        present = self.dispatcher.reader.entries_fetched if self.dispatcher else 0
        return self._entries_fetched_before + present
