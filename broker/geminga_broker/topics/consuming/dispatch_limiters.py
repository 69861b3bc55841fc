"""The dispatch rates of one topic: which gates its subscriptions pass, made while there are any.

``DispatchPolicies`` say what is limited. A topic without limits has nothing of this but a reference
to its broker's gate, where there is one.
"""

from __future__ import annotations

from typing import Protocol

from geminga_broker.policies.dispatching import DISPATCH_FREELY, DispatchLimit, DispatchPolicies
from geminga_broker.subscriptions.dispatch.rate_limiter import LimitOf, RateLimiter
from geminga_broker.subscriptions.subscription import Subscription
from geminga_runtime.clock import Clock


class PublishedTo(Protocol):
    """The topic, as far as it is to be served as fast as it is published to."""

    @property
    def publish_rates(self) -> tuple[float, float]:
        """Messages and bytes a second, in the last stats period."""
        ...


class DispatchLimiters:
    """Of ``topic``; all topics of the broker pass ``broker_limiter``, where there is one."""

    __slots__ = ("_broker_limiter", "_clock", "_own", "_policies", "_topic", "_topic_limiter")

    def __init__(
        self, topic: PublishedTo, clock: Clock, broker_limiter: RateLimiter | None
    ) -> None:
        self._clock = clock
        self._topic = topic
        self._broker_limiter = broker_limiter
        self._topic_limiter: RateLimiter | None = None
        self._own: dict[Subscription, RateLimiter] = {}
        self._policies = DISPATCH_FREELY

    def follow(self, policies: DispatchPolicies, subscriptions: list[Subscription]) -> None:
        """From now on these hold, for ``subscriptions``, which are all there are."""
        if policies == self._policies:
            return
        self._policies = policies
        self._topic_limiter = self._changed(self._topic_limiter, policies.topic, LimitOf.TOPIC)
        for subscription in subscriptions:
            self.hold(subscription)

    def hold(self, subscription: Subscription) -> None:
        """Hold ``subscription`` back as is said now."""
        own = self._changed(
            self._own.pop(subscription, None), self._policies.subscription, LimitOf.SUBSCRIPTION
        )
        if own is not None:
            self._own[subscription] = own
        gates = [
            gate for gate in (self._broker_limiter, self._topic_limiter, own) if gate is not None
        ]
        subscription.membership.pass_through(gates, self._policies.counting)

    def forget(self, subscription: Subscription) -> None:
        """It is gone."""
        own = self._own.pop(subscription, None)
        if own is not None:
            own.close()
        subscription.membership.pass_through([], self._policies.counting)

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
        for gate in (self._topic_limiter, *self._own.values()):
            if gate is not None:
                gate.close()
        self._topic_limiter = None
        self._own.clear()
