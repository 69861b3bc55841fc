"""How fast may be published: token buckets, as upstream's ``PublishRateLimiterImpl``. Pure.

What was sent is always taken; who sent more than the bucket held is not read until it has filled
up again. A bucket holds what a second brings.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishLimits:
    """How much a second; 0 and below: any number."""

    messages_per_s: int = 0
    bytes_per_s: int = 0

    @property
    def is_unlimited(self) -> bool:
        """Whether there is nothing to count."""
        return self.messages_per_s <= 0 and self.bytes_per_s <= 0


class TokenBucket:
    """``rate`` tokens a second, which is also the most that it holds; full at first."""

    def __init__(self, rate: int, now_s: float) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._filled_at_s = now_s

    def take(self, count: int, now_s: float) -> None:
        """Take ``count`` tokens, though there be fewer."""
        filled = self._tokens + (now_s - self._filled_at_s) * self._rate
        self._tokens = min(filled, float(self._rate)) - count
        self._filled_at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """How long until none is owed any more."""
        owed = -(self._tokens + (now_s - self._filled_at_s) * self._rate)
        return max(0.0, owed / self._rate)


class PublishRate:
    """Counts what is published against ``limits``, which are not all unlimited.

    ``is_over`` is set where they do not hold any more: then nobody waits for it.
    """

    def __init__(self, limits: PublishLimits, now_s: float) -> None:
        self.limits = limits
        self.is_over = False
        self._messages = _bucket(limits.messages_per_s, now_s)
        self._bytes = _bucket(limits.bytes_per_s, now_s)

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
        return max(each.wait_s(now_s) for each in buckets if each is not None)


def _bucket(rate: int, now_s: float) -> TokenBucket | None:
    return TokenBucket(rate, now_s) if rate > 0 else None
