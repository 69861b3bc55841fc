"""The subscriptions of a non-persistent topic, which exist while consumers are connected."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.errors import NotAllowed
from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.subscriptions.non_persistent_subscription import NonPersistentSubscription
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.topics.decisions.consumer_admission import check_name
from geminga_broker.topics.subscriptions.subscription_registry import SubscriptionRegistry


class NonPersistentSubscriptions(SubscriptionRegistry[NonPersistentSubscription]):
    """The subscriptions of a topic without a log."""

    __slots__ = ()

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """Send the messages to consumers that have permits; messages for the others are dropped."""
        del ledger_id, batch
        # Nothing is kept here for a consumer without permits: it would be memory without bound.
        for _, payload, messages in entries:
            for subscription in self.subscriptions.values():
                subscription.deliver(payload, messages)

    async def subscribe(self, request: SubscribeRequest) -> NonPersistentSubscription:
        """The subscription, new or existing, with room for one more consumer.

        Nothing is awaited, so that no check must be repeated. Raises ``BrokerError``.
        """
        request.check()
        # The same checks in the same order as for persistent topics, as far as they have a meaning
        # here.
        self._topic.check_open()
        if request.reads_compacted:
            raise NotAllowed("readCompacted only valid on persistent topics")
        check_name(request.subscription)
        self._admission.check(request, self._clock.monotonic())
        subscription = self.subscriptions.get(request.subscription)
        if subscription is None:
            self._admission.check_subscriptions(len(self.subscriptions))
            # It is added below, when no check can fail any more. A subscription without a consumer
            # would stay for ever: what ends it is that its last one leaves.
            name = self._topic.name
            subscription = NonPersistentSubscription(
                request.subscription, str(name), name.partition_index, self._deserted
            )
        # For a new subscription, too: its first consumer counts for the topic and for its host.
        self._check_consumers(request, len(subscription.consumers))
        subscription.check(request.type, request.key_shared)
        self.subscriptions[subscription.name] = subscription
        return subscription

    async def create(self, name: str, *, from_earliest: bool = False) -> bool:
        """Create nothing, and return False: without consumers there is no subscription here."""
        del name, from_earliest
        return False

    def tick(self, now_s: float, period_s: float) -> None:
        """Compute the rates of consumers, and of dropped messages."""
        super().tick(now_s, period_s)
        for each in self.subscriptions.values():
            each.drop_meter.tick(now_s, each.messages_dropped, period_s=period_s)

    def _deserted(self, subscription: NonPersistentSubscription) -> None:
        """Forget a subscription whose last consumer has left."""
        # Another one may have its name by now.
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
