"""How often each consumer may subscribe to a topic, period by period. Pure.

As upstream's ``SubscribeRateLimiter``: a consumer is an address, a name and an id, and all counts
begin anew with each period.
"""

from __future__ import annotations

from geminga_broker.policies.subscribing import SubscribeLimit
from geminga_broker.subscriptions.subscribe_request import NOBODY, ConsumerIdentity

# Consumers counted in one period; who comes after so many others is not limited.
CONSUMERS_MAX = 10_000


class SubscribeRate:
    """Counts against ``limit``, which may be replaced at any time."""

    __slots__ = ("_ends_at_s", "_subscribed", "limit")

    def __init__(self, limit: SubscribeLimit) -> None:
        self.limit = limit
        self._subscribed: dict[ConsumerIdentity, int] = {}
        self._ends_at_s = 0.0

    def take(self, consumer: ConsumerIdentity, now_s: float) -> bool:
        """Whether ``consumer`` may subscribe once more now; counted if so."""
        limit = self.limit
        if limit.per_consumer <= 0 or consumer == NOBODY:
            return True
        if now_s >= self._ends_at_s or self._ends_at_s > now_s + limit.period_s:
            self._subscribed.clear()
            self._ends_at_s = now_s + limit.period_s
        count = self._subscribed.get(consumer, 0)
        if count >= limit.per_consumer:
            return False
        if count or len(self._subscribed) < CONSUMERS_MAX:
            self._subscribed[consumer] = count + 1
        return True
