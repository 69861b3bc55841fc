"""Who takes part in a subscription: its type, its consumers, the dispatcher that serves them.

The type is that of the consumers connected now; a subscription without consumers takes any. What
was counted of consumers and dispatchers that are gone is kept here.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.errors import ConsumerBusy
from magnetar_broker.subscriptions.consumer import Consumer
from magnetar_broker.subscriptions.dispatcher import Dispatcher
from magnetar_broker.subscriptions.subscription_type import SubscriptionType


class Membership:
    """The consumers of one subscription; ``new_dispatcher`` makes what serves a type of them."""

    def __init__(self, new_dispatcher: Callable[[SubscriptionType], Dispatcher]) -> None:
        self.type: SubscriptionType | None = None
        self.dispatcher: Dispatcher | None = None
        self._new_dispatcher = new_dispatcher
        self._messages_out_before = 0
        self._bytes_out_before = 0
        self._entries_sent_before = 0
        self._entries_fetched_before = 0

    @property
    def consumers(self) -> list[Consumer]:
        """Connected consumers."""
        return self.dispatcher.consumers if self.dispatcher else []

    # Coming and going

    def make_room(self, kind: SubscriptionType) -> None:
        """Be of type ``kind`` from now on. Raises ``ConsumerBusy`` where the consumers connected
        now forbid it, or one more of their type."""
        if self.type is not kind:
            if self.consumers:
                raise ConsumerBusy("Subscription is of different type")
            self._serve_with(kind)
        assert self.dispatcher is not None
        self.dispatcher.check_room()

    def _serve_with(self, kind: SubscriptionType) -> None:
        self._entries_sent_before, self._entries_fetched_before = (
            self.entries_sent,
            self.entries_fetched,
        )
        self.type = kind
        self.dispatcher = self._new_dispatcher(kind)

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part: there is room for it."""
        assert self.dispatcher is not None
        self.dispatcher.add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """``consumer`` is gone, if it was here; what it held goes to the others."""
        if self.dispatcher is not None and consumer in self.dispatcher.consumers:
            self._messages_out_before += consumer.messages_out
            self._bytes_out_before += consumer.bytes_out
            self.dispatcher.remove(consumer)

    def close(self) -> None:
        """Tell every consumer to subscribe again."""
        for consumer in list(self.consumers):
            self.remove(consumer)
            consumer.on_closed(consumer)

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
        present = self.dispatcher.entries_fetched if self.dispatcher else 0
        return self._entries_fetched_before + present
