"""How many messages may be with consumers that share a subscription, sent and unacknowledged. Pure.

Whoever reaches a limit gets no more until half of it is acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass

PER_CONSUMER_MAX = 50_000
PER_SUBSCRIPTION_MAX = 200_000


@dataclass(frozen=True, slots=True)
class UnacknowledgedLimits:
    """Messages of one consumer (maxUnackedMessagesPerConsumer) and of all of a subscription
    (maxUnackedMessagesPerSubscription); 0: no limit."""

    per_consumer: int = PER_CONSUMER_MAX
    per_subscription: int = PER_SUBSCRIPTION_MAX

    def overridden(
        self, per_consumer: int | None, per_subscription: int | None
    ) -> UnacknowledgedLimits:
        """These, but where others are given (None, or below 0: not given)."""
        return UnacknowledgedLimits(
            self.per_consumer if per_consumer is None or per_consumer < 0 else per_consumer,
            self.per_subscription
            if per_subscription is None or per_subscription < 0
            else per_subscription,
        )


LIMITS_DEFAULT = UnacknowledgedLimits()
