"""The dispatch rates of one topic: which gates its subscriptions pass, made while there are any.

``DispatchPolicies`` say what is limited. A topic without limits has nothing of this but a reference
to its broker's gate, where there is one.
"""

from __future__ import annotations

from typing import Protocol

from geminga_broker.policies.dispatching import DISPATCH_FREELY, DispatchLimit, DispatchPolicies
from geminga_broker.subscriptions.rate_limiter import LimitOf, RateLimiter
from geminga_broker.subscriptions.subscription import Subscription
from geminga_runtime.clock import Clock


class PublishedTo(Protocol):
    """The topic, as far as it is to be served as fast as it is published to."""

    @property
    def publish_rates(self) -> tuple[float, float]:
        """Messages and bytes a second, in the last stats period."""
        ...


class Throttling:
    """Of ``topic``; all topics of the broker pass ``broker_gate``, where there is one."""

    __slots__ = ("_broker_gate", "_clock", "_own", "_policies", "_topic", "_topic_gate")

    def __init__(self, topic: PublishedTo, clock: Clock, broker_gate: RateLimiter | None) -> None:
        self._clock = clock
        self._topic = topic
        self._broker_gate = broker_gate
        self._topic_gate: RateLimiter | None = None
        self._own: dict[Subscription, RateLimiter] = {}
        self._policies = DISPATCH_FREELY

    def follow(self, policies: DispatchPolicies, subscriptions: list[Subscription]) -> None:
        """From now on these hold, for ``subscriptions``, which are all there are."""
        if policies == self._policies:
            return
        self._policies = policies
        self._topic_gate = self._changed(self._topic_gate, policies.topic, LimitOf.TOPIC)
        for subscription in subscriptions:
            self.hold(subscription)

    def hold(self, subscription: Subscription) -> None:
        """Hold ``subscription`` back as is said now."""
        own = self._changed(
            self._own.pop(subscription, None), self._policies.subscription, LimitOf.SUBSCRIPTION
        )
        if own is not None:
            self._own[subscription] = own
        gates = [gate for gate in (self._broker_gate, self._topic_gate, own) if gate is not None]
        subscription.throttle(gates, self._policies.counting)

    def forget(self, subscription: Subscription) -> None:
        """It is gone."""
        own = self._own.pop(subscription, None)
        if own is not None:
            own.close()
        subscription.throttle([], self._policies.counting)

    def _changed(
        self, gate: RateLimiter | None, limit: DispatchLimit, limit_of: LimitOf
    ) -> RateLimiter | None:
        """The gate with that limit; a new one is full, whoever waited at another is called."""
        if gate is not None and gate.limit == limit:
            return gate
        if gate is not None:
            gate.close()
        if limit.is_unlimited:
            return None
        return RateLimiter(limit, self._clock, lambda: self._topic.publish_rates, limit_of=limit_of)

    def close(self) -> None:
        """The topic is closed."""
        for gate in (self._topic_gate, *self._own.values()):
            if gate is not None:
                gate.close()
        self._topic_gate = None
        self._own.clear()
