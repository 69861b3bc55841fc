"""The subscriptions of a topic that keeps no messages: they come and go with their consumers."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.errors import NotAllowed
from geminga_broker.log.append_request import AppendRequest
from geminga_broker.log.positions import Entry
from geminga_broker.subscriptions.volatile_subscription import VolatileSubscription
from geminga_broker.topics.consuming.admission import check_name
from geminga_broker.topics.consuming.subscribe_request import SubscribeRequest
from geminga_broker.topics.consuming.subscription_registry import SubscriptionRegistry


class VolatileSubscriptions(SubscriptionRegistry[VolatileSubscription]):
    """Sends every message on at once, to the consumers that have permits."""

    __slots__ = ()

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """Messages came: now or never."""
        del ledger_id, batch
        for _, payload, messages in entries:
            for subscription in self.subscriptions.values():
                subscription.deliver(payload, messages)

    async def subscribe(self, request: SubscribeRequest) -> VolatileSubscription:
        """The subscription, new or known, ready for one more consumer."""
        request.check()
        self._topic.check_open()
        if request.reads_compacted:
            raise NotAllowed("readCompacted only valid on persistent topics")
        check_name(request.subscription)
        self._admission.check(request, self._clock.monotonic())
        subscription = self.subscriptions.get(request.subscription)
        if subscription is None:
            self._admission.check_subscriptions(len(self.subscriptions))
            name = self._topic.name
            subscription = VolatileSubscription(
                request.subscription, str(name), name.partition_index, self._deserted
            )
        self._check_consumers(request, len(subscription.consumers))
        subscription.check(request.type, request.key_shared)
        self.subscriptions[subscription.name] = subscription
        return subscription

    async def create(self, name: str, *, from_earliest: bool = False) -> bool:
        """A subscription without consumers would get nothing: there is nothing to make."""
        del name, from_earliest
        return False

    def tick(self, now_s: float, period_s: float) -> None:
        """Renew the rates of consumers, and of what none could take."""
        super().tick(now_s, period_s)
        for each in self.subscriptions.values():
            each.drop_meter.tick(now_s, each.messages_dropped, period_s=period_s)

    def _deserted(self, subscription: VolatileSubscription) -> None:
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]

    def let_go(self) -> None:
        """Keep no subscriptions, which know this."""
        self.subscriptions.clear()
