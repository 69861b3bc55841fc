"""How fast may be published: token buckets, as upstream's ``PublishRateLimiterImpl``. Pure.

What was sent is always taken; who sent more than there was is not read until nothing is owed. No
more is saved up than what a second brings.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_broker.counting.token_bucket import TokenBucket

PERIOD_S = 1


@dataclass(frozen=True, slots=True)
class PublishLimits:
    """How much a second; 0 and below: any number."""

    messages_per_s: int = 0
    bytes_per_s: int = 0

    @property
    def is_unlimited(self) -> bool:
        """Whether there is nothing to count."""
        return self.messages_per_s <= 0 and self.bytes_per_s <= 0


class PublishRate:
    """Counts what is published against ``limits``, which are not all unlimited.

    ``is_over`` is set where they do not hold any more: then nobody waits for it.
    """

    def __init__(self, limits: PublishLimits, now_s: float) -> None:
        self.limits = limits
        self.is_over = False
        self._messages = TokenBucket.limiting(limits.messages_per_s, PERIOD_S, now_s)
        self._bytes = TokenBucket.limiting(limits.bytes_per_s, PERIOD_S, now_s)

    def take(self, messages: int, size_bytes: int, now_s: float) -> None:
        """So much was published."""
        if self._messages is not None:
            self._messages.take(messages, now_s)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now_s)

    def wait_s(self, now_s: float) -> float:
        """How long publishers must not be read, 0: they may be now."""
        if self.is_over:
            return 0.0
        buckets = (self._messages, self._bytes)
        return max(each.wait_s(now_s, until=0) for each in buckets if each is not None)
